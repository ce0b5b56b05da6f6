#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 64 };

static int epoll = -1;
static uint64_t paused_us;

void loop_make(void) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) abort();
}

void loop_add(struct watch *watch, int fd) {
    *watch = (struct watch){.fd = fd};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = watch};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) watch->readable = watch->writable = true;
}

void loop_close(struct watch *watch) {
    if (watch->fd < 0) return;
    /* A child that has not yet executed may share the file: closing alone would leave it watched. */
    epoll_ctl(epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    close(watch->fd);
    *watch = (struct watch){.fd = -1};
}

static uint64_t clock_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* A frozen process is told nothing; it finds that a turn took far too long. */
static void notice_pause(int timeout_ms) {
    static uint64_t turned_us;
    uint64_t now = clock_us(), took = now - turned_us, most = (uint64_t)(timeout_ms + LOOP_TURN_MS) * 1000;
    if (turned_us && timeout_ms >= 0 && took > most) paused_us += took - (uint64_t)timeout_ms * 1000;
    turned_us = now;
}

void loop_wait(int timeout_ms) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, timeout_ms);
    if (count < 0 && errno != EINTR) abort();
    notice_pause(timeout_ms);
    for (int i = 0; i < count; i++) {
        struct watch *watch = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP | EPOLLERR)) watch->readable = true;
        if (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) watch->writable = true;
    }
}

uint64_t now_us(void) { return clock_us() - paused_us; }
