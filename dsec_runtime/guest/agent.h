/* What the parts of the agent share: settings from its arguments, and files opened at its start. */
#ifndef DSEC_AGENT_H
#define DSEC_AGENT_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum {
    LISTEN_FD = 3,
    MAX_CONNECTIONS = 16,
    MAX_CHANNELS = 1024,      /* of one connection */
    MAX_COMMANDS = 512,       /* whose processes live */
    MAX_KEPT = 1024,          /* commands known, ended ones too */
    MAX_KEPT_BYTES = 16 << 20, /* of output of ended ones */
    MAX_WORKERS = 128,
    WINDOW = 1 << 20,         /* bytes that a sender may be ahead of the acknowledged offset */
};

enum feature { HAS_OWN_UID = 1, HAS_LANDLOCK = 2 };

struct settings {
    uint32_t uid;           /* of the agent itself */
    uint64_t capabilities;  /* the most that commands may hold */
    int landlock;           /* 0 no, 1 where it is there, 2 required */
    int oom_score_adj;      /* the least of commands */
    bool no_new_privileges; /* of commands */
    uint32_t features;      /* found at the start: enum feature */
    struct rlimit files; /* of commands; the agent itself takes more */
    /* Opened before any command ran, so that none could put something else in their place. */
    int proc, null, pts, random;
};

extern struct settings settings;

#endif
