#include "conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "loop.h"
#include "requests.h"

enum {
    READ_BYTES = 64 << 10,
    OUT_FULL = 256 << 10, /* a host that does not read is not answered further */
    ROUND = 4,            /* data frames of one channel before the next has its turn */
};

struct conn {
    struct watch watch;
    bool stream; /* it has no end: hosts come and go on it */
    bool greeted, dead;
    struct buffer in, out;
    struct channel *channels;
    unsigned count;
};

static struct watch listener = {.fd = -1};
static struct conn conns[MAX_CONNECTIONS];

static struct conn *conn_make(int fd) {
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        struct conn *conn = &conns[i];
        if (conn->watch.fd >= 0) continue;
        loop_add(&conn->watch, fd);
        return conn;
    }
    return NULL;
}

void conn_begin(void) {
    for (int i = 0; i < MAX_CONNECTIONS; i++) conns[i].watch.fd = -1;
    int listens = 0;
    socklen_t size = sizeof listens;
    getsockopt(LISTEN_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    fcntl(LISTEN_FD, F_SETFD, FD_CLOEXEC);
    fcntl(LISTEN_FD, F_SETFL, fcntl(LISTEN_FD, F_GETFL) | O_NONBLOCK);
    if (listens)
        loop_add(&listener, LISTEN_FD);
    else
        conn_make(LISTEN_FD)->stream = true;
}

/* The kernel gives pid 0 to a process that is in no namespace below: that is the host. */
static bool is_host(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.pid == 0;
}

static void accept_all(void) {
    while (listener.readable) {
        int fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            listener.readable = errno == EINTR || errno == ECONNABORTED;
        else if (!is_host(fd) || !conn_make(fd))
            close(fd);
    }
}

static void drop_channels(struct conn *conn) {
    while (conn->channels) {
        struct channel *channel = conn->channels;
        conn->channels = channel->next;
        channel->kind->gone(channel);
        free(channel);
    }
    conn->count = 0;
}

static void conn_close(struct conn *conn) {
    drop_channels(conn);
    buffer_free(&conn->in);
    buffer_free(&conn->out);
    loop_close(&conn->watch);
    memset(conn, 0, sizeof *conn);
    conn->watch.fd = -1;
}

/* ---- channels ---- */

struct channel *channel_open(struct conn *conn, uint32_t number, const struct channel_kind *kind, void *owner) {
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel) abort();
    *channel = (struct channel){number, conn, NULL, kind, owner};
    struct channel **last = &conn->channels;
    while (*last) last = &(*last)->next;
    *last = channel;
    conn->count++;
    return channel;
}

static void channel_forget(struct channel *channel) {
    struct channel **at = &channel->conn->channels;
    while (*at != channel) at = &(*at)->next;
    *at = channel->next;
    channel->conn->count--;
    free(channel);
}

void channel_close(struct channel *channel) {
    conn_send(channel->conn, F_CLOSED, 0, channel->number, NULL, 0);
    channel_forget(channel);
}

static struct channel *channel_find(struct conn *conn, uint32_t number) {
    struct channel *channel = conn->channels;
    while (channel && channel->number != number) channel = channel->next;
    return channel;
}

/* ---- sending ---- */

struct buffer *conn_out(struct conn *conn) { return &conn->out; }

/* What the socket does not take now is kept in `out`. */
static void send_or_keep(struct conn *conn, const struct iovec *parts, int count) {
    ssize_t sent = 0;
    if (!buffer_length(&conn->out) && !conn->dead) {
        sent = writev(conn->watch.fd, parts, count);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) conn->dead = !conn->stream;
        if (sent < 0) sent = 0;
    }
    for (int i = 0; i < count; i++) {
        size_t skip = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
        buffer_append(&conn->out, (uint8_t *)parts[i].iov_base + skip, parts[i].iov_len - skip);
        sent -= (ssize_t)skip;
    }
}

void conn_send(struct conn *conn, uint8_t type, uint8_t flags, uint32_t channel, const struct iovec *parts, int count) {
    uint8_t header[HEADER_BYTES], trailer = TRAILER;
    struct iovec all[6] = {{header, sizeof header}};
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        all[i + 1] = parts[i];
        length += parts[i].iov_len;
    }
    all[count + 1] = (struct iovec){&trailer, 1};
    frame_header(header, type, flags, channel, (uint32_t)length);
    send_or_keep(conn, all, count + 2);
}

void conn_error(struct conn *conn, uint32_t channel, int number, const char *stage) {
    size_t mark = frame_begin(&conn->out, F_ERROR, 0, channel);
    put_number(&conn->out, T_ERRNO, (uint64_t)number);
    put_text(&conn->out, T_STAGE, stage);
    frame_end(&conn->out, mark);
}

static void flush(struct conn *conn) {
    while (conn->watch.writable && buffer_length(&conn->out)) {
        ssize_t sent = write(conn->watch.fd, buffer_head(&conn->out), buffer_length(&conn->out));
        if (sent >= 0) {
            buffer_take(&conn->out, (size_t)sent);
        } else if (errno == EAGAIN) {
            conn->watch.writable = false;
        } else if (errno != EINTR) {
            conn->dead = !conn->stream;
            conn->watch.writable = false;
        }
    }
}

/* ---- receiving ---- */

/* A host that begins anew on the same stream, whoever it was before. */
static bool greet(struct conn *conn, const struct frame *frame) {
    struct fields fields = fields_of(frame);
    const uint8_t *nonce = NULL;
    uint64_t version = 0;
    uint32_t nonce_length = 0;
    for (struct field field; field_next(&fields, &field);) {
        if (field.tag == T_NONCE) nonce = field.bytes, nonce_length = field.length;
        if (field.tag == T_VERSION) version = field_number(&fields, &field);
    }
    if (fields.bad || version != PROTOCOL_VERSION || nonce_length > 64) return false;
    drop_channels(conn);
    conn->greeted = true;
    request_hello(conn, nonce, nonce_length);
    return true;
}

static bool dispatch(struct conn *conn, const struct frame *frame) {
    if (frame->type == F_HELLO) return greet(conn, frame);
    if (!conn->greeted) return false;
    if (frame->type == F_PING) {
        struct iovec echo = {(void *)frame->payload, frame->length};
        if (frame->length > 64) return false;
        conn_send(conn, F_PONG, 0, frame->channel, &echo, 1);
        return true;
    }
    struct channel *channel = channel_find(conn, frame->channel);
    if (frame->type < F_DATA) {
        if (channel || conn->count >= MAX_CHANNELS || !frame->channel) return false;
        return request_open(conn, frame);
    }
    /* The channel may have been closed while the frame was on its way. */
    if (!channel) return frame->type <= F_CLOSE;
    if (frame->type != F_CLOSE) return channel->kind->frame(channel, frame);
    channel->kind->gone(channel);
    channel_close(channel);
    return true;
}

/* A socket is closed; on a stream the next host says hello. */
static void hang_up(struct conn *conn) {
    conn->dead = !conn->stream;
    conn->greeted = false;
    drop_channels(conn);
}

/* Whether there were any: they may have made room for more output of commands. */
static bool take_frames(struct conn *conn) {
    bool any = false;
    while (!conn->dead && buffer_length(&conn->in) && buffer_length(&conn->out) < OUT_FULL) {
        struct frame frame;
        long taken = frame_parse(buffer_head(&conn->in), buffer_length(&conn->in), &frame);
        if (!taken) break;
        bool good = taken > 0 && (frame.type == F_NOTHING || dispatch(conn, &frame));
        if (!good) hang_up(conn);
        buffer_take(&conn->in, (size_t)labs(taken));
        any = true;
    }
    return any;
}

static void receive(struct conn *conn) {
    if (!conn->watch.readable || buffer_length(&conn->out) >= OUT_FULL) return;
    uint8_t *space = buffer_reserve(&conn->in, READ_BYTES);
    ssize_t got = read(conn->watch.fd, space, READ_BYTES);
    if (got > 0)
        conn->in.end += (size_t)got;
    else if (got < 0 && errno == EAGAIN)
        conn->watch.readable = false;
    else if (conn->stream)
        conn->watch.readable = got < 0 && errno == EINTR;
    else if (got == 0 || errno != EINTR)
        conn->dead = true;
    buffer_take(&conn->in, 0);
}

/* Data only while nothing waits to be sent: then what is sent comes straight from the rings. */
static bool pull_channels(struct conn *conn) {
    bool more = false;
    for (struct channel *channel = conn->channels, *next; channel; channel = next) {
        next = channel->next;
        for (int i = 0; i < ROUND && !buffer_length(&conn->out); i++)
            if (!channel->kind->pull(channel)) break;
            else more = true;
    }
    return more;
}

static bool step_one(struct conn *conn) {
    flush(conn);
    receive(conn);
    bool more = take_frames(conn);
    flush(conn);
    more |= !conn->dead && pull_channels(conn);
    flush(conn);
    if (conn->dead) {
        conn_close(conn);
        return false;
    }
    bool can_read = conn->watch.readable && buffer_length(&conn->out) < OUT_FULL;
    return more || can_read || (conn->watch.writable && buffer_length(&conn->out));
}

bool conn_step(void) {
    bool more = false;
    accept_all();
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (conns[i].watch.fd >= 0) more |= step_one(&conns[i]);
    return more;
}
