#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent.h"
#include "supervisor.h"
#include "tree.h"
#include "worker.h"

enum {
    KILL_AGAIN_MS = 20,
    TTY_DRAIN_MS = 100, /* a terminal does not tell how much it still holds */
    READ_BYTES = 256 << 10,
};

static struct command *commands;
static uint64_t orphans_ms; /* a supervisor was killed from inside: when to look for its processes */

struct command *command_first(void) { return commands; }

struct command *command_find(const char *id) {
    struct command *command = commands;
    while (command && strcmp(command->id, id)) command = command->next;
    return command;
}

void command_insert(struct command *command) {
    struct command **last = &commands;
    while (*last) last = &(*last)->next;
    *last = command;
}

void command_remove(struct command *command) {
    struct command **at = &commands;
    while (*at != command) at = &(*at)->next;
    *at = command->next;
    for (int i = 0; i < 2; i++) {
        loop_close(&command->streams[i].watch);
        ring_free(&command->streams[i].ring);
    }
    loop_close(&command->control);
    loop_close(&command->in);
    buffer_free(&command->in_kept);
    free(command);
}

/* Nothing of it is left that could write, and all that was written has been read. */
static bool is_over(const struct command *command) { return command->finished && !command->supervisor; }

static uint64_t kept_bytes(const struct command *command) {
    uint64_t kept = 0;
    for (int i = 0; i < 2; i++) kept += command->streams[i].ring.end - ring_start(&command->streams[i].ring);
    return kept;
}

static bool may_be_forgotten(const struct command *command) { return is_over(command) && !command->channel; }

bool command_make_room(void) {
    uint64_t known = 0, living = 0, bytes = 0;
    for (struct command *command = commands; command; command = command->next) {
        known++;
        living += command->supervisor != 0;
        if (command->finished) bytes += kept_bytes(command);
    }
    for (struct command *command = commands, *next; command; command = next) {
        next = command->next;
        if (known < MAX_KEPT && bytes <= MAX_KEPT_BYTES) break;
        if (!may_be_forgotten(command)) continue;
        known--;
        bytes -= kept_bytes(command);
        command_remove(command);
    }
    return known < MAX_KEPT && living < MAX_COMMANDS;
}

bool command_forget(struct conn *conn, const struct frame *frame) {
    struct fields fields = fields_of(frame);
    struct command *command = command_named(&fields);
    if (fields.bad) return false;
    if (command && !may_be_forgotten(command)) {
        conn_error(conn, frame->channel, EBUSY, "forget");
        return true;
    }
    if (command) command_remove(command);
    frame_end(conn_out(conn), frame_begin(conn_out(conn), F_REPLY, 0, frame->channel));
    return true;
}

/* ---- the end ---- */

static void close_streams(struct command *command) {
    for (int i = 0; i < 2; i++) loop_close(&command->streams[i].watch);
}

void command_kill(struct command *command, enum cause why) {
    if (!command->supervisor) return;
    if (!command->ended && !command->why) command->why = why;
    kill(command->supervisor, SIGCONT);
    tree_kill(command->supervisor);
    command->kill_ms = now_ms() + KILL_AGAIN_MS;
}

/* What the pipes hold now is all that the first process wrote into them. What a child that lives
 * on writes later is read and dropped: closing the pipe would kill it. */
static void begin_drain(struct command *command) {
    command->ended = true;
    command->ended_us = now_us();
    command->drain_until_ms = now_ms() + TTY_DRAIN_MS;
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &command->streams[i];
        int held = 0;
        if (stream->watch.fd >= 0 && !(command->flags & WANTS_PTY)) ioctl(stream->watch.fd, FIONREAD, &held);
        stream->drain = (uint64_t)held;
    }
}

static bool is_drained(const struct command *command) {
    if (command->flags & WANTS_PTY) return command->streams[0].watch.fd < 0 || now_ms() >= command->drain_until_ms;
    for (int i = 0; i < 2; i++)
        if (command->streams[i].watch.fd >= 0 && command->streams[i].drain) return false;
    return true;
}

static void take_reports(struct command *command) {
    while (command->control.readable && command->control.fd >= 0) {
        struct report report;
        ssize_t got = recv(command->control.fd, &report, sizeof report, MSG_DONTWAIT);
        /* A reset is told once, when it left with an order unread; what it said is still here. */
        if (got < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
        if (got < 0 && errno == EAGAIN) command->control.readable = false;
        if (got == 0 || (got < 0 && errno != EAGAIN)) loop_close(&command->control);
        if (got != sizeof report) continue;
        if (report.kind == STARTED) {
            command->started = true;
            command->pid = report.pid;
        } else if (report.kind == ENDED) {
            command->wait_status = report.status;
            command->cpu_us = report.cpu_us;
            command->peak_bytes = report.peak_bytes;
            begin_drain(command);
        } else {
            if (command->channel) conn_error(command->channel->conn, command->channel->number, report.number, report.stage);
            command->supervisor = 0; /* it is about to end, with nothing below it */
        }
    }
}

bool command_knows(pid_t pid) {
    for (struct command *command = commands; command; command = command->next)
        if (command->supervisor == pid) return true;
    return false;
}

bool command_reaped(pid_t pid) {
    for (struct command *command = commands; command; command = command->next) {
        if (command->supervisor != pid) continue;
        command->control.readable = true;
        take_reports(command);
        command->supervisor = 0;
        command->kill_ms = 0;
        loop_close(&command->control);
        if (command->finished) close_streams(command);
        if (command->started && !command->ended) {
            command->wait_status = SIGKILL;
            begin_drain(command);
            orphans_ms = now_ms();
        }
        return true;
    }
    return false;
}

static bool is_ours(pid_t pid) { return command_knows(pid) || worker_knows(pid); }

/* ---- output ---- */

/* How much of a stream may be read now: what the listener has not got is not overwritten, nor, for
 * `hold_ms`, what no listener has got. */
static size_t may_read(const struct command *command, const struct stream *stream) {
    uint64_t waiting = stream->ring.end - (stream->acked > ring_start(&stream->ring) ? stream->acked : ring_start(&stream->ring));
    bool overwrites = !command->channel && command->hold_ms != FOREVER_MS &&
                      now_ms() >= command->unheard_ms + command->hold_ms;
    return overwrites ? stream->ring.room : stream->ring.room - (size_t)waiting;
}

static uint64_t under_limit(const struct command *command) {
    uint64_t kept = command->streams[0].ring.end + command->streams[1].ring.end;
    return !command->limit ? UINT64_MAX : kept < command->limit ? command->limit - kept : 0;
}

static void count(struct command *command, struct stream *stream, size_t length) {
    stream->written += length;
    stream->drain -= stream->drain < length ? stream->drain : length;
    if (command->limit && command->streams[0].written + command->streams[1].written > command->limit &&
        (command->flags & KILL_AT_LIMIT) && !command->why)
        command_kill(command, OUTPUT_LIMIT);
}

/* Read once; whether there may be more. */
static bool read_stream(struct command *command, struct stream *stream) {
    static uint8_t dropped[64 << 10];
    struct iovec parts[2] = {{dropped, sizeof dropped}};
    int part_count = 1;
    if (stream->watch.fd < 0 || !stream->watch.readable) return false;
    bool drops = command->finished || !under_limit(command);
    if (!drops) {
        size_t most = may_read(command, stream);
        if (most > READ_BYTES) most = READ_BYTES;
        if (most > under_limit(command)) most = (size_t)under_limit(command);
        if (!most) return false;
        part_count = ring_space(&stream->ring, most, parts);
    }
    ssize_t got = readv(stream->watch.fd, parts, part_count);
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) {
        stream->watch.readable = false;
        stream->drain = 0;
        return false;
    }
    if (got <= 0) {
        loop_close(&stream->watch);
        return false;
    }
    if (!drops) ring_wrote(&stream->ring, (size_t)got);
    if (!command->finished) count(command, stream, (size_t)got);
    return true;
}

/* ---- steps ---- */

static bool passed(uint64_t moment_ms) { return moment_ms && now_ms() >= moment_ms; }

static bool step_one(struct command *command) {
    if (is_over(command)) return false;
    take_reports(command);
    if (!command->ended && passed(command->deadline_ms)) {
        command->deadline_ms = 0;
        command_kill(command, TIMED_OUT);
    }
    if (passed(command->kill_ms)) command_kill(command, command->why);
    bool more = false;
    for (int i = 0; i < 2; i++) more |= read_stream(command, &command->streams[i]);
    command_feed(command);
    if (command->ended && !command->finished && is_drained(command)) {
        command->finished = true;
        command->in_gone = true;
        loop_close(&command->in);
    }
    if (is_over(command)) close_streams(command);
    return more;
}

bool command_step(void) {
    bool more = false;
    for (struct command *command = commands, *next; command; command = next) {
        next = command->next;
        /* Nothing was started, which has been told to whoever listened. */
        if (!command->supervisor && !command->started) {
            if (command->channel) channel_close(command->channel);
            command_remove(command);
            continue;
        }
        more |= step_one(command);
    }
    if (passed(orphans_ms)) orphans_ms = tree_kill_strangers(is_ours) ? now_ms() + KILL_AGAIN_MS : 0;
    return more;
}

bool command_is_gone(const char *id) {
    struct command *command = command_find(id);
    return !orphans_ms && !(command && command->supervisor);
}

uint64_t command_due(void) {
    uint64_t due = orphans_ms;
    for (struct command *command = commands; command; command = command->next) {
        if (is_over(command)) continue;
        due = sooner(due, command->kill_ms);
        if (!command->ended) due = sooner(due, command->deadline_ms);
        if (command->ended && !command->finished) due = sooner(due, command->drain_until_ms);
        bool holds = !command->finished && !command->channel && command->hold_ms != FOREVER_MS;
        uint64_t held_until = command->unheard_ms + command->hold_ms;
        if (holds && held_until > now_ms()) due = sooner(due, held_until);
    }
    return due;
}
