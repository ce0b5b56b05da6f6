/* The agent's own user is nobody else's. */
#ifndef DSEC_OWNUSER_H
#define DSEC_OWNUSER_H
#include <stdbool.h>
#include <stdint.h>

/* From here on this process and its children cannot become `uid`: EPERM. Needs CAP_SYS_ADMIN (of the
 * user namespace) or no new privileges; false when the kernel does not do it. */
bool keep_user(uint32_t uid);

#endif
