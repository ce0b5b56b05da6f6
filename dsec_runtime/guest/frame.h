/* Frames and their fields, as docs/formats/guest-protocol.md has them. */
#ifndef DSEC_FRAME_H
#define DSEC_FRAME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

enum {
    PROTOCOL_VERSION = 1,
    HEADER_BYTES = 12,
    TRAILER_BYTES = 1,
    TRAILER = 0xa5,
    MAX_PAYLOAD = 1 << 20,
    MAX_DATA = 256 << 10, /* bytes in one data frame that the agent sends */
};

enum frame_type {
    F_NOTHING = 0, /* one byte, without header */
    F_HELLO = 1,
    F_PING = 2,
    F_PONG = 3,
    F_EXEC = 0x10,
    F_ATTACH = 0x11,
    F_PROCESSES = 0x12,
    F_FORGET = 0x13,
    F_KILL = 0x14,
    F_READ = 0x20,
    F_WRITE = 0x21,
    F_STAT = 0x22,
    F_LIST = 0x23,
    F_MKDIR = 0x24,
    F_MOVE = 0x25,
    F_REMOVE = 0x26,
    F_CHANGE = 0x27,
    F_TREE_READ = 0x28,
    F_TREE_WRITE = 0x29,
    F_WATCH = 0x2a,
    F_LINK = 0x2b,
    F_DIAL = 0x30,
    F_CLOCK = 0x40,
    F_RESEED = 0x41,
    F_DATA = 0x50,
    F_ACK = 0x51,
    F_EOF = 0x52,
    F_SIGNAL = 0x53,
    F_RESIZE = 0x54,
    F_CLOSE = 0x55,
    F_REPLY = 0x60,
    F_ERROR = 0x61,
    F_END = 0x62,
    F_CLOSED = 0x63,
};

enum tag {
    T_NONCE = 1,
    T_VERSION = 2,
    T_INSTANCE = 3,
    T_FEATURES = 4,
    T_ID = 5,
    T_ARG = 6,
    T_ENV = 7,
    T_CWD = 8,
    T_USER = 9,
    T_FLAGS = 10,
    T_ROWS = 11,
    T_COLUMNS = 12,
    T_TIMEOUT_MS = 13,
    T_LIMIT = 14,
    T_KEEP = 15,
    T_HOLD_MS = 16,
    T_STDIN_OFFSET = 17,
    T_STDOUT_OFFSET = 18,
    T_STDERR_OFFSET = 19,
    T_PID = 20,
    T_CAUSE = 21,
    T_STATUS = 22,
    T_SIGNAL = 23,
    T_WALL_US = 24,
    T_CPU_US = 25,
    T_PEAK = 26,
    T_ERRNO = 27,
    T_STAGE = 28,
    T_RUNNING = 30,
    T_PATH = 31,
    T_TARGET = 32,
    T_MODE = 33,
    T_UID = 34,
    T_GID = 35,
    T_SIZE = 36,
    T_MTIME_NS = 37,
    T_OFFSET = 38,
    T_PORT = 39,
    T_TIME_NS = 40,
    T_BYTES = 41,
    T_EVENT = 43,
    T_LENGTH = 45,
};

struct frame {
    uint8_t type, flags;
    uint32_t channel, length;
    const uint8_t *payload;
};

/* The first frame of `size` bytes: how many it takes, 0 when more are needed; negative when it is
 * malformed, by how many bytes to skip to get past it. */
long frame_parse(const uint8_t *bytes, size_t size, struct frame *frame);
void frame_header(uint8_t *header, uint8_t type, uint8_t flags, uint32_t channel, uint32_t length);

/* A frame of fields: begin, put fields, end. */
size_t frame_begin(struct buffer *out, uint8_t type, uint8_t flags, uint32_t channel);
void frame_end(struct buffer *out, size_t mark);
void put_bytes(struct buffer *out, uint16_t tag, const void *bytes, size_t length);
void put_text(struct buffer *out, uint16_t tag, const char *text);
void put_number(struct buffer *out, uint16_t tag, uint64_t number);

struct fields {
    const uint8_t *at, *end;
    bool bad;
};
struct field {
    uint16_t tag;
    uint32_t length;
    const uint8_t *bytes;
};

struct fields fields_of(const struct frame *frame);
bool field_next(struct fields *fields, struct field *field);
/* The number of a field of 8 bytes; any other length marks the fields as bad. */
uint64_t field_number(struct fields *fields, const struct field *field);
/* A copy that ends in a zero byte, or NULL (and bad) when it has one inside or is too long. */
char *field_text(struct fields *fields, const struct field *field, size_t longest);

uint64_t get64(const uint8_t *bytes);
void set64(uint8_t *bytes, uint64_t number);

#endif
