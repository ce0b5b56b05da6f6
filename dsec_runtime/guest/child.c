#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "harden.h"
#include "users.h"

static _Noreturn void fail(int failures, const char *stage) {
    struct report report = {.kind = FAILED, .number = errno};
    snprintf(report.stage, sizeof report.stage, "%s", stage);
    if (write(failures, &report, sizeof report) < 0) _exit(126);
    _exit(127);
}

/* By the system call: the C library leaves out signals that it uses itself, which may be ignored. */
static void default_signals(void) {
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {.handler = (void *)SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        syscall(SYS_rt_sigaction, number, &action, NULL, sizeof action.mask);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool take_stdio(const struct launch *launch) {
    if (launch->tty >= 0 && ioctl(launch->in, TIOCSCTTY, 0)) return false;
    return dup2(launch->in, 0) == 0 && dup2(launch->out, 1) == 1 && dup2(launch->err, 2) == 2;
}

/* Root of the sandbox holds what the settings allow, others nothing. */
static bool become(const struct user *user) {
    bool privileged = geteuid() == 0 || (settings.features & HAS_OWN_UID);
    if (!privileged) return user->uid == geteuid();
    limit_bounding_set(settings.capabilities);
    if (setgroups((size_t)user->group_count, user->groups) || setresgid(user->gid, user->gid, user->gid)) return false;
    if (setresuid(user->uid, user->uid, user->uid)) return false;
    return hold_capabilities(user->uid ? 0 : settings.capabilities);
}

/* What is killed first when memory runs out. /proc/self belongs to the command's user only once
 * the process may be looked at, which is kept short: it still has the agent's memory. */
static void raise_oom_score(void) {
    char text[16] = "";
    int fd = openat(settings.proc, "self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 || atoi(text) >= settings.oom_score_adj) return;
    close(fd);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    fd = openat(settings.proc, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    int length = snprintf(text, sizeof text, "%d", settings.oom_score_adj);
    if (fd < 0 || write(fd, text, (size_t)length) < 0) errno = 0;
}

static void complete_env(const struct user *user, bool tty) {
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0);
    setenv("HOME", user->home, 0);
    if (*user->name) setenv("USER", user->name, 0);
    if (tty) setenv("TERM", "xterm-256color", 0);
}

_Noreturn void child_run(const struct launch *launch, int failures) {
    struct user user;
    setsid();
    default_signals();
    setrlimit(RLIMIT_NOFILE, &settings.files);
    umask(022);
    if (!take_stdio(launch)) fail(failures, "stdio");
    errno = ENOENT;
    if (!user_find(launch->user, &user)) fail(failures, "user");
    if (launch->tty >= 0 && fchown(0, user.uid, (gid_t)-1)) errno = 0;
    if (!become(&user)) fail(failures, "user");
    if (settings.no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail(failures, "privileges");
    raise_oom_score();
    if (chdir(launch->cwd ? launch->cwd : "/")) fail(failures, "cwd");
    environ = launch->env;
    complete_env(&user, launch->tty >= 0);
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    execvp(launch->argv[0], launch->argv);
    fail(failures, "exec");
}
