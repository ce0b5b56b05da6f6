/* Waiting: edge-triggered descriptors whose events are remembered as flags, and clocks.
 *
 * The agent is one thread. An event only sets a flag; the step functions of commands, workers and
 * connections then do what the flags allow and clear them where the kernel says EAGAIN. */
#ifndef DSEC_LOOP_H
#define DSEC_LOOP_H
#include <stdbool.h>
#include <stdint.h>

struct watch {
    int fd; /* -1: none */
    bool readable, writable;
};

void loop_make(void);
/* Both ways, edge-triggered. Files that epoll refuses count as ready always. */
void loop_add(struct watch *watch, int fd);
/* Forget and close. */
void loop_close(struct watch *watch);
/* While something is due, a turn of the loop takes no longer, unless the sandbox was paused. */
enum { LOOP_TURN_MS = 1000 };
/* Wait at most `timeout_ms` (-1: for ever, as nothing is due) and set flags. */
void loop_wait(int timeout_ms);

/* Monotonic, without the time in which the sandbox was paused. */
uint64_t now_us(void);
static inline uint64_t now_ms(void) { return now_us() / 1000; }
/* The sooner of two moments, of which 0 is never. */
static inline uint64_t sooner(uint64_t one, uint64_t other) {
    return !one ? other : !other || one < other ? one : other;
}

#endif
