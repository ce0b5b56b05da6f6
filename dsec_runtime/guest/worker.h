/* Helpers: a process for each file operation or forwarded port, as either may block. */
#ifndef DSEC_WORKER_H
#define DSEC_WORKER_H
#include <stdbool.h>
#include <sys/types.h>

#include "conn.h"

bool worker_start(struct conn *conn, const struct frame *frame);
bool worker_reaped(pid_t pid);
bool worker_knows(pid_t pid);

#endif
