/* What a machine has once: its clock and its random numbers. */
#ifndef DSEC_SYSTEM_H
#define DSEC_SYSTEM_H
#include "conn.h"

bool system_clock(struct conn *conn, const struct frame *frame);
bool system_reseed(struct conn *conn, const struct frame *frame);

#endif
