/* Extended attributes (ACLs and capabilities are such) of a copy, after those of its original. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "helper.h"

static char names[XATTR_LIST_MAX], value[XATTR_SIZE_MAX];

/* Those of the node (`trusted.`) are not ours; what the other file system does not have stays behind. */
static void copy_all(int from, int to) {
    ssize_t length = flistxattr(from, names, sizeof names);
    if (length < 0 && errno != ENOTSUP) fail_with(errno);
    for (char *name = names; length > 0 && name < names + length; name += strlen(name) + 1) {
        if (!strncmp(name, "trusted.", 8)) continue;
        ssize_t size = fgetxattr(from, name, value, sizeof value);
        if (size < 0 && errno == ENODATA) continue;
        if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0))
            if (errno != ENOTSUP) fail_with(errno);
    }
}

static int open_entry(int folder, const char *name) {
    return openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Links have none that a sandbox could set; what came or went meanwhile is passed over. */
static void copy_entry(int from_folder, const char *from_name, int to_folder, const char *to_name) {
    struct stat about, copied;
    int from = open_entry(from_folder, from_name), to = from < 0 ? -1 : open_entry(to_folder, to_name);
    if (to >= 0 && !fstat(from, &about) && !fstat(to, &copied) && (about.st_mode & S_IFMT) == (copied.st_mode & S_IFMT)) {
        copy_all(from, to);
        DIR *entries = S_ISDIR(about.st_mode) ? fdopendir(dup(from)) : NULL;
        for (struct dirent *next; entries && (next = readdir(entries));)
            if (strcmp(next->d_name, ".") && strcmp(next->d_name, "..")) copy_entry(from, next->d_name, to, next->d_name);
        if (entries) closedir(entries);
    }
    if (from >= 0) close(from);
    if (to >= 0) close(to);
}

void copy_attributes(const char *from, const char *to) { copy_entry(AT_FDCWD, from, AT_FDCWD, to); }
