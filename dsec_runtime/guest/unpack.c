/* A tar stream of the host into a folder of the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "tar.h"

enum { MOST_EXTENSION = 64 << 10, OWNERS = 1 };

/* Folders get their mode and time when all is in them. */
struct folder {
    struct folder *next;
    mode_t mode;
    int64_t mtime_ns;
    char name[];
};

static int root = -1;
static const struct request *asked;
static struct folder *folders;
static uint64_t member_count;

/* ---- the stream ---- */

static const uint8_t *held;
static size_t held_length;

/* Some bytes, at most `most`; the stream must not end here. */
static size_t next_bytes(size_t most, const uint8_t **bytes) {
    if (!held_length) held_length = receive_bytes(&held);
    if (!held_length) fail_with(EBADMSG);
    size_t length = held_length < most ? held_length : most;
    *bytes = held;
    held += length;
    held_length -= length;
    return length;
}

static void read_exactly(void *into, size_t length) {
    const uint8_t *bytes;
    for (size_t done = 0, part; done < length; done += part) {
        part = next_bytes(length - done, &bytes);
        memcpy((uint8_t *)into + done, bytes, part);
    }
}

static void skip(uint64_t length) {
    const uint8_t *bytes;
    while (length) length -= next_bytes(length < BLOCK ? (size_t)length : BLOCK, &bytes);
}

static uint64_t padding(uint64_t size) { return (BLOCK - size % BLOCK) % BLOCK; }

/* ---- names ---- */

/* Below the folder: no leading slashes, and nothing that leads out. */
static const char *cleaned(char *name) {
    while (*name == '/') name++;
    while (name[0] == '.' && name[1] == '/') name += 2;
    for (size_t length = strlen(name); length && name[length - 1] == '/';) name[--length] = 0;
    for (const char *at = name; at; at = (at = strchr(at, '/')) ? at + 1 : NULL)
        if (!strncmp(at, "..", 2) && (!at[2] || at[2] == '/')) fail_with(EINVAL);
    return *name && strcmp(name, ".") ? name : NULL;
}

static void make_above(const char *name) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", name);
    for (char *slash = above; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        if (mkdirat(root, above, 0755) && errno != EEXIST) fail_with(errno);
    }
}

static uid_t uid_of(const struct member *member) {
    if (has(asked, T_UID)) return (uid_t)asked->numbers[T_UID];
    return asked->numbers[T_FLAGS] & OWNERS ? member->uid : 0;
}

static gid_t gid_of(const struct member *member) {
    if (has(asked, T_GID)) return (gid_t)asked->numbers[T_GID];
    return asked->numbers[T_FLAGS] & OWNERS ? member->gid : 0;
}

static void set_times(int fd, const char *name, int64_t ns) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {ns / 1000000000, ns % 1000000000}};
    if (name ? utimensat(root, name, times, AT_SYMLINK_NOFOLLOW) : futimens(fd, times)) fail_with(errno);
}

/* ---- members ---- */

/* What is in the way goes, unless it is a folder and a folder is to be there. */
static void make_way(const char *name) {
    if (unlinkat(root, name, 0) && errno != ENOENT && errno != EISDIR) fail_with(errno);
}

static void unpack_file(const char *name, const struct member *member) {
    const uint8_t *bytes;
    make_way(name);
    int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) fail_with(errno);
    for (uint64_t left = member->size; left;) {
        size_t length = next_bytes(left < SSIZE_MAX ? (size_t)left : SSIZE_MAX, &bytes);
        for (size_t done = 0; done < length;) {
            ssize_t put = write(fd, bytes + done, length - done);
            if (put < 0) fail_with(errno);
            done += (size_t)put;
        }
        left -= length;
    }
    skip(padding(member->size));
    if (fchown(fd, uid_of(member), gid_of(member)) || fchmod(fd, member->mode)) fail_with(errno);
    set_times(fd, NULL, member->mtime_ns);
    close(fd);
}

static void unpack_folder(const char *name, const struct member *member) {
    struct stat about;
    struct folder *later = malloc(sizeof *later + strlen(name) + 1);
    if (!later) fail_with(ENOMEM);
    if (fstatat(root, name, &about, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(about.st_mode)) {
        make_way(name);
        if (mkdirat(root, name, 0700)) fail_with(errno);
    }
    if (fchownat(root, name, uid_of(member), gid_of(member), AT_SYMLINK_NOFOLLOW)) fail_with(errno);
    *later = (struct folder){folders, member->mode, member->mtime_ns};
    strcpy(later->name, name);
    folders = later;
}

static void unpack_symlink(const char *name, const struct member *member) {
    make_way(name);
    if (symlinkat(member->target, root, name)) fail_with(errno);
    if (fchownat(root, name, uid_of(member), gid_of(member), AT_SYMLINK_NOFOLLOW)) fail_with(errno);
    set_times(-1, name, member->mtime_ns);
}

static void unpack_link(const char *name, struct member *member) {
    const char *target = cleaned(member->target);
    if (!target) fail_with(EINVAL);
    if (!strcmp(target, name)) return;
    make_way(name);
    if (linkat(root, target, root, name, 0)) fail_with(errno);
}

static void unpack(struct member *member) {
    const char *name = cleaned(member->name);
    member_count++;
    if (name) make_above(name);
    if (member->type == '0' || member->type == '7') {
        if (!name) fail_with(EINVAL);
        unpack_file(name, member);
        return;
    }
    if (name && member->type == '5') unpack_folder(name, member);
    if (name && member->type == '2') unpack_symlink(name, member);
    if (name && member->type == '1') unpack_link(name, member);
    /* Devices and pipes are not made; only files have content. */
    skip(member->type == '1' || member->type == '2' || member->type == '5' ? 0 : member->size + padding(member->size));
}

/* ---- extensions ---- */

static char *read_extension(uint64_t size) {
    if (size > MOST_EXTENSION) fail_with(ENAMETOOLONG);
    char *text = calloc(1, (size_t)size + 1);
    if (!text) fail_with(ENOMEM);
    read_exactly(text, (size_t)size);
    skip(padding(size));
    return text;
}

static void overlay(struct member *member, const struct member *extension, uint64_t given) {
    if (given & GIVES_NAME) memcpy(member->name, extension->name, PATH_MAX);
    if (given & GIVES_TARGET) memcpy(member->target, extension->target, PATH_MAX);
    if (given & GIVES_SIZE) member->size = extension->size;
    if (given & GIVES_MTIME) member->mtime_ns = extension->mtime_ns;
    if (given & GIVES_UID) member->uid = extension->uid;
    if (given & GIVES_GID) member->gid = extension->gid;
}

/* Whether the member was an extension of the one that follows. */
static bool take_extension(const struct member *member, struct member *extension, uint64_t *given) {
    if (!strchr("xgLK", member->type)) return false;
    char *text = read_extension(member->size);
    if (member->type == 'x' && !tar_extend(text, member->size, extension, given)) fail_with(EBADMSG);
    if (member->type == 'L' && strlen(text) < PATH_MAX) *given |= GIVES_NAME, strcpy(extension->name, text);
    if (member->type == 'K' && strlen(text) < PATH_MAX) *given |= GIVES_TARGET, strcpy(extension->target, text);
    free(text);
    return true;
}

static bool is_zero(const uint8_t *block) {
    static const uint8_t zeros[BLOCK];
    return !memcmp(block, zeros, BLOCK);
}

void do_unpack(const struct request *request) {
    static struct member member, extension;
    uint8_t block[BLOCK];
    uint64_t given = 0;
    struct buffer fields = {0};
    asked = request;
    if (!make_parents(request->path, request)) fail_with(errno);
    if (mkdir(request->path, 0755) && errno != EEXIST) fail_with(errno);
    root = open(request->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) fail_with(errno);
    tell(F_REPLY, NULL);
    for (;;) {
        read_exactly(block, sizeof block);
        if (is_zero(block)) break;
        if (!tar_read(block, &member)) fail_with(EBADMSG);
        if (take_extension(&member, &extension, &given)) continue;
        overlay(&member, &extension, given);
        given = 0;
        unpack(&member);
    }
    /* Padding may follow the end. */
    const uint8_t *rest;
    while (receive_bytes(&rest)) {}
    for (struct folder *folder = folders; folder; folder = folder->next) {
        if (fchmodat(root, folder->name, folder->mode, 0)) fail_with(errno);
        set_times(-1, folder->name, folder->mtime_ns);
    }
    put_number(&fields, T_LENGTH, member_count);
    tell(F_END, &fields);
}
