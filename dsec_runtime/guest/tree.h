/* Process trees, by the parents that /proc names. */
#ifndef DSEC_TREE_H
#define DSEC_TREE_H
#include <stdbool.h>
#include <sys/types.h>

/* Kill everything below `root`, but not `root`. They are stopped first, so that none can make
 * another meanwhile; what still got away is found by the next call. */
void tree_kill(pid_t root);
/* Send a signal to everything below `root`. */
void tree_signal(pid_t root, int number);
/* Kill the children of this process, with all below them, for which `known` says no. Whether there
 * were any: then there may be more. */
bool tree_kill_strangers(bool (*known)(pid_t));

#endif
