/* A growable run of bytes: appended at the end, taken from the front. */
#ifndef DSEC_BUFFER_H
#define DSEC_BUFFER_H
#include <stddef.h>
#include <stdint.h>

struct buffer {
    uint8_t *bytes;
    size_t start, end, room;
};

/* At least `more` writable bytes after `end`; the program ends when there is no memory. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t more);
void buffer_append(struct buffer *buffer, const void *bytes, size_t length);
void buffer_take(struct buffer *buffer, size_t length);
void buffer_free(struct buffer *buffer);

static inline size_t buffer_length(const struct buffer *buffer) { return buffer->end - buffer->start; }
static inline uint8_t *buffer_head(const struct buffer *buffer) { return buffer->bytes + buffer->start; }

#endif
