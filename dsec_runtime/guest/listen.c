/* A command and the host that listens to it: data and its acknowledgements, input, the end. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "command.h"
#include "supervisor.h"

enum { CONTROL_D = 4 };

static struct iovec offset_part(uint8_t bytes[8], uint64_t offset) {
    set64(bytes, offset);
    return (struct iovec){bytes, 8};
}

/* ---- to the host ---- */

static void tell_start(struct command *command) {
    struct channel *channel = command->channel;
    struct buffer *out = conn_out(channel->conn);
    size_t mark = frame_begin(out, F_REPLY, 0, channel->number);
    put_text(out, T_ID, command->id);
    put_number(out, T_PID, (uint64_t)command->pid);
    put_number(out, T_STDIN_OFFSET, command->in_taken);
    frame_end(out, mark);
    command->told_start = true;
}

static bool send_data(struct command *command, int number) {
    struct stream *stream = &command->streams[number];
    struct channel *channel = command->channel;
    uint64_t start = ring_start(&stream->ring);
    /* What was overwritten is missing, which the offset of the next data tells. */
    if (stream->sent < start) stream->sent = start;
    if (stream->sent == stream->ring.end) return false;
    uint8_t offset[8];
    struct iovec parts[3] = {offset_part(offset, stream->sent)};
    int count = ring_data(&stream->ring, stream->sent, MAX_DATA, parts + 1);
    size_t length = parts[1].iov_len + (count > 1 ? parts[2].iov_len : 0);
    conn_send(channel->conn, F_DATA, (uint8_t)(number + 1), channel->number, parts, 1 + count);
    stream->sent += length;
    return true;
}

static void put_cause(struct buffer *out, const struct command *command) {
    int status = command->wait_status;
    bool by_signal = WIFSIGNALED(status);
    /* Who ended by itself before the kill arrived was not killed. */
    enum cause cause = by_signal && command->why ? command->why : by_signal ? SIGNALLED : EXITED;
    put_number(out, T_CAUSE, cause);
    put_number(out, T_STATUS, (uint64_t)(by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status)));
    if (by_signal) put_number(out, T_SIGNAL, (uint64_t)WTERMSIG(status));
}

static void put_end(struct buffer *out, const struct command *command) {
    put_cause(out, command);
    put_number(out, T_STDOUT_OFFSET, command->streams[0].written);
    put_number(out, T_STDERR_OFFSET, command->streams[1].written);
    put_number(out, T_WALL_US, command->ended_us - command->began_us);
    put_number(out, T_CPU_US, command->cpu_us);
    put_number(out, T_PEAK, command->peak_bytes);
}

static void tell_end(struct command *command) {
    struct channel *channel = command->channel;
    struct buffer *out = conn_out(channel->conn);
    size_t mark = frame_begin(out, F_END, 0, channel->number);
    put_end(out, command);
    frame_end(out, mark);
    command->told_end = true;
}

static void tell_stdin(struct command *command) {
    uint8_t offset[8];
    struct iovec part = offset_part(offset, command->in_written);
    conn_send(command->channel->conn, F_ACK, 0, command->channel->number, &part, 1);
    command->in_told = command->in_written;
}

static bool pull(struct channel *channel) {
    struct command *command = channel->owner;
    if (!command->started) return false;
    if (!command->told_start) return tell_start(command), true;
    if (command->in_told != command->in_written) tell_stdin(command);
    bool sent = send_data(command, 0);
    sent |= send_data(command, 1);
    if (!sent && command->finished && !command->told_end) return tell_end(command), true;
    return sent;
}

/* ---- from the host ---- */

void command_feed(struct command *command) {
    while (buffer_length(&command->in_kept) && !command->in_gone && command->in.writable) {
        ssize_t put = write(command->in.fd, buffer_head(&command->in_kept), buffer_length(&command->in_kept));
        if (put >= 0) {
            buffer_take(&command->in_kept, (size_t)put);
            command->in_written += (uint64_t)put;
        } else if (errno == EAGAIN) {
            command->in.writable = false;
        } else if (errno != EINTR) {
            command->in_gone = true;
        }
    }
    if (command->in_eof && !buffer_length(&command->in_kept)) command->in_gone = true;
    if (!command->in_gone) return;
    /* Nobody reads any more: what comes is taken and dropped, as by a pipe to a dead program. */
    loop_close(&command->in);
    buffer_free(&command->in_kept);
    command->in_written = command->in_taken;
}

static bool take_stdin(struct command *command, const struct frame *frame) {
    if (frame->flags != 0 || frame->length < 8) return false;
    uint64_t offset = get64(frame->payload), length = frame->length - 8;
    /* After an attachment the host may send again what had arrived. */
    if (offset > command->in_taken || offset + length < offset) return false;
    uint64_t known = command->in_taken - offset;
    if (known >= length) return true;
    if (buffer_length(&command->in_kept) + length - known > STDIN_WINDOW) return false;
    if (!command->in_eof && !command->in_gone)
        buffer_append(&command->in_kept, frame->payload + 8 + known, (size_t)(length - known));
    command->in_taken = offset + length;
    command_feed(command);
    return true;
}

static bool take_ack(struct command *command, const struct frame *frame) {
    if (frame->length != 8 || frame->flags < 1 || frame->flags > 2) return false;
    struct stream *stream = &command->streams[frame->flags - 1];
    uint64_t offset = get64(frame->payload);
    if (offset > stream->sent) return false;
    if (offset > stream->acked) stream->acked = offset;
    return true;
}

static void take_eof(struct command *command) {
    static const uint8_t end = CONTROL_D;
    /* A terminal has no end of its input, only the key for it. */
    if (command->flags & WANTS_PTY)
        buffer_append(&command->in_kept, &end, 1);
    else
        command->in_eof = true;
    command_feed(command);
}

static bool take_signal(struct command *command, const struct frame *frame) {
    struct order order = {0};
    struct fields fields = fields_of(frame);
    for (struct field field; field_next(&fields, &field);)
        if (field.tag == T_SIGNAL) order.number = (int32_t)field_number(&fields, &field);
    if (fields.bad || order.number < 1 || order.number > 64) return false;
    if (command->control.fd >= 0 && send(command->control.fd, &order, sizeof order, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        errno = 0; /* it has ended, or has more signals before it than it takes */
    return true;
}

static bool take_size(struct command *command, const struct frame *frame) {
    struct winsize size = {0};
    struct fields fields = fields_of(frame);
    for (struct field field; field_next(&fields, &field);) {
        if (field.tag == T_ROWS) size.ws_row = (unsigned short)field_number(&fields, &field);
        if (field.tag == T_COLUMNS) size.ws_col = (unsigned short)field_number(&fields, &field);
    }
    if ((command->flags & WANTS_PTY) && command->streams[0].watch.fd >= 0)
        ioctl(command->streams[0].watch.fd, TIOCSWINSZ, &size);
    return !fields.bad;
}

static bool take_frame(struct channel *channel, const struct frame *frame) {
    struct command *command = channel->owner;
    switch (frame->type) {
    case F_DATA: return take_stdin(command, frame);
    case F_ACK: return take_ack(command, frame);
    case F_EOF: take_eof(command); return true;
    case F_SIGNAL: return take_signal(command, frame);
    case F_RESIZE: return take_size(command, frame);
    default: return false;
    }
}

static void gone(struct channel *channel) {
    struct command *command = channel->owner;
    command->channel = NULL;
    command->unheard_ms = now_ms();
}

const struct channel_kind command_channel = {take_frame, pull, gone};

/* ---- who listens ---- */

void command_listen(struct command *command, struct conn *conn, uint32_t number) {
    /* One listener: the newest. */
    if (command->channel) channel_close(command->channel);
    command->channel = channel_open(conn, number, &command_channel, command);
    command->told_start = command->told_end = false;
    command->in_told = UINT64_MAX;
}

static void listen_from(struct stream *stream, uint64_t offset) {
    if (offset > stream->ring.end) offset = stream->ring.end;
    stream->sent = stream->acked = offset;
}

bool command_attach(struct conn *conn, const struct frame *frame) {
    struct fields fields = fields_of(frame);
    uint64_t offsets[2] = {0, 0};
    struct command *command = NULL;
    for (struct field field; field_next(&fields, &field);) {
        char *id = field.tag == T_ID ? field_text(&fields, &field, 64) : NULL;
        if (id) command = command_find(id);
        free(id);
        if (field.tag == T_STDOUT_OFFSET) offsets[0] = field_number(&fields, &field);
        if (field.tag == T_STDERR_OFFSET) offsets[1] = field_number(&fields, &field);
    }
    if (fields.bad) return false;
    if (!command) return conn_error(conn, frame->channel, ESRCH, "attach"), true;
    for (int i = 0; i < 2; i++) listen_from(&command->streams[i], offsets[i]);
    command_listen(command, conn, frame->channel);
    return true;
}

struct command *command_named(struct fields *fields) {
    struct command *command = NULL;
    for (struct field field; field_next(fields, &field);) {
        char *id = field.tag == T_ID ? field_text(fields, &field, 64) : NULL;
        if (id) command = command_find(id);
        free(id);
    }
    return command;
}

/* ---- killing by name ---- */

static bool refuse_frame(struct channel *channel, const struct frame *frame) {
    return channel == NULL && frame == NULL;
}

static void forget_name(struct channel *channel) { free(channel->owner); }

static bool tell_when_gone(struct channel *channel) {
    if (!command_is_gone(channel->owner)) return false;
    struct conn *conn = channel->conn;
    frame_end(conn_out(conn), frame_begin(conn_out(conn), F_REPLY, 0, channel->number));
    free(channel->owner);
    channel_close(channel);
    return true;
}

static const struct channel_kind kill_channel = {refuse_frame, tell_when_gone, forget_name};

bool command_end(struct conn *conn, const struct frame *frame) {
    struct fields fields = fields_of(frame);
    struct command *command = command_named(&fields);
    if (fields.bad) return false;
    if (!command) return conn_error(conn, frame->channel, ESRCH, "attach"), true;
    command_kill(command, KILLED);
    channel_open(conn, frame->channel, &kill_channel, strdup(command->id));
    return true;
}

bool command_list(struct conn *conn, const struct frame *frame) {
    struct buffer *out = conn_out(conn);
    size_t mark = frame_begin(out, F_REPLY, 0, frame->channel);
    for (struct command *command = command_first(); command; command = command->next) {
        put_text(out, T_ID, command->id);
        put_number(out, T_PID, (uint64_t)command->pid);
        put_number(out, T_RUNNING, command->supervisor ? command->ended ? 2 : 1 : 0);
        if (command->finished) put_end(out, command);
    }
    frame_end(out, mark);
    return true;
}
