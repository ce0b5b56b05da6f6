/* What a helper process has: its request, and frames to and from the host by blocking calls.
 *
 * A helper ends with F_END or F_ERROR. It is of the agent's user, but makes files as root. */
#ifndef DSEC_HELPER_H
#define DSEC_HELPER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "frame.h"

/* Fields of a request, numbers by their tag. */
struct request {
    uint64_t numbers[64];
    uint64_t has; /* bit of each tag that was given */
    char *path, *target;
};

bool request_read(const struct frame *frame, struct request *request);
void request_free(struct request *request);
static inline bool has(const struct request *request, enum tag tag) { return request->has >> tag & 1; }

bool helper_can(uint8_t type);
_Noreturn void helper_run(uint8_t type, const struct request *request, int socket);
/* Run one operation for another: data passes on `socket`, and how it ends is the status of this
 * process, 0 or an errno. */
_Noreturn void helper_part(void (*run)(const struct request *), const struct request *request, int socket);

/* Frames of fields. */
void tell(uint8_t type, const struct buffer *fields);
/* F_ERROR with errno; the helper ends. */
_Noreturn void fail_with(int number);
/* Called before the helper ends for another reason than having done its work. */
void on_failure(void (*undo)(void));

/* Data to the host, from the offset where the last ended; waits for its acknowledgements. */
void send_bytes(const void *bytes, size_t length);
void send_from(uint64_t offset);
/* Data of the host: how many bytes are in `bytes`, 0 at its end. They count as taken with the next
 * call. */
size_t receive_bytes(const uint8_t **bytes);

/* For those that wait for other things, too: the socket, and one message if there is one. */
int helper_socket(void);
enum heard { HEARD_NOTHING, HEARD_DATA, HEARD_END, HEARD_ACK };
enum heard hear(bool wait, const uint8_t **bytes, size_t *length);
void acknowledge(uint64_t offset);
/* How many bytes may be sent without waiting. */
size_t may_send(void);

/* The operations, by file. */
void do_stat(const struct request *request);    /* files.c */
void do_list(const struct request *request);
void do_mkdir(const struct request *request);
void do_link(const struct request *request);
void do_change(const struct request *request);
void do_move(const struct request *request);    /* move.c */
void do_remove(const struct request *request);  /* remove.c */
void do_read(const struct request *request);    /* content.c */
void do_write(const struct request *request);
void do_pack(const struct request *request);    /* pack.c */
void do_unpack(const struct request *request);  /* unpack.c */
void do_watch(const struct request *request);   /* inotify.c */
void do_dial(const struct request *request);    /* dial.c */

/* Shared among them. */
void remove_tree(const char *path);
void copy_attributes(const char *from, const char *to); /* attributes.c; of a whole tree */
extern bool pack_demands_all; /* fail at what a tar stream cannot carry */
void put_stat(struct buffer *out, const struct stat *about);
/* Make the folders above a path; existing ones are left as they are. */
bool make_parents(const char *path, const struct request *owner);
/* Mode, owner and time of an open file, as far as the request names them. */
bool apply(int fd, const struct request *request);

#endif
