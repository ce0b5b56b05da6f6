#include "frame.h"

#include <stdlib.h>
#include <string.h>

static uint32_t get32(const uint8_t *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void set32(uint8_t *b, uint32_t number) {
    for (int i = 0; i < 4; i++) b[i] = (uint8_t)(number >> 8 * i);
}

uint64_t get64(const uint8_t *b) { return get32(b) | (uint64_t)get32(b + 4) << 32; }

void set64(uint8_t *b, uint64_t number) {
    set32(b, (uint32_t)number);
    set32(b + 4, (uint32_t)(number >> 32));
}

long frame_parse(const uint8_t *bytes, size_t size, struct frame *frame) {
    if (!size) return 0;
    memset(frame, 0, sizeof *frame);
    if (bytes[0] == F_NOTHING) return 1;
    if (size < HEADER_BYTES) return 0;
    frame->type = bytes[0];
    frame->flags = bytes[1];
    frame->channel = get32(bytes + 4);
    frame->length = get32(bytes + 8);
    frame->payload = bytes + HEADER_BYTES;
    if (bytes[2] || bytes[3] || frame->length > MAX_PAYLOAD) return -1;
    size_t whole = HEADER_BYTES + frame->length + TRAILER_BYTES;
    if (size < whole) return 0;
    return bytes[whole - 1] == TRAILER ? (long)whole : -(long)whole;
}

void frame_header(uint8_t *header, uint8_t type, uint8_t flags, uint32_t channel, uint32_t length) {
    header[0] = type;
    header[1] = flags;
    header[2] = header[3] = 0;
    set32(header + 4, channel);
    set32(header + 8, length);
}

size_t frame_begin(struct buffer *out, uint8_t type, uint8_t flags, uint32_t channel) {
    size_t mark = buffer_length(out);
    frame_header(buffer_reserve(out, HEADER_BYTES), type, flags, channel, 0);
    out->end += HEADER_BYTES;
    return mark;
}

void frame_end(struct buffer *out, size_t mark) {
    static const uint8_t trailer = TRAILER;
    set32(buffer_head(out) + mark + 8, (uint32_t)(buffer_length(out) - mark - HEADER_BYTES));
    buffer_append(out, &trailer, 1);
}

void put_bytes(struct buffer *out, uint16_t tag, const void *bytes, size_t length) {
    uint8_t *head = buffer_reserve(out, 6 + length);
    head[0] = (uint8_t)tag;
    head[1] = (uint8_t)(tag >> 8);
    set32(head + 2, (uint32_t)length);
    if (length) memcpy(head + 6, bytes, length);
    out->end += 6 + length;
}

void put_text(struct buffer *out, uint16_t tag, const char *text) {
    put_bytes(out, tag, text, strlen(text));
}

void put_number(struct buffer *out, uint16_t tag, uint64_t number) {
    uint8_t bytes[8];
    set64(bytes, number);
    put_bytes(out, tag, bytes, sizeof bytes);
}

struct fields fields_of(const struct frame *frame) {
    return (struct fields){frame->payload, frame->payload + frame->length, false};
}

bool field_next(struct fields *fields, struct field *field) {
    size_t left = (size_t)(fields->end - fields->at);
    if (!left || fields->bad) return false;
    if (left >= 6) {
        field->tag = (uint16_t)(fields->at[0] | fields->at[1] << 8);
        field->length = get32(fields->at + 2);
        field->bytes = fields->at + 6;
    }
    if (left < 6 || field->length > left - 6) {
        fields->bad = true;
        return false;
    }
    fields->at += 6 + field->length;
    return true;
}

uint64_t field_number(struct fields *fields, const struct field *field) {
    if (field->length == 8) return get64(field->bytes);
    fields->bad = true;
    return 0;
}

char *field_text(struct fields *fields, const struct field *field, size_t longest) {
    if (field->length > longest || memchr(field->bytes, 0, field->length)) {
        fields->bad = true;
        return NULL;
    }
    char *text = malloc(field->length + 1);
    if (!text) abort();
    memcpy(text, field->bytes, field->length);
    text[field->length] = 0;
    return text;
}
