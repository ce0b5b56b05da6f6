#include "helper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "harden.h"
#include "worker.h"

static int host = -1;
static bool is_part; /* the host is another helper, which only wants the data */
static uint64_t sent, acked, received;
static size_t untold; /* bytes given to the caller, to be acknowledged */
static void (*undo_all)(void);

/* ---- the request ---- */

static bool is_text(uint16_t tag) { return tag == T_PATH || tag == T_TARGET; }

bool request_read(const struct frame *frame, struct request *request) {
    struct fields fields = fields_of(frame);
    memset(request, 0, sizeof *request);
    for (struct field field; field_next(&fields, &field);) {
        if (field.tag >= 64) continue;
        request->has |= 1ULL << field.tag;
        char **text = field.tag == T_PATH ? &request->path : &request->target;
        if (!is_text(field.tag)) {
            request->numbers[field.tag] = field_number(&fields, &field);
            continue;
        }
        free(*text);
        *text = field_text(&fields, &field, 4095);
    }
    if (fields.bad) request_free(request);
    return !fields.bad;
}

void request_free(struct request *request) {
    free(request->path);
    free(request->target);
}

/* ---- what it can ---- */

struct operation {
    uint8_t type;
    bool needs_path;
    void (*run)(const struct request *request);
};

static const struct operation operations[] = {
    {F_READ, true, do_read},        {F_WRITE, true, do_write},        {F_STAT, true, do_stat},
    {F_LIST, true, do_list},        {F_MKDIR, true, do_mkdir},        {F_MOVE, true, do_move},
    {F_REMOVE, true, do_remove},    {F_CHANGE, true, do_change},      {F_LINK, true, do_link},
    {F_TREE_READ, true, do_pack},   {F_TREE_WRITE, true, do_unpack},  {F_WATCH, true, do_watch},
    {F_DIAL, false, do_dial},
};

static const struct operation *find(uint8_t type) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (operations[i].type == type) return &operations[i];
    return NULL;
}

bool helper_can(uint8_t type) { return find(type) != NULL; }

_Noreturn void helper_run(uint8_t type, const struct request *request, int socket) {
    const struct operation *operation = find(type);
    int keep[] = {0, 1, 2, socket};
    close_all_but(keep, 4);
    prctl(PR_SET_NAME, "dsec-helper", 0, 0, 0);
    umask(0);
    host = socket;
    if (settings.features & HAS_OWN_UID) {
        /* Before the user: only root's files are made with the right group then. */
        setfsgid(0);
        setfsuid(0);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    if (operation->needs_path && (!request->path || !*request->path)) fail_with(EINVAL);
    operation->run(request);
    _exit(0);
}

_Noreturn void helper_part(void (*run)(const struct request *), const struct request *request, int socket) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    host = socket;
    is_part = true;
    run(request);
    uint8_t end[2] = {F_EOF, 0};
    _exit(send(host, end, sizeof end, MSG_NOSIGNAL) < 0 && errno != EPIPE ? errno : 0);
}

/* ---- to the host ---- */

void on_failure(void (*undo)(void)) { undo_all = undo; }

static _Noreturn void leave(void) {
    void (*undo)(void) = undo_all;
    undo_all = NULL;
    if (undo) undo();
    _exit(is_part ? EPIPE : 1);
}

static void say(uint8_t type, uint8_t flags, const void *first, size_t first_length, const void *second, size_t length) {
    uint8_t head[2] = {type, flags};
    struct iovec parts[3] = {{head, 2}, {(void *)first, first_length}, {(void *)second, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    while (sendmsg(host, &message, MSG_NOSIGNAL) < 0) {
        /* The other part has sent all that it had, and left; or hear() finds that it failed. */
        if (is_part && errno == EPIPE) return;
        /* That the peer left with something unread is told once, to whichever call comes first. */
        if (errno != EINTR && errno != ECONNRESET) leave();
    }
}

void tell(uint8_t type, const struct buffer *fields) {
    if (!is_part) say(type, 0, NULL, 0, fields ? buffer_head(fields) : NULL, fields ? buffer_length(fields) : 0);
}

_Noreturn void fail_with(int number) {
    struct buffer fields = {0};
    put_number(&fields, T_ERRNO, (uint64_t)number);
    put_text(&fields, T_STAGE, "file");
    tell(F_ERROR, &fields);
    if (is_part) _exit(number);
    leave();
}

void send_from(uint64_t offset) { sent = acked = offset; }

size_t may_send(void) { return WINDOW - (size_t)(sent - acked); }

void send_bytes(const void *bytes, size_t length) {
    for (const uint8_t *at = bytes; length;) {
        /* Small pieces stay whole: some readers rely on it. */
        size_t part = length < MESSAGE_DATA ? length : MESSAGE_DATA;
        while (may_send() < part) hear(true, NULL, NULL);
        uint8_t offset[8];
        set64(offset, sent);
        say(F_DATA, 0, offset, sizeof offset, at, part);
        sent += part;
        at += part;
        length -= part;
    }
}

void acknowledge(uint64_t offset) {
    uint8_t bytes[8];
    set64(bytes, offset);
    say(F_ACK, 0, bytes, sizeof bytes, NULL, 0);
}

/* ---- from the host ---- */

int helper_socket(void) { return host; }

enum heard hear(bool wait, const uint8_t **bytes, size_t *length) {
    static uint8_t message[MESSAGE_BYTES];
    ssize_t got;
    do got = recv(host, message, sizeof message, wait ? 0 : MSG_DONTWAIT);
    while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    if (got < 0 && errno == EAGAIN) return HEARD_NOTHING;
    if (got < 2) leave();
    if (message[0] == F_ACK && got == 10) {
        uint64_t offset = get64(message + 2);
        if (offset > acked && offset <= sent) acked = offset;
        return HEARD_ACK;
    }
    if (message[0] == F_EOF) return HEARD_END;
    if (message[0] != F_DATA || got < 10 || !bytes || get64(message + 2) != received) fail_with(EPROTO);
    *bytes = message + 10;
    *length = (size_t)got - 10;
    received += *length;
    return HEARD_DATA;
}

size_t receive_bytes(const uint8_t **bytes) {
    if (untold) acknowledge(received);
    untold = 0;
    for (;;) switch (hear(true, bytes, &untold)) {
        case HEARD_DATA:
            if (untold) return untold;
            break;
        case HEARD_END: return 0;
        default: break;
        }
}
