/* Contents of files: read from an offset, written whole, at an offset, or aside and then renamed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "helper.h"

enum { PARENTS = 1, ASIDE = 2, SYNC = 4, EXCLUSIVE = 8, APPEND = 16 };
enum { READ_BYTES = 64 << 10 };

static char aside[PATH_MAX];

/* Pipes, devices and sockets could block or never end. */
static void demand_regular(int fd) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about)) fail_with(errno);
    if (S_ISDIR(about.st_mode)) fail_with(EISDIR);
    if (!S_ISREG(about.st_mode)) fail_with(EINVAL);
}

void do_read(const struct request *request) {
    static uint8_t bytes[READ_BYTES];
    uint64_t at = request->numbers[T_OFFSET];
    uint64_t left = has(request, T_LENGTH) ? request->numbers[T_LENGTH] : UINT64_MAX;
    struct buffer fields = {0};
    struct stat about;
    int fd = open(request->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    demand_regular(fd);
    if (fstat(fd, &about)) fail_with(errno);
    posix_fadvise(fd, (off_t)at, 0, POSIX_FADV_SEQUENTIAL);
    put_stat(&fields, &about);
    tell(F_REPLY, &fields);
    send_from(at);
    while (left) {
        ssize_t got = pread(fd, bytes, left < sizeof bytes ? (size_t)left : sizeof bytes, (off_t)at);
        if (got < 0) fail_with(errno);
        if (!got) break;
        send_bytes(bytes, (size_t)got);
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
    tell(F_END, NULL);
}

static void remove_aside(void) { unlink(aside); }

/* A new file in the same folder, which takes the mode and owner of the one that it will replace. */
static int open_aside(const char *path) {
    const char *slash = strrchr(path, '/');
    int folder_length = slash ? (int)(slash - path) + 1 : 0;
    uint64_t random = 0;
    struct stat old;
    if (getrandom(&random, sizeof random, 0) < 0) fail_with(errno);
    int length = snprintf(aside, sizeof aside, "%.*s.dsec-%016llx", folder_length, path, (unsigned long long)random);
    if (length < 0 || (size_t)length >= sizeof aside) fail_with(ENAMETOOLONG);
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) fail_with(errno);
    on_failure(remove_aside);
    bool replaces = !stat(path, &old) && S_ISREG(old.st_mode);
    if (replaces && (fchown(fd, old.st_uid, old.st_gid) || fchmod(fd, old.st_mode & 07777))) fail_with(errno);
    return fd;
}

static int open_in_place(const char *path, const struct request *request) {
    uint64_t flags = request->numbers[T_FLAGS];
    int how = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct statfs system;
    if (flags & EXCLUSIVE) how |= O_EXCL;
    int fd = open(path, how, 0644);
    demand_regular(fd);
    /* Files of /proc act on processes, also on this one. */
    if (fstatfs(fd, &system) || system.f_type == PROC_SUPER_MAGIC) fail_with(EPERM);
    bool whole = !has(request, T_OFFSET) && !(flags & APPEND);
    if (whole && ftruncate(fd, 0)) fail_with(errno);
    return fd;
}

static void copy_from_host(int fd, uint64_t at) {
    const uint8_t *bytes;
    for (size_t length; (length = receive_bytes(&bytes));)
        for (size_t done = 0; done < length;) {
            ssize_t put = pwrite(fd, bytes + done, length - done, (off_t)at);
            if (put < 0) fail_with(errno);
            done += (size_t)put;
            at += (uint64_t)put;
        }
}

static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd)) fail_with(errno);
    close(fd);
}

void do_write(const struct request *request) {
    uint64_t flags = request->numbers[T_FLAGS], at = request->numbers[T_OFFSET];
    char *real = flags & ASIDE ? realpath(request->path, NULL) : NULL;
    const char *path = real ? real : request->path;
    struct stat about;
    struct buffer fields = {0};
    if ((flags & PARENTS) && !make_parents(path, request)) fail_with(errno);
    int fd = flags & ASIDE ? open_aside(path) : open_in_place(path, request);
    if (fstat(fd, &about)) fail_with(errno);
    tell(F_REPLY, NULL);
    copy_from_host(fd, flags & APPEND ? (uint64_t)about.st_size : at);
    if (!apply(fd, request)) fail_with(errno);
    if ((flags & SYNC) && fsync(fd)) fail_with(errno);
    if (flags & ASIDE) {
        unsigned how = flags & EXCLUSIVE ? RENAME_NOREPLACE : 0;
        if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, how)) fail_with(errno);
        on_failure(NULL);
    }
    if (flags & SYNC) sync_folder(path);
    if (fstat(fd, &about)) fail_with(errno);
    put_stat(&fields, &about);
    tell(F_END, &fields);
}
