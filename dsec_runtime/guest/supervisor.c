#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "child.h"
#include "harden.h"

static void say(int socket, struct report report) {
    while (send(socket, &report, sizeof report, MSG_NOSIGNAL) < 0 && errno == EINTR) {}
}

/* Fork the command; false when it could not be started, which has been told. */
static pid_t begin(const struct launch *launch, int socket) {
    int failures[2];
    struct report report = {.kind = FAILED, .number = EAGAIN, .stage = "fork"};
    if (pipe2(failures, O_CLOEXEC)) return say(socket, report), -1;
    pid_t pid = fork();
    if (pid == 0) child_run(launch, failures[1]);
    close(failures[1]);
    /* The pipe closes when the program has been executed. */
    ssize_t got = pid < 0 ? 0 : read(failures[0], &report, sizeof report);
    close(failures[0]);
    if (pid > 0 && got == 0) {
        say(socket, (struct report){.kind = STARTED, .pid = pid});
        return pid;
    }
    say(socket, report);
    return -1;
}

static uint64_t microseconds(struct timeval time) { return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec; }

/* Whether children are left. `first` becomes 0 when it has ended. */
static bool reap(pid_t *first, int socket) {
    for (;;) {
        struct rusage usage;
        int status;
        pid_t pid = wait4(-1, &status, WNOHANG, &usage);
        if (pid == 0) return true;
        if (pid < 0) return errno == EINTR;
        if (pid != *first) continue;
        *first = 0;
        say(socket, (struct report){
                        .kind = ENDED,
                        .pid = pid,
                        .status = status,
                        .cpu_us = microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
                        .peak_bytes = (uint64_t)usage.ru_maxrss * 1024,
                    });
    }
}

static _Noreturn void run(const struct launch *launch, int socket) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "dsec-supervise", 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    /* 0 to 2 as well: nothing else may come to lie where the command's ends will. */
    int keep[] = {0, 1, 2, launch->in, launch->out, launch->err, socket, signals, settings.proc};
    close_all_but(keep, sizeof keep / sizeof *keep);
    pid_t first = begin(launch, socket);
    if (first < 0) _exit(1);
    int mine[] = {socket, signals};
    close_all_but(mine, 2);
    struct pollfd waits[2] = {{socket, POLLIN, 0}, {signals, POLLIN, 0}};
    while (reap(&first, socket)) {
        struct order order;
        struct signalfd_siginfo told;
        poll(waits, 2, -1);
        while (read(signals, &told, sizeof told) > 0) {}
        ssize_t got = recv(socket, &order, sizeof order, MSG_DONTWAIT);
        /* The first process has died: the kernel is about to end everything. */
        if (got == 0) _exit(1);
        if (got == sizeof order && first > 0) kill(first, order.number);
    }
    _exit(0);
}

pid_t supervise(const struct launch *launch, int *socket) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) return -1;
    pid_t pid = fork();
    if (pid == 0) run(launch, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return -1;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    *socket = pair[0];
    return pid;
}
