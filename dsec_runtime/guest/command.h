/* Commands as the first process sees them: their output, their end, who listens.
 *
 * Each has a supervisor (supervisor.h), below which all its processes are. command.c has their
 * life, launch.c their beginning, listen.c what the host is told of them and tells them. */
#ifndef DSEC_COMMAND_H
#define DSEC_COMMAND_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buffer.h"
#include "conn.h"
#include "loop.h"
#include "ring.h"

enum command_flag { WANTS_STDIN = 1, WANTS_PTY = 2, MERGES = 4, KILL_AT_LIMIT = 8 };
enum cause { EXITED = 1, SIGNALLED = 2, TIMED_OUT = 3, OUTPUT_LIMIT = 4, KILLED = 5 };

/* stdin's window; a host that sends more breaks the rules. */
enum { STDIN_WINDOW = 256 << 10, FOREVER_MS = 0xffffffff };

struct stream {
    struct watch watch;
    struct ring ring;
    uint64_t written;     /* all that came, also what was dropped */
    uint64_t sent, acked; /* offsets of the listener */
    uint64_t drain;       /* bytes that the end of the command still waits for */
    bool eof_sent;
};

struct command {
    struct command *next;
    char id[65];
    pid_t supervisor; /* 0 once all below it has ended */
    pid_t pid;        /* 0 until started */
    struct watch control;
    struct stream streams[2]; /* stdout, stderr */
    struct watch in;          /* of a terminal a copy of the same file */
    struct buffer in_kept;
    uint64_t in_taken, in_written, in_told;
    bool in_eof, in_gone;
    uint64_t flags, limit, keep, hold_ms, timeout_ms;
    uint64_t began_us, ended_us, deadline_ms, unheard_ms, kill_ms, drain_until_ms;
    enum cause why; /* of a kill by the agent, 0 for none */
    int wait_status;
    uint64_t cpu_us, peak_bytes;
    bool started, ended, finished; /* finished: ended and drained */
    struct channel *channel;
    bool told_start, told_end;
};

/* launch.c */
bool command_exec(struct conn *conn, const struct frame *frame);

/* listen.c */
extern const struct channel_kind command_channel;
bool command_attach(struct conn *conn, const struct frame *frame);
bool command_list(struct conn *conn, const struct frame *frame);
/* Kill a tree, and answer when nothing of it is left. */
bool command_end(struct conn *conn, const struct frame *frame);
/* The command that a request names, or NULL. */
struct command *command_named(struct fields *fields);
void command_listen(struct command *command, struct conn *conn, uint32_t number);
/* Move what the host sent towards stdin. */
void command_feed(struct command *command);

/* command.c */
bool command_forget(struct conn *conn, const struct frame *frame);
struct command *command_find(const char *id);
struct command *command_first(void);
/* Room for one more: ended ones are forgotten, oldest first, as far as needed. */
bool command_make_room(void);
void command_insert(struct command *command);
void command_remove(struct command *command);
/* Kill the whole tree; `why` counts when the command has not ended by itself. */
void command_kill(struct command *command, enum cause why);
/* Whether none of its processes is left, as far as the agent knows them. */
bool command_is_gone(const char *id);
bool command_step(void);
/* When a step is due without an event: ms, 0 for never. */
uint64_t command_due(void);
/* A child has been reaped: whether it was a supervisor. */
bool command_reaped(pid_t pid);
bool command_knows(pid_t pid);

#endif
