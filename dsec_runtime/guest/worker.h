/* Helpers: a process for each file operation or forwarded port, as either may block.
 *
 * This is the first process's side, which passes frames on; helper.h is the other. Between them is
 * a sequenced-packet socket: a message is a frame's type, flags and payload. */
#ifndef DSEC_WORKER_H
#define DSEC_WORKER_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "conn.h"

enum { MESSAGE_DATA = 64 << 10, MESSAGE_BYTES = 2 + 8 + MESSAGE_DATA };

bool worker_start(struct conn *conn, const struct frame *frame);
void worker_step(void);
/* When a step is due without an event: ms, 0 for never. */
uint64_t worker_due(void);
bool worker_reaped(pid_t pid);
bool worker_knows(pid_t pid);

#endif
