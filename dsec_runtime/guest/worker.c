#include "worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "helper.h"
#include "loop.h"

enum {
    GRACE_MS = 2000,       /* to remove a half-written file */
    MOST_QUEUED = 16 * WINDOW, /* a window of the smallest messages, with their heads */
};

struct worker {
    struct worker *next;
    pid_t pid; /* 0 once reaped */
    struct watch watch;
    struct channel *channel;
    struct buffer queue; /* messages, each after its length */
    uint64_t kill_ms;
};

static struct worker *workers;
static unsigned count;

static void close_watch(struct worker *worker) {
    loop_close(&worker->watch);
    buffer_free(&worker->queue);
}

/* ---- from the host ---- */

static void pass_on(struct worker *worker) {
    while (worker->watch.fd >= 0 && worker->watch.writable && buffer_length(&worker->queue)) {
        uint32_t length;
        memcpy(&length, buffer_head(&worker->queue), sizeof length);
        ssize_t sent = send(worker->watch.fd, buffer_head(&worker->queue) + sizeof length, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) worker->watch.writable = false;
        else if (sent >= 0 || errno != EINTR) buffer_take(&worker->queue, sizeof length + length);
    }
}

static bool take_frame(struct channel *channel, const struct frame *frame) {
    struct worker *worker = channel->owner;
    uint32_t length = 2 + frame->length;
    uint8_t head[2] = {frame->type, frame->flags};
    bool known = frame->type == F_DATA || frame->type == F_ACK || frame->type == F_EOF;
    if (!known || length > MESSAGE_BYTES || buffer_length(&worker->queue) + length > MOST_QUEUED) return false;
    if (worker->watch.fd < 0) return true;
    buffer_append(&worker->queue, &length, sizeof length);
    buffer_append(&worker->queue, head, sizeof head);
    buffer_append(&worker->queue, frame->payload, frame->length);
    pass_on(worker);
    return true;
}

/* ---- to the host ---- */

static bool pull(struct channel *channel) {
    static uint8_t message[MESSAGE_BYTES];
    struct worker *worker = channel->owner;
    if (!worker->watch.readable) return false;
    ssize_t got = recv(worker->watch.fd, message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) worker->watch.readable = false;
    /* A reset is told once, when it left without having read all; what it said is still here. */
    if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) return errno != EAGAIN;
    if (got < 2) {
        close_watch(worker);
        worker->channel = NULL;
        channel_close(channel);
        return false;
    }
    struct iovec payload = {message + 2, (size_t)got - 2};
    conn_send(channel->conn, message[0], message[1], channel->number, &payload, 1);
    return true;
}

/* It sees the end of its socket and undoes what is half done. */
static void gone(struct channel *channel) {
    struct worker *worker = channel->owner;
    worker->channel = NULL;
    close_watch(worker);
    worker->kill_ms = now_ms() + GRACE_MS;
}

static const struct channel_kind worker_channel = {take_frame, pull, gone};

/* ---- life ---- */

bool worker_start(struct conn *conn, const struct frame *frame) {
    struct request request;
    int pair[2] = {-1, -1};
    if (!request_read(frame, &request)) return false;
    int error = !helper_can(frame->type) ? ENOSYS : count >= MAX_WORKERS ? EAGAIN : 0;
    if (!error && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) error = errno;
    pid_t pid = error ? -1 : fork();
    if (pid == 0) helper_run(frame->type, &request, pair[1]);
    if (pair[1] >= 0) close(pair[1]);
    request_free(&request);
    struct worker *worker = pid < 0 ? NULL : calloc(1, sizeof *worker);
    if (!worker) {
        if (pair[0] >= 0) close(pair[0]);
        conn_error(conn, frame->channel, error ? error : EAGAIN, error ? "worker" : "fork");
        return true;
    }
    *worker = (struct worker){.next = workers, .pid = pid};
    workers = worker;
    count++;
    loop_add(&worker->watch, pair[0]);
    worker->channel = channel_open(conn, frame->channel, &worker_channel, worker);
    return true;
}

void worker_step(void) {
    for (struct worker **at = &workers, *worker; (worker = *at);) {
        pass_on(worker);
        if (worker->pid && worker->kill_ms && now_ms() >= worker->kill_ms) {
            kill(worker->pid, SIGKILL);
            worker->kill_ms = 0;
        }
        if (worker->pid || worker->channel) {
            at = &worker->next;
            continue;
        }
        *at = worker->next;
        close_watch(worker);
        free(worker);
        count--;
    }
}

uint64_t worker_due(void) {
    uint64_t due = 0;
    for (struct worker *worker = workers; worker; worker = worker->next) due = sooner(due, worker->kill_ms);
    return due;
}

bool worker_knows(pid_t pid) {
    for (struct worker *worker = workers; worker; worker = worker->next)
        if (worker->pid == pid) return true;
    return false;
}

bool worker_reaped(pid_t pid) {
    for (struct worker *worker = workers; worker; worker = worker->next) {
        if (worker->pid != pid) continue;
        worker->pid = 0;
        worker->kill_ms = 0;
        return true;
    }
    return false;
}
