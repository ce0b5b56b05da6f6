#include "system.h"

#include <errno.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "agent.h"

enum { MOST_SEED = 512 };

static void answer(struct conn *conn, uint32_t channel, int error, const char *stage) {
    if (error)
        conn_error(conn, channel, error, stage);
    else
        frame_end(conn_out(conn), frame_begin(conn_out(conn), F_REPLY, 0, channel));
}

bool system_clock(struct conn *conn, const struct frame *frame) {
    struct fields fields = fields_of(frame);
    int64_t ns = 0;
    for (struct field field; field_next(&fields, &field);)
        if (field.tag == T_TIME_NS) ns = (int64_t)field_number(&fields, &field);
    if (fields.bad || ns <= 0) return false;
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    answer(conn, frame->channel, clock_settime(CLOCK_REALTIME, &time) ? errno : 0, "clock");
    return true;
}

/* Bytes from the host, then a new key for the generator: clones of a snapshot differ from here on. */
static int reseed(const uint8_t *bytes, size_t length) {
    struct {
        struct rand_pool_info info;
        uint8_t bytes[MOST_SEED];
    } seed = {.info = {.entropy_count = (int)length * 8, .buf_size = (int)length}};
    memcpy(seed.info.buf, bytes, length);
    if (settings.random < 0) return ENODEV;
    return ioctl(settings.random, RNDADDENTROPY, &seed) || ioctl(settings.random, RNDRESEEDCRNG) ? errno : 0;
}

bool system_reseed(struct conn *conn, const struct frame *frame) {
    struct fields fields = fields_of(frame);
    struct field seed = {0};
    for (struct field field; field_next(&fields, &field);)
        if (field.tag == T_BYTES) seed = field;
    if (fields.bad || !seed.length || seed.length > MOST_SEED) return false;
    answer(conn, frame->channel, reseed(seed.bytes, seed.length), "reseed");
    return true;
}
