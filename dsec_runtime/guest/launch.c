/* The beginning of a command: its request, its pipes or terminal, its supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#include "agent.h"
#include "command.h"
#include "supervisor.h"

enum {
    LEAST_RING = 64 << 10, /* smaller ones would make streaming slow */
    MOST_RING = 16 << 20,
    PIPE_BYTES = 256 << 10,
};

struct words {
    char **all;
    size_t count;
};

struct order_of_start {
    struct words argv, env;
    char *cwd, *user;
    uint64_t rows, columns;
};

static void add_word(struct words *words, char *word) {
    /* Always one more place, for the NULL at the end. */
    words->all = realloc(words->all, (words->count + 2) * sizeof *words->all);
    if (!words->all) abort();
    words->all[words->count] = word;
    words->count += word != NULL;
    words->all[words->count] = NULL;
}

static void free_words(struct words *words) {
    for (size_t i = 0; i < words->count; i++) free(words->all[i]);
    free(words->all);
}

static void read_field(struct fields *fields, const struct field *field, struct command *command,
                       struct order_of_start *start) {
    char *id;
    switch (field->tag) {
    case T_ID:
        id = field_text(fields, field, sizeof command->id - 1);
        if (id) strcpy(command->id, id);
        free(id);
        break;
    case T_ARG: add_word(&start->argv, field_text(fields, field, MAX_PAYLOAD)); break;
    case T_ENV: add_word(&start->env, field_text(fields, field, MAX_PAYLOAD)); break;
    case T_CWD: free(start->cwd); start->cwd = field_text(fields, field, 4096); break;
    case T_USER: free(start->user); start->user = field_text(fields, field, 256); break;
    case T_FLAGS: command->flags = field_number(fields, field); break;
    case T_ROWS: start->rows = field_number(fields, field); break;
    case T_COLUMNS: start->columns = field_number(fields, field); break;
    case T_TIMEOUT_MS: command->timeout_ms = field_number(fields, field); break;
    case T_LIMIT: command->limit = field_number(fields, field); break;
    case T_KEEP: command->keep = field_number(fields, field); break;
    case T_HOLD_MS: command->hold_ms = field_number(fields, field); break;
    }
}

static bool make_pipe(struct watch *ours, bool we_read, int *theirs) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return false;
    if (we_read) fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES);
    int mine = ends[we_read ? 0 : 1];
    fcntl(mine, F_SETFL, O_NONBLOCK);
    loop_add(ours, mine);
    *theirs = ends[we_read ? 1 : 0];
    return true;
}

static bool make_pipes(struct command *command, struct launch *launch) {
    launch->in = settings.null;
    if ((command->flags & WANTS_STDIN) && !make_pipe(&command->in, false, &launch->in)) return false;
    if (!make_pipe(&command->streams[0].watch, true, &launch->out)) return false;
    launch->err = launch->out;
    return (command->flags & MERGES) || make_pipe(&command->streams[1].watch, true, &launch->err);
}

/* The multiplexer of the file system that was opened at the start, and only if it is one. */
static bool make_terminal(struct command *command, struct launch *launch, const struct order_of_start *start) {
    struct winsize size = {.ws_row = (unsigned short)start->rows, .ws_col = (unsigned short)start->columns};
    struct stat about;
    int unlock = 0;
    int master = openat(settings.pts, "ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (master < 0) return false;
    if (fstat(master, &about) || !S_ISCHR(about.st_mode) || about.st_rdev != makedev(5, 2) ||
        ioctl(master, TIOCSPTLCK, &unlock) || ioctl(master, TIOCSWINSZ, &size) ||
        (launch->in = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) {
        close(master);
        return false;
    }
    launch->out = launch->err = launch->in;
    launch->tty = master;
    loop_add(&command->streams[0].watch, master);
    int writer = fcntl(master, F_DUPFD_CLOEXEC, 3);
    if (writer >= 0) loop_add(&command->in, writer);
    return writer >= 0;
}

static void close_their_ends(const struct launch *launch) {
    if (launch->in >= 0 && launch->in != settings.null) close(launch->in);
    if (launch->out >= 0 && launch->out != launch->in) close(launch->out);
    if (launch->err >= 0 && launch->err != launch->out) close(launch->err);
}

static bool make_rings(struct command *command) {
    size_t room = command->keep < LEAST_RING ? LEAST_RING : command->keep > MOST_RING ? MOST_RING : (size_t)command->keep;
    bool two = !(command->flags & (MERGES | WANTS_PTY));
    command->streams[0].ring.room = command->streams[1].ring.room = 1;
    return ring_make(&command->streams[0].ring, room) && (!two || ring_make(&command->streams[1].ring, room));
}

/* 0, or the errno of what failed. */
static int start_command(struct command *command, struct order_of_start *start) {
    struct launch launch = {
        .argv = start->argv.all, .env = start->env.all, .cwd = start->cwd, .user = start->user,
        .in = -1, .out = -1, .err = -1, .tty = -1,
    };
    int control = -1;
    bool ready = make_rings(command) && ((command->flags & WANTS_PTY) ? make_terminal(command, &launch, start)
                                                                      : make_pipes(command, &launch));
    if (ready) command->supervisor = supervise(&launch, &control);
    int error = errno;
    close_their_ends(&launch);
    if (!ready || command->supervisor < 0) return error ? error : EAGAIN;
    loop_add(&command->control, control);
    command->in_gone = !(command->flags & (WANTS_STDIN | WANTS_PTY));
    command->began_us = now_us();
    command->unheard_ms = now_ms();
    if (command->timeout_ms) command->deadline_ms = now_ms() + command->timeout_ms;
    return 0;
}

static struct command *blank(void) {
    struct command *command = calloc(1, sizeof *command);
    if (!command) abort();
    command->control.fd = command->in.fd = command->streams[0].watch.fd = command->streams[1].watch.fd = -1;
    return command;
}

bool command_exec(struct conn *conn, const struct frame *frame) {
    struct order_of_start start = {0};
    struct command *command = blank();
    struct fields fields = fields_of(frame);
    add_word(&start.argv, NULL);
    add_word(&start.env, NULL);
    for (struct field field; field_next(&fields, &field);) read_field(&fields, &field, command, &start);
    bool good = !fields.bad && start.argv.count && *command->id;
    const char *stage = "start";
    int error = !good ? 0 : command_find(command->id) ? EEXIST : command_make_room() ? 0 : EAGAIN;
    bool is_new = good && !error;
    command_insert(command);
    if (is_new && (error = start_command(command, &start))) stage = "fork";
    if (is_new && !error)
        command_listen(command, conn, frame->channel);
    else
        command_remove(command);
    if (error) conn_error(conn, frame->channel, error, stage);
    free_words(&start.argv);
    free_words(&start.env);
    free(start.cwd);
    free(start.user);
    return good;
}
