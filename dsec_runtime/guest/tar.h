/* Members of a tar stream: POSIX.1-2001 (pax), as read and written for trees. */
#ifndef DSEC_TAR_H
#define DSEC_TAR_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum { BLOCK = 512 };

struct member {
    char name[PATH_MAX], target[PATH_MAX];
    char type; /* '0' file, '1' hard link, '2' symbolic link, '5' folder, 'x' 'g' 'L' 'K' extensions */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    uint64_t size;
    int64_t mtime_ns;
};

/* Writes with send_bytes: a header, before it an extended one where the fields ask for it. */
void tar_put(const struct member *member);
void tar_put_end(void);

/* From one block of 512 bytes; false when its checksum or a number is wrong. */
bool tar_read(const uint8_t *block, struct member *member);
/* Apply the records of an extended header; false when they are malformed. */
bool tar_extend(const char *records, size_t length, struct member *member, uint64_t *given);
enum { GIVES_NAME = 1, GIVES_TARGET = 2, GIVES_SIZE = 4, GIVES_MTIME = 8, GIVES_UID = 16, GIVES_GID = 32 };

#endif
