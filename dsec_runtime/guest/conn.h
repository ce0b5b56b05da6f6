/* Connections of the host, and the channels on them. */
#ifndef DSEC_CONN_H
#define DSEC_CONN_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "frame.h"

struct conn;
struct channel;

struct channel_kind {
    /* A frame for it; false when the host broke the rules, which ends the connection. */
    bool (*frame)(struct channel *channel, const struct frame *frame);
    /* Send one frame if there is something to send; whether there was. */
    bool (*pull)(struct channel *channel);
    /* The host has gone or closed it. The channel is freed afterwards. */
    void (*gone)(struct channel *channel);
};

struct channel {
    uint32_t number;
    struct conn *conn;
    struct channel *next;
    const struct channel_kind *kind;
    void *owner;
};

/* Listen on LISTEN_FD, or speak on it when it is no listening socket. */
void conn_begin(void);
/* Do what can be done; true when more could be done at once. */
bool conn_step(void);

struct channel *channel_open(struct conn *conn, uint32_t number, const struct channel_kind *kind, void *owner);
/* Tell the host (F_CLOSED) and forget it; `gone` is not called. */
void channel_close(struct channel *channel);

/* For frames of fields: where to put them. Sent with the next step. */
struct buffer *conn_out(struct conn *conn);
void conn_send(struct conn *conn, uint8_t type, uint8_t flags, uint32_t channel, const struct iovec *parts, int count);
void conn_error(struct conn *conn, uint32_t channel, int number, const char *stage);

#endif
