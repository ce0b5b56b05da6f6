#include "harden.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "ownuser.h"

enum {
    ALL_FDS = ~0U,
    /* Of newer kernels than the headers this is built with (ABI 6). */
    SCOPE_ABSTRACT_SOCKETS = 1,
    SCOPE_SIGNALS = 2,
    SCOPE_ABI = 6,
};

static bool capabilities(uint64_t *held) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data)) return false;
    *held = data[0].permitted | (uint64_t)data[1].permitted << 32;
    return true;
}

bool hold_capabilities(uint64_t mask) {
    uint64_t held;
    if (!capabilities(&held)) return false;
    held &= mask;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)held, .permitted = (uint32_t)held},
        {.effective = (uint32_t)(held >> 32), .permitted = (uint32_t)(held >> 32)},
    };
    return syscall(SYS_capset, &header, data) == 0;
}

void limit_bounding_set(uint64_t mask) {
    for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (!(mask >> cap & 1)) prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

void close_all_but(const int *keep, int count) {
    for (unsigned from = 0;;) {
        unsigned next = ALL_FDS;
        for (int i = 0; i < count; i++)
            if (keep[i] >= 0 && (unsigned)keep[i] >= from && (unsigned)keep[i] < next) next = (unsigned)keep[i];
        if (next == ALL_FDS) {
            close_range(from, ALL_FDS, 0);
            return;
        }
        if (next > from) close_range(from, next - 1, 0);
        from = next + 1;
    }
}

/* Root of the sandbox may change limits, priority and affinity of processes of its own user only. */
static bool own_user(void) {
    if (!settings.uid || geteuid() != 0) return false;
    bool left = !prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) && !setgroups(0, NULL) &&
                !setresgid(settings.uid, settings.uid, settings.uid) &&
                !setresuid(settings.uid, settings.uid, settings.uid);
    prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
    return left;
}

/* Landlock forbids to move a file into another folder unless it is told that this is fine. */
static bool allow_moves(int rules) {
    struct landlock_path_beneath_attr everywhere = {
        .allowed_access = LANDLOCK_ACCESS_FS_REFER,
        .parent_fd = open("/", O_PATH | O_CLOEXEC),
    };
    if (everywhere.parent_fd < 0) return false;
    bool done = !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0);
    close(everywhere.parent_fd);
    return done;
}

/* Commands inherit this domain, so they may signal one another, and nothing outside of it. What is
 * handled and allowed nowhere is forbidden: no device node is ever made. Needs CAP_SYS_ADMIN (of
 * the user namespace) or no new privileges. */
static bool landlock(void) {
    struct {
        uint64_t access_fs, access_net, scoped;
    } rules = {
        LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_REFER,
        0,
        SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS,
    };
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < SCOPE_ABI) return false;
    int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    bool done = fd >= 0 && allow_moves(fd) && !syscall(SYS_landlock_restrict_self, fd, 0);
    if (fd >= 0) close(fd);
    return done;
}

bool harden(void) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (settings.landlock) {
        if (landlock())
            settings.features |= HAS_LANDLOCK;
        else if (settings.landlock > 1)
            return false;
    }
    if (own_user()) settings.features |= HAS_OWN_UID;
    /* The file helpers follow links that the sandbox made: they must not see into the agent. */
    hold_capabilities(~(1ULL << CAP_SYS_PTRACE));
    /* Who has the same user may change our limits, and those of our supervisors and helpers. */
    if (settings.features & HAS_OWN_UID) keep_user(settings.uid);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return true;
}
