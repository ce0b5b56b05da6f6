/* What the host may ask for: from the first frame of a channel to the part that answers it. */
#ifndef DSEC_REQUESTS_H
#define DSEC_REQUESTS_H
#include "conn.h"

void request_hello(struct conn *conn, const uint8_t *nonce, uint32_t length);
/* False when the frame breaks the rules. */
bool request_open(struct conn *conn, const struct frame *frame);

#endif
