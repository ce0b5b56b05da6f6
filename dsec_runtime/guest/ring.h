/* The last bytes of a stream, by their offsets in it. */
#ifndef DSEC_RING_H
#define DSEC_RING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct ring {
    uint8_t *bytes;
    size_t room;
    uint64_t end; /* offset after the last byte */
};

/* Pages that are never written take no memory; children do not get a copy. */
bool ring_make(struct ring *ring, size_t room);
void ring_free(struct ring *ring);
/* The offset of the first byte that is still here. */
uint64_t ring_start(const struct ring *ring);
/* Where the next bytes go (at most `most`); they count after ring_wrote. */
int ring_space(const struct ring *ring, size_t most, struct iovec parts[2]);
void ring_wrote(struct ring *ring, size_t length);
/* The bytes from `offset`, which must be here, at most `most`. */
int ring_data(const struct ring *ring, uint64_t offset, size_t most, struct iovec parts[2]);

#endif
