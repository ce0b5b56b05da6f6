#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"

enum { PASSES = 32 };

struct process {
    pid_t pid, parent;
    bool below;
};
struct snapshot {
    struct process *all;
    size_t count, room;
};

static pid_t parent_of(const char *pid) {
    char path[32], text[512];
    snprintf(path, sizeof path, "%.16s/stat", pid);
    int fd = openat(settings.proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return -1;
    text[got] = 0;
    /* pid (name) state parent: the name may hold anything, also brackets. */
    char *after = strrchr(text, ')');
    int parent;
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

static int by_pid(const void *one, const void *other) {
    pid_t a = ((const struct process *)one)->pid, b = ((const struct process *)other)->pid;
    return (a > b) - (a < b);
}

static void look(struct snapshot *found) {
    found->count = 0;
    int fd = openat(settings.proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        pid_t pid = atoi(entry->d_name), parent = pid > 0 ? parent_of(entry->d_name) : -1;
        if (parent < 0) continue;
        if (found->count == found->room) {
            found->room = found->room ? found->room * 2 : 64;
            found->all = realloc(found->all, found->room * sizeof *found->all);
            if (!found->all) abort();
        }
        found->all[found->count++] = (struct process){pid, parent, false};
    }
    closedir(folder);
    qsort(found->all, found->count, sizeof *found->all, by_pid);
}

static void mark_below(struct snapshot *found, pid_t root) {
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < found->count; i++) {
            struct process *one = &found->all[i], key = {.pid = one->parent};
            if (one->below) continue;
            struct process *parent = bsearch(&key, found->all, found->count, sizeof key, by_pid);
            one->below = one->parent == root || (parent && parent->below);
            more |= one->below;
        }
    }
}

static void signal_below(const struct snapshot *found, int number) {
    for (size_t i = 0; i < found->count; i++)
        if (found->all[i].below) kill(found->all[i].pid, number);
}

/* Whether one is below in `now` that was not in `before`. */
static bool has_new(const struct snapshot *now, const struct snapshot *before) {
    for (size_t i = 0; i < now->count; i++) {
        if (!now->all[i].below) continue;
        const struct process *old = bsearch(&now->all[i], before->all, before->count, sizeof *old, by_pid);
        if (!old || !old->below) return true;
    }
    return false;
}

void tree_kill(pid_t root) {
    struct snapshot now = {0}, before = {0};
    for (int pass = 0; pass < PASSES; pass++) {
        look(&now);
        mark_below(&now, root);
        if (!has_new(&now, &before)) break;
        signal_below(&now, SIGSTOP);
        struct snapshot swapped = before;
        before = now;
        now = swapped;
    }
    signal_below(&before, SIGKILL);
    free(now.all);
    free(before.all);
}

void tree_signal(pid_t root, int number) {
    struct snapshot now = {0};
    look(&now);
    mark_below(&now, root);
    signal_below(&now, number);
    free(now.all);
}

bool tree_kill_strangers(bool (*known)(pid_t)) {
    struct snapshot now = {0};
    bool any = false;
    look(&now);
    for (size_t i = 0; i < now.count; i++) {
        pid_t pid = now.all[i].pid;
        if (now.all[i].parent != getpid() || known(pid)) continue;
        kill(pid, SIGSTOP);
        tree_kill(pid);
        kill(pid, SIGKILL);
        any = true;
    }
    free(now.all);
    return any;
}
