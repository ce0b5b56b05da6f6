/* What keeps the processes of the sandbox away from the agent. */
#ifndef DSEC_HARDEN_H
#define DSEC_HARDEN_H
#include <stdbool.h>
#include <stdint.h>

/* Not dumpable, an own user with the capabilities kept, Landlock; sets settings.features.
 * False when something required is not there. */
bool harden(void);

/* In a command's first process: only `mask` can ever be had from here on. */
void limit_bounding_set(uint64_t mask);
/* Hold exactly `mask` of what is held. */
bool hold_capabilities(uint64_t mask);
/* Close all descriptors but these. */
void close_all_but(const int *keep, int count);

#endif
