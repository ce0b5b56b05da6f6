/* A tree of the sandbox as a tar stream to the host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "tar.h"

enum { DEEPEST = 400, READ_BYTES = 64 << 10 };

struct seen {
    dev_t device;
    ino_t inode;
    char *name;
};

static struct seen *links;
static size_t link_count, link_room;
static uint64_t member_count;
bool pack_demands_all;

static void pack(int folder, const char *entry, const char *name, int depth);

/* The name under which a file with several names was packed first, or NULL when this is it. */
static const char *first_name(const struct stat *about, const char *name) {
    for (size_t i = 0; i < link_count; i++)
        if (links[i].inode == about->st_ino && links[i].device == about->st_dev) return links[i].name;
    if (link_count == link_room) {
        link_room = link_room ? link_room * 2 : 64;
        links = realloc(links, link_room * sizeof *links);
        if (!links) fail_with(ENOMEM);
    }
    links[link_count++] = (struct seen){about->st_dev, about->st_ino, strdup(name)};
    return NULL;
}

/* Exactly `size` bytes, also when the file changes meanwhile, as tar programs do. */
static void pack_content(int fd, uint64_t size) {
    static uint8_t bytes[READ_BYTES];
    for (uint64_t left = (size + BLOCK - 1) / BLOCK * BLOCK, at = 0; left;) {
        size_t wanted = left < sizeof bytes ? (size_t)left : sizeof bytes;
        ssize_t got = at < size ? read(fd, bytes, size - at < wanted ? (size_t)(size - at) : wanted) : 0;
        if (got < 0) fail_with(errno);
        if (!got) memset(bytes, 0, (size_t)(got = (ssize_t)wanted));
        send_bytes(bytes, (size_t)got);
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
}

static void pack_file(int folder, const char *entry, struct member *member, const struct stat *about) {
    const char *first = about->st_nlink > 1 ? first_name(about, member->name) : NULL;
    if (first) {
        member->type = '1';
        snprintf(member->target, sizeof member->target, "%s", first);
        tar_put(member);
        return;
    }
    int fd = openat(folder, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return;
    if (fd < 0) fail_with(errno);
    member->type = '0';
    member->size = (uint64_t)about->st_size;
    tar_put(member);
    pack_content(fd, member->size);
    close(fd);
}

static void pack_folder(int folder, const char *entry, struct member *member, int depth) {
    char name[PATH_MAX];
    int fd = openat(folder, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return;
    DIR *entries = fd < 0 || depth > DEEPEST ? NULL : fdopendir(fd);
    if (!entries) fail_with(depth > DEEPEST ? ENAMETOOLONG : errno);
    member->type = '5';
    tar_put(member);
    for (struct dirent *next; errno = 0, (next = readdir(entries));) {
        if (!strcmp(next->d_name, ".") || !strcmp(next->d_name, "..")) continue;
        int length = snprintf(name, sizeof name, "%s/%s", member->name, next->d_name);
        if (length < 0 || (size_t)length >= sizeof name) fail_with(ENAMETOOLONG);
        pack(fd, next->d_name, name, depth + 1);
    }
    if (errno) fail_with(errno);
    closedir(entries);
}

static void pack(int folder, const char *entry, const char *name, int depth) {
    struct stat about;
    struct member *member = calloc(1, sizeof *member);
    if (!member) fail_with(ENOMEM);
    if (!fstatat(folder, entry, &about, AT_SYMLINK_NOFOLLOW)) {
        snprintf(member->name, sizeof member->name, "%s", name);
        member->mode = about.st_mode;
        member->uid = about.st_uid;
        member->gid = about.st_gid;
        member->mtime_ns = about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
        member_count++;
        if (S_ISDIR(about.st_mode)) pack_folder(folder, entry, member, depth);
        else if (S_ISREG(about.st_mode)) pack_file(folder, entry, member, &about);
        else if (S_ISLNK(about.st_mode) && readlinkat(folder, entry, member->target, PATH_MAX - 1) >= 0) {
            member->type = '2';
            tar_put(member);
        }
        /* Sockets, pipes and devices are of this sandbox and mean nothing elsewhere. */
        else if (pack_demands_all) fail_with(EXDEV);
    } else if (errno != ENOENT || !depth) {
        fail_with(errno);
    }
    free(member);
}

void do_pack(const struct request *request) {
    struct buffer fields = {0};
    struct stat about;
    if (stat(request->path, &about)) fail_with(errno);
    /* A path that ends in a link to a folder means the folder. */
    char *real = S_ISDIR(about.st_mode) ? realpath(request->path, NULL) : request->path;
    if (!real) fail_with(errno);
    const char *slash = strrchr(real, '/');
    tell(F_REPLY, NULL);
    pack(AT_FDCWD, real, S_ISDIR(about.st_mode) ? "." : slash ? slash + 1 : real, 0);
    tar_put_end();
    put_number(&fields, T_LENGTH, member_count);
    tell(F_END, &fields);
}
