/* Users of the sandbox, by its own /etc/passwd and /etc/group. */
#ifndef DSEC_USERS_H
#define DSEC_USERS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MAX_GROUPS = 64 };

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[MAX_GROUPS];
    int group_count;
    char name[64];
    char home[256];
};

/* `text` is NAME, UID, NAME:GROUP or UID:GID, empty for root. Numbers need no entry. False when a
 * name is not there. The files are read with bounds, and only when they are regular. */
bool user_find(const char *text, struct user *user);

#endif
