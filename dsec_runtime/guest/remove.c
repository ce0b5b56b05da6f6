/* Removing trees, also those made so deep that no path reaches their end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"

enum { RECURSIVE = 1, MISSING_OK = 2, DEEPEST = 200 };

static int top = -1;      /* the folder that is being removed */
static unsigned raised;   /* folders moved up to it from too deep below */

static void remove_at(int folder, const char *name, int depth);

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

static void empty(int fd, int depth) {
    DIR *folder = fdopendir(fd);
    if (!folder) fail_with(errno);
    /* Entries that appear or go meanwhile may be skipped: look again until there are none. */
    for (bool any = true; any;) {
        any = false;
        rewinddir(folder);
        for (struct dirent *entry; errno = 0, (entry = readdir(folder));) {
            if (is_dots(entry->d_name)) continue;
            any = true;
            remove_at(fd, entry->d_name, depth);
        }
        if (errno) fail_with(errno);
    }
    closedir(folder);
}

static void remove_at(int folder, const char *name, int depth) {
    char up[40];
    if (!unlinkat(folder, name, 0) || errno == ENOENT) return;
    if (errno != EISDIR) fail_with(errno);
    if (depth > DEEPEST) {
        snprintf(up, sizeof up, ".dsec-removing-%d-%u", getpid(), raised++);
        if (renameat(folder, name, top, up)) fail_with(errno);
        return;
    }
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return;
    if (fd < 0) fail_with(errno);
    if (top < 0) top = dup(fd);
    empty(fd, depth + 1);
    if (unlinkat(folder, name, AT_REMOVEDIR) && errno != ENOENT) fail_with(errno);
}

void remove_tree(const char *path) { remove_at(AT_FDCWD, path, 0); }

void do_remove(const struct request *request) {
    uint64_t flags = request->numbers[T_FLAGS];
    struct stat about;
    if (lstat(request->path, &about)) {
        if (errno != ENOENT || !(flags & MISSING_OK)) fail_with(errno);
    } else if (!S_ISDIR(about.st_mode)) {
        if (unlink(request->path)) fail_with(errno);
    } else if (!(flags & RECURSIVE)) {
        if (rmdir(request->path)) fail_with(errno);
    } else {
        remove_tree(request->path);
    }
    tell(F_END, NULL);
}
