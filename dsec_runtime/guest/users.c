#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 20 };

/* The whole of a regular file, with a zero byte after it; empty when there is none. */
static char *whole_file(const char *path) {
    char *text = calloc(1, 1);
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return text;
    if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_size <= MAX_FILE) {
        char *more = realloc(text, (size_t)about.st_size + 1);
        if (more) text = more;
        ssize_t got = more ? pread(fd, text, (size_t)about.st_size, 0) : 0;
        text[got > 0 ? got : 0] = 0;
    }
    close(fd);
    return text;
}

static bool number(const char *text, uint32_t *value) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long long found = strtoull(text, &end, 10);
    if (errno || *end || found >= UINT32_MAX) return false;
    *value = (uint32_t)found;
    return true;
}

/* Cut a line at its colons; how many parts there are. */
static int split(char *line, char *parts[], int most) {
    int count = 0;
    for (char *part; count < most && (part = strsep(&line, ":"));) parts[count++] = part;
    return count;
}

/* The line of /etc/passwd of this name or, when it is NULL, of this number. */
static void find_passwd(const char *name, struct user *user, bool *found) {
    char *text = whole_file("/etc/passwd"), *rest = text, *line, *parts[7];
    while (!*found && (line = strsep(&rest, "\n"))) {
        uint32_t uid, gid;
        if (split(line, parts, 7) < 6 || !number(parts[2], &uid) || !number(parts[3], &gid)) continue;
        if (name ? strcmp(name, parts[0]) : uid != user->uid) continue;
        user->uid = uid;
        user->gid = gid;
        snprintf(user->name, sizeof user->name, "%s", parts[0]);
        snprintf(user->home, sizeof user->home, "%s", parts[5]);
        *found = true;
    }
    free(text);
}

static bool is_member(char *members, const char *name) {
    for (char *member; (member = strsep(&members, ","));)
        if (!strcmp(member, name)) return true;
    return false;
}

/* The group of this name (when it is not NULL), and all groups that list the user. */
static bool read_groups(const char *name, struct user *user) {
    char *text = whole_file("/etc/group"), *rest = text, *line, *parts[4];
    bool found = false;
    while ((line = strsep(&rest, "\n"))) {
        uint32_t gid;
        int count = split(line, parts, 4);
        if (count < 3 || !number(parts[2], &gid)) continue;
        if (name && !found && !strcmp(name, parts[0])) {
            user->gid = gid;
            found = true;
        }
        if (!name && count == 4 && *user->name && is_member(parts[3], user->name) && user->group_count < MAX_GROUPS)
            user->groups[user->group_count++] = gid;
    }
    free(text);
    return found;
}

bool user_find(const char *text, struct user *user) {
    memset(user, 0, sizeof *user);
    strcpy(user->home, "/");
    char *copy = strdup(text && *text ? text : "0"), *group = copy;
    if (!copy) return false;
    char *name = strsep(&group, ":");
    bool found = false, numeric = number(name, &user->uid);
    find_passwd(numeric ? NULL : name, user, &found);
    bool known = found || numeric;
    /* A group that is asked for stands alone, as with OCI runtimes. */
    if (known && group && !number(group, &user->gid)) known = read_groups(group, user);
    if (known && !group) read_groups(NULL, user);
    free(copy);
    return known;
}
