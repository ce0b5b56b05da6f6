#include "ownuser.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "which architecture is this?"
#endif

enum {
    X32 = 0x40000000, /* the same numbers with this bit */
    /* Of 32-bit programs, of x86 and Arm alike; the first three have ids of 16 bits. */
    SETUID16 = 23, SETREUID16 = 70, SETRESUID16 = 164, SETUID32 = 213, SETREUID32 = 203, SETRESUID32 = 208,
};

/* Where the steps of the filter stand. */
enum { NUMBER = 3, COMPAT = 8, WIDE = 15, NARROW = 21, ALLOW = 30, DENY = 31, STEPS = 32 };

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* In step `at`, go to step `to` when the value is `what`. */
#define WHEN(at, what, to) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (what), (to) - (at) - 1, 0)
#define GO(at, to) BPF_STMT(BPF_JMP | BPF_JA, (to) - (at) - 1)
#define END(how) BPF_STMT(BPF_RET | BPF_K, (how))
#define LOW16 BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff)

bool keep_user(uint32_t uid) {
    /* The low half of an argument stands first on both architectures. */
    struct sock_filter steps[STEPS] = {
        [0] = LOAD(arch),
        [1] = WHEN(1, NATIVE, NUMBER),
        [2] = GO(2, COMPAT),
        [NUMBER] = LOAD(nr),
        [4] = BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)~X32),
        [5] = WHEN(5, SYS_setresuid, WIDE),
        [6] = WHEN(6, SYS_setreuid, WIDE + 2),
        [7] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setuid, WIDE + 4 - 8, ALLOW - 8),
        [COMPAT] = LOAD(nr),
        [9] = WHEN(9, SETRESUID32, WIDE),
        [10] = WHEN(10, SETREUID32, WIDE + 2),
        [11] = WHEN(11, SETUID32, WIDE + 4),
        [12] = WHEN(12, SETRESUID16, NARROW),
        [13] = WHEN(13, SETREUID16, NARROW + 3),
        [14] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SETUID16, NARROW + 6 - 15, ALLOW - 15),
        [WIDE] = LOAD(args[2]),
        [16] = WHEN(16, uid, DENY),
        [17] = LOAD(args[1]),
        [18] = WHEN(18, uid, DENY),
        [19] = LOAD(args[0]),
        [20] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uid, DENY - 21, ALLOW - 21),
        [NARROW] = LOAD(args[2]),
        [22] = LOW16,
        [23] = WHEN(23, uid, DENY),
        [24] = LOAD(args[1]),
        [25] = LOW16,
        [26] = WHEN(26, uid, DENY),
        [27] = LOAD(args[0]),
        [28] = LOW16,
        [29] = WHEN(29, uid, DENY),
        [ALLOW] = END(SECCOMP_RET_ALLOW),
        [DENY] = END(SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {.len = STEPS, .filter = steps};
    return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
