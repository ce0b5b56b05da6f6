/* The process between the first one and a command: everything below it is the command's tree. */
#ifndef DSEC_SUPERVISOR_H
#define DSEC_SUPERVISOR_H
#include <stdint.h>
#include <sys/types.h>

/* What a command is started with; descriptors are the command's ends. */
struct launch {
    char **argv, **env;
    const char *cwd, *user;
    int in, out, err;
    int tty; /* the terminal's master, or -1; then in, out and err are its slave */
};

enum report_kind { STARTED = 1, FAILED = 2, ENDED = 3 };

/* From the supervisor, a message each on a sequenced-packet socket. */
struct report {
    uint32_t kind;
    int32_t pid, number; /* FAILED: errno */
    int32_t status;      /* as wait(2) has it */
    uint64_t cpu_us, peak_bytes;
    char stage[16];
};

/* To the supervisor: a signal for the command's first process. */
struct order {
    int32_t number;
};

/* Start one; its pid or -1. `socket` is the first process's end of the pair. */
pid_t supervise(const struct launch *launch, int *socket);

#endif
