/* What changes in a folder, or in a tree, as it happens. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "helper.h"

enum { RECURSIVE = 1, MOST_FOLDERS = 8192, DEEPEST = 100 };

static const uint32_t EVENTS = IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MODIFY |
                               IN_MOVE_SELF | IN_MOVED_FROM | IN_MOVED_TO;

static int watches = -1;
static bool recursive;
/* By watch descriptor, which the kernel counts up: the folder's path below the one asked for. */
static char **names;
static int name_count;

static void keep_name(int watch, const char *name) {
    if (watch >= name_count) {
        int count = watch + 64;
        names = realloc(names, (size_t)count * sizeof *names);
        if (!names) fail_with(ENOMEM);
        memset(names + name_count, 0, (size_t)(count - name_count) * sizeof *names);
        name_count = count;
    }
    free(names[watch]);
    names[watch] = strdup(name);
}

static bool add(const char *path, const char *name, int depth) {
    char below[PATH_MAX], below_name[PATH_MAX];
    static int count;
    if (++count > MOST_FOLDERS) return errno = ENOSPC, false;
    int watch = inotify_add_watch(watches, path, EVENTS | IN_EXCL_UNLINK | (depth ? IN_DONT_FOLLOW : 0));
    if (watch < 0) return depth && (errno == ENOENT || errno == ENOTDIR);
    keep_name(watch, name);
    DIR *folder = recursive && depth < DEEPEST ? opendir(path) : NULL;
    bool done = true;
    for (struct dirent *entry; done && folder && (entry = readdir(folder));) {
        if (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= PATH_MAX) continue;
        snprintf(below_name, sizeof below_name, "%s%s%s", name, *name ? "/" : "", entry->d_name);
        done = add(below, below_name, depth + 1);
    }
    if (folder) closedir(folder);
    return done;
}

static void tell_event(const char *path, const struct inotify_event *event) {
    char name[PATH_MAX + NAME_MAX + 2], whole[2 * PATH_MAX + NAME_MAX];
    struct buffer fields = {0};
    const char *folder = event->wd >= 0 && event->wd < name_count && names[event->wd] ? names[event->wd] : "";
    const char *entry = event->len ? event->name : "";
    snprintf(name, sizeof name, "%s%s%s", folder, *folder && *entry ? "/" : "", entry);
    /* A new folder may have been filled before it was watched: the event of its creation is the
     * host's reason to look. */
    if (recursive && (event->mask & IN_ISDIR) && (event->mask & (IN_CREATE | IN_MOVED_TO))) {
        snprintf(whole, sizeof whole, "%s/%s", path, name);
        if (!add(whole, name, 1)) fail_with(errno);
    }
    put_text(&fields, T_PATH, name);
    put_number(&fields, T_EVENT, event->mask);
    send_bytes(buffer_head(&fields), buffer_length(&fields));
    buffer_free(&fields);
}

void do_watch(const struct request *request) {
    static _Alignas(struct inotify_event) char bytes[16 << 10];
    recursive = request->numbers[T_FLAGS] & RECURSIVE;
    watches = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watches < 0 || !add(request->path, "", 0)) fail_with(errno);
    tell(F_REPLY, NULL);
    struct pollfd waits[2] = {{watches, POLLIN, 0}, {helper_socket(), POLLIN, 0}};
    for (;;) {
        poll(waits, 2, -1);
        while (hear(false, NULL, NULL) != HEARD_NOTHING) {}
        ssize_t got = read(watches, bytes, sizeof bytes);
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const void *)(bytes + at);
            if (!(event->mask & IN_IGNORED)) tell_event(request->path, event);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
}
