/* From the fork to the program of a command. */
#ifndef DSEC_CHILD_H
#define DSEC_CHILD_H
#include "supervisor.h"

/* Never returns: what fails is told as a report on `failures`. */
_Noreturn void child_run(const struct launch *launch, int failures);

#endif
