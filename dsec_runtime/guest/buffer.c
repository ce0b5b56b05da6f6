#include "buffer.h"

#include <stdlib.h>
#include <string.h>

uint8_t *buffer_reserve(struct buffer *buffer, size_t more) {
    if (buffer->start && buffer->room - buffer->end < more) {
        memmove(buffer->bytes, buffer_head(buffer), buffer_length(buffer));
        buffer->end -= buffer->start;
        buffer->start = 0;
    }
    if (buffer->room - buffer->end < more) {
        size_t room = buffer->room ? buffer->room : 512;
        while (room - buffer->end < more) room *= 2;
        uint8_t *bytes = realloc(buffer->bytes, room);
        if (!bytes) abort();
        buffer->bytes = bytes;
        buffer->room = room;
    }
    return buffer->bytes + buffer->end;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t length) {
    if (!length) return;
    memcpy(buffer_reserve(buffer, length), bytes, length);
    buffer->end += length;
}

void buffer_take(struct buffer *buffer, size_t length) {
    buffer->start += length;
    /* Idle connections keep no memory. */
    if (buffer->start == buffer->end) buffer_free(buffer);
}

void buffer_free(struct buffer *buffer) {
    free(buffer->bytes);
    memset(buffer, 0, sizeof *buffer);
}
