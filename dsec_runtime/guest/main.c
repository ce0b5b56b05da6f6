/* The agent of a sandbox: its first process, which the node talks to through descriptor 3.
 *
 *   dsec-agent [OPTION]...
 *
 * Descriptor 3 is a listening Unix stream socket or a byte stream (docs/formats/guest-protocol.md).
 *
 *   --uid=N               its own user, 65533; 0 keeps the one it has
 *   --capabilities=HEX    the most that commands may hold (bits as in CapBnd), all that it has
 *   --landlock[=require]  commands share a Landlock domain: no signals and abstract sockets out of
 *                         it, no device nodes; without it where the kernel lacks it, unless required
 *   --oom-score-adj=N     the least oom_score_adj of commands, 0
 *   --no-new-privileges   of commands
 *   --version             print the digest of the sources that it was made of
 *
 * It runs as process 1 only, as it signals all processes that it sees. It speaks to peers outside of
 * its process namespace, reaps whatever has no parent left, and ends the sandbox when SIGTERM comes
 * from outside. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "command.h"
#include "conn.h"
#include "harden.h"
#include "loop.h"
#include "worker.h"

#ifndef SOURCES
#error "build with: python -m dsec_runtime.guest.build"
#endif

enum {
    GRACE_MS = 2000,
    MAX_FILES = 8192, /* six for each command */
};


struct settings settings = {.uid = 65533, .capabilities = ~0ULL, .proc = -1, .null = -1, .pts = -1, .random = -1};

static struct watch signals;
static uint64_t end_ms; /* when what remains is killed, 0: not asked to end */

static bool read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"uid", required_argument, NULL, 'u'},
        {"capabilities", required_argument, NULL, 'c'},
        {"landlock", optional_argument, NULL, 'l'},
        {"oom-score-adj", required_argument, NULL, 'o'},
        {"no-new-privileges", no_argument, NULL, 'n'},
        {"version", no_argument, NULL, 'v'},
        {0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (option) {
        case 'u': settings.uid = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'c': settings.capabilities = strtoull(optarg, NULL, 16); break;
        case 'l': settings.landlock = optarg && !strcmp(optarg, "require") ? 2 : 1; break;
        case 'o': settings.oom_score_adj = atoi(optarg); break;
        case 'v': puts(SOURCES); exit(0);
        case 'n': settings.no_new_privileges = true; break;
        default: return false;
        }
    return optind == argc;
}

static int open_at_start(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
    /* 0 to 3 have their meaning; helpers put a command's ends on 0 to 2. */
    int high = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 4) : -1;
    if (fd >= 0) close(fd);
    return high;
}

static bool open_files(void) {
    if (fcntl(LISTEN_FD, F_GETFD) < 0) {
        fputs("dsec-agent: descriptor 3 is not open; the node starts this program\n", stderr);
        return false;
    }
    /* Such as the file that this program was executed from. */
    close_range(LISTEN_FD + 1, ~0U, 0);
    settings.null = open_at_start("/dev/null", O_RDWR);
    settings.proc = open_at_start("/proc", O_RDONLY | O_DIRECTORY);
    settings.random = open_at_start("/dev/urandom", O_RDONLY);
    settings.pts = open_at_start("/dev/pts", O_RDONLY | O_DIRECTORY);
    if (settings.null < 0 || settings.proc < 0) {
        fputs("dsec-agent: /dev/null and /proc must be there\n", stderr);
        return false;
    }
    /* Another namespace's would name processes by other numbers. */
    char self[8] = "";
    if (readlinkat(settings.proc, "self", self, sizeof self - 1) < 0 || strcmp(self, "1")) {
        fputs("dsec-agent: /proc is not that of this PID namespace\n", stderr);
        return false;
    }
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && dup2(settings.null, fd) < 0) return false;
    return true;
}

static void raise_limit(void) {
    if (getrlimit(RLIMIT_NOFILE, &settings.files)) return;
    struct rlimit more = settings.files;
    more.rlim_cur = more.rlim_max < MAX_FILES ? more.rlim_max : MAX_FILES;
    if (more.rlim_cur > settings.files.rlim_cur) setrlimit(RLIMIT_NOFILE, &more);
}

static void watch_signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGPIPE, SIG_IGN);
    loop_add(&signals, signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
}

static void take_signals(void) {
    struct signalfd_siginfo told;
    while (signals.readable) {
        if (read(signals.fd, &told, sizeof told) != sizeof told) {
            signals.readable = errno == EINTR;
            continue;
        }
        /* A sender with a pid here is inside; those outside have none. */
        if (told.ssi_signo == SIGTERM && told.ssi_pid == 0 && !end_ms) {
            kill(-1, SIGTERM);
            kill(-1, SIGCONT);
            end_ms = now_ms() + GRACE_MS;
        }
    }
}

/* False when nobody is left. */
static bool reap(void) {
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0) return true;
        if (pid < 0) return errno == EINTR;
        if (!command_reaped(pid)) worker_reaped(pid);
    }
}

static int wait_ms(bool more) {
    if (more) return 0;
    uint64_t due = sooner(sooner(command_due(), worker_due()), end_ms), now = now_ms();
    if (!due) return -1;
    return due > now ? (int)(due - now < LOOP_TURN_MS ? due - now : LOOP_TURN_MS) : 0;
}

int main(int argc, char **argv) {
    if (!read_options(argc, argv)) {
        fputs("dsec-agent: wrong arguments\n", stderr);
        return 2;
    }
    if (getpid() != 1) {
        fputs("dsec-agent: this must be the first process of a PID namespace\n", stderr);
        return 2;
    }
    if (!open_files()) return 1;
    if (!harden()) {
        fputs("dsec-agent: this kernel or user namespace lacks what --landlock=require asks for\n", stderr);
        return 1;
    }
    raise_limit();
    loop_make();
    watch_signals();
    conn_begin();
    for (bool more = false;;) {
        loop_wait(wait_ms(more));
        take_signals();
        bool anyone = reap();
        more = command_step();
        worker_step();
        more |= conn_step();
        /* The last output and ends are told first. */
        if (end_ms && ((!anyone && !more) || now_ms() >= end_ms)) break;
    }
    kill(-1, SIGKILL);
    return 0;
}
