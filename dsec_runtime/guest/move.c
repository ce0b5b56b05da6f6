/* Moving: by rename(2) or, where the file system cannot (an overlay cannot rename a folder of its
 * lower layers), by a copy that takes the name when it is whole. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "helper.h"

enum { KEEP_EXISTING = 1, OWNERS = 1 };

static char aside[PATH_MAX];

static void remove_aside(void) { remove_tree(aside); }

static pid_t begin_part(void (*run)(const struct request *), const struct request *request, int mine, int other) {
    pid_t pid = fork();
    if (pid < 0) fail_with(errno);
    if (pid) return pid;
    /* Each holds its own end alone, so that it sees when the other has gone. */
    close(other);
    helper_part(run, request, mine);
}

/* 0 or an errno. */
static int finish_part(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/* The tree below `path`, or the file, into the folder `aside`. */
static void copy(const char *path) {
    struct request from = {.path = (char *)path}, to = {.path = aside};
    int pair[2];
    to.numbers[T_FLAGS] = OWNERS;
    pack_demands_all = true;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) fail_with(errno);
    pid_t packing = begin_part(do_pack, &from, pair[0], pair[1]);
    pid_t unpacking = begin_part(do_unpack, &to, pair[1], pair[0]);
    close(pair[0]);
    close(pair[1]);
    int packed = finish_part(packing), unpacked = finish_part(unpacking);
    /* Where one failed the other only lost its peer. */
    if (packed && packed != EPIPE) fail_with(packed);
    if (unpacked) fail_with(unpacked);
}

static void take_over(const struct stat *about) {
    struct timespec times[2] = {about->st_atim, about->st_mtim};
    if (chown(aside, about->st_uid, about->st_gid) || chmod(aside, about->st_mode & 07777) ||
        utimensat(AT_FDCWD, aside, times, 0))
        fail_with(errno);
}

/* Whether a folder is, or lies in, another: its copy would never end. */
static bool lies_in(const char *target, const char *path) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", target);
    char *slash = strrchr(above, '/');
    if (slash) slash[slash == above] = 0;
    char *inner = realpath(slash ? above : ".", NULL), *outer = realpath(path, NULL);
    size_t length = outer ? strlen(outer) : 0;
    bool found = inner && outer && !strncmp(inner, outer, length) && (!inner[length] || inner[length] == '/');
    free(inner);
    free(outer);
    return found;
}

static void move_by_copy(const struct request *request, unsigned flags) {
    char made[PATH_MAX + NAME_MAX + 2];
    const char *target = request->target, *slash = strrchr(target, '/');
    const char *name = strrchr(request->path, '/');
    uint64_t random = 0;
    struct stat about;
    if (lstat(request->path, &about)) fail_with(errno);
    if (getrandom(&random, sizeof random, 0) < 0) fail_with(errno);
    int length = snprintf(aside, sizeof aside, "%.*s.dsec-%016llx", slash ? (int)(slash - target) + 1 : 0, target,
                          (unsigned long long)random);
    if (length < 0 || (size_t)length >= sizeof aside) fail_with(ENAMETOOLONG);
    bool folder = S_ISDIR(about.st_mode);
    if (folder && lies_in(target, request->path)) fail_with(EINVAL);
    on_failure(remove_aside);
    copy(request->path);
    if (folder) take_over(&about);
    snprintf(made, sizeof made, folder ? "%s" : "%s/%s", aside, name ? name + 1 : request->path);
    copy_attributes(request->path, made);
    if (renameat2(AT_FDCWD, made, AT_FDCWD, target, flags)) fail_with(errno);
    on_failure(NULL);
    if (!folder && rmdir(aside)) fail_with(errno);
    remove_tree(request->path);
}

void do_move(const struct request *request) {
    if (!request->target) fail_with(EINVAL);
    unsigned flags = request->numbers[T_FLAGS] & KEEP_EXISTING ? RENAME_NOREPLACE : 0;
    if (renameat2(AT_FDCWD, request->path, AT_FDCWD, request->target, flags)) {
        if (errno != EXDEV) fail_with(errno);
        move_by_copy(request, flags);
    }
    tell(F_END, NULL);
}
