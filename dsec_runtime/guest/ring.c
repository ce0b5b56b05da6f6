#include "ring.h"

#include <sys/mman.h>

bool ring_make(struct ring *ring, size_t room) {
    ring->bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ring->bytes == MAP_FAILED) {
        ring->bytes = NULL;
        return false;
    }
    madvise(ring->bytes, room, MADV_DONTFORK);
    ring->room = room;
    ring->end = 0;
    return true;
}

void ring_free(struct ring *ring) {
    if (ring->bytes) munmap(ring->bytes, ring->room);
    ring->bytes = NULL;
}

uint64_t ring_start(const struct ring *ring) {
    return ring->end > ring->room ? ring->end - ring->room : 0;
}

static int parts_from(const struct ring *ring, uint64_t offset, size_t length, struct iovec parts[2]) {
    size_t at = offset % ring->room;
    size_t first = ring->room - at < length ? ring->room - at : length;
    parts[0] = (struct iovec){ring->bytes + at, first};
    parts[1] = (struct iovec){ring->bytes, length - first};
    return length == first ? 1 : 2;
}

int ring_space(const struct ring *ring, size_t most, struct iovec parts[2]) {
    return parts_from(ring, ring->end, most < ring->room ? most : ring->room, parts);
}

void ring_wrote(struct ring *ring, size_t length) { ring->end += length; }

int ring_data(const struct ring *ring, uint64_t offset, size_t most, struct iovec parts[2]) {
    uint64_t here = ring->end - offset;
    return parts_from(ring, offset, here < most ? (size_t)here : most, parts);
}
