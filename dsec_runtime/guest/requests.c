#include "requests.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent.h"
#include "command.h"
#include "system.h"
#include "worker.h"

/* Tells one agent from another at the same place: a restarted sandbox is not the same. */
static uint8_t instance[16];

void request_hello(struct conn *conn, const uint8_t *nonce, uint32_t length) {
    static const uint8_t none[sizeof instance];
    struct buffer *out = conn_out(conn);
    if (!memcmp(instance, none, sizeof none) && getrandom(instance, sizeof instance, 0) < 0) instance[0] = 1;
    size_t mark = frame_begin(out, F_HELLO, 0, 0);
    put_bytes(out, T_NONCE, nonce, length);
    put_number(out, T_VERSION, PROTOCOL_VERSION);
    put_bytes(out, T_INSTANCE, instance, sizeof instance);
    put_number(out, T_FEATURES, settings.features);
    frame_end(out, mark);
}

bool request_open(struct conn *conn, const struct frame *frame) {
    switch (frame->type) {
    case F_EXEC: return command_exec(conn, frame);
    case F_ATTACH: return command_attach(conn, frame);
    case F_PROCESSES: return command_list(conn, frame);
    case F_FORGET: return command_forget(conn, frame);
    case F_KILL: return command_end(conn, frame);
    case F_CLOCK: return system_clock(conn, frame);
    case F_RESEED: return system_reseed(conn, frame);
    default: return worker_start(conn, frame);
    }
}
