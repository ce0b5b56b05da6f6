/* Names: what a file is, what a folder holds, making, changing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"

enum { FOLLOW = 1, PARENTS = 1 };

void put_stat(struct buffer *out, const struct stat *about) {
    put_number(out, T_MODE, about->st_mode);
    put_number(out, T_UID, about->st_uid);
    put_number(out, T_GID, about->st_gid);
    put_number(out, T_SIZE, (uint64_t)about->st_size);
    put_number(out, T_MTIME_NS, (uint64_t)about->st_mtim.tv_sec * 1000000000 + (uint64_t)about->st_mtim.tv_nsec);
}

static void put_target(struct buffer *out, int folder, const char *name) {
    char target[PATH_MAX];
    ssize_t length = readlinkat(folder, name, target, sizeof target);
    if (length >= 0) put_bytes(out, T_TARGET, target, (size_t)length);
}

void do_stat(const struct request *request) {
    struct buffer fields = {0};
    struct stat about;
    int flags = request->numbers[T_FLAGS] & FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
    if (fstatat(AT_FDCWD, request->path, &about, flags)) fail_with(errno);
    put_stat(&fields, &about);
    if (S_ISLNK(about.st_mode)) put_target(&fields, AT_FDCWD, request->path);
    tell(F_END, &fields);
}

void do_list(const struct request *request) {
    int fd = open(request->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) fail_with(errno);
    for (struct dirent *entry; errno = 0, (entry = readdir(folder));) {
        struct buffer fields = {0};
        struct stat about;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        /* It may have been removed meanwhile. */
        if (fstatat(fd, entry->d_name, &about, AT_SYMLINK_NOFOLLOW)) continue;
        put_text(&fields, T_PATH, entry->d_name);
        put_stat(&fields, &about);
        if (S_ISLNK(about.st_mode)) put_target(&fields, fd, entry->d_name);
        send_bytes(buffer_head(&fields), buffer_length(&fields));
        buffer_free(&fields);
    }
    if (errno) fail_with(errno);
    tell(F_END, NULL);
}

bool make_parents(const char *path, const struct request *owner) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", path);
    for (char *slash = above; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        if (!mkdir(above, 0755)) {
            uid_t uid = has(owner, T_UID) ? (uid_t)owner->numbers[T_UID] : 0;
            gid_t gid = has(owner, T_GID) ? (gid_t)owner->numbers[T_GID] : 0;
            if ((uid || gid) && lchown(above, uid, gid)) return false;
        } else if (errno != EEXIST) {
            return false;
        }
        *slash = '/';
    }
    return true;
}

bool apply(int fd, const struct request *request) {
    uid_t uid = has(request, T_UID) ? (uid_t)request->numbers[T_UID] : (uid_t)-1;
    gid_t gid = has(request, T_GID) ? (gid_t)request->numbers[T_GID] : (gid_t)-1;
    /* The owner first: changing it takes set-user-ID bits away. */
    if ((has(request, T_UID) || has(request, T_GID)) && fchown(fd, uid, gid)) return false;
    if (has(request, T_MODE) && fchmod(fd, request->numbers[T_MODE] & 07777)) return false;
    if (!has(request, T_MTIME_NS)) return true;
    int64_t ns = (int64_t)request->numbers[T_MTIME_NS];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {ns / 1000000000, ns % 1000000000}};
    return !futimens(fd, times);
}

void do_mkdir(const struct request *request) {
    bool parents = request->numbers[T_FLAGS] & PARENTS;
    struct stat about;
    if (parents && !make_parents(request->path, request)) fail_with(errno);
    if (mkdir(request->path, 0755)) {
        int error = errno;
        if (!parents || stat(request->path, &about) || !S_ISDIR(about.st_mode)) fail_with(error);
    } else {
        int fd = open(request->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || !apply(fd, request)) fail_with(errno);
    }
    tell(F_END, NULL);
}

void do_link(const struct request *request) {
    if (!request->target) fail_with(EINVAL);
    if (symlink(request->target, request->path)) fail_with(errno);
    uid_t uid = has(request, T_UID) ? (uid_t)request->numbers[T_UID] : (uid_t)-1;
    gid_t gid = has(request, T_GID) ? (gid_t)request->numbers[T_GID] : (gid_t)-1;
    if (lchown(request->path, uid, gid)) fail_with(errno);
    tell(F_END, NULL);
}

void do_change(const struct request *request) {
    int flags = request->numbers[T_FLAGS] & FOLLOW ? 0 : O_NOFOLLOW;
    int fd = open(request->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
    if (fd < 0 || !apply(fd, request)) fail_with(errno);
    tell(F_END, NULL);
}
