/* A connection to a port on the sandbox's own loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "helper.h"

enum { CONNECT_MS = 10000, READ_BYTES = 64 << 10 };

static int finish_connect(int fd) {
    struct pollfd wait = {fd, POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (poll(&wait, 1, CONNECT_MS) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

/* A connected socket, or -1 and errno. */
static int connect_to(const struct sockaddr *address, socklen_t size) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0) return -1;
    int error = connect(fd, address, size) ? errno : 0;
    if (error == EINPROGRESS) error = finish_connect(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!error) return fd;
    close(fd);
    errno = error;
    return -1;
}

static int dial(uint16_t port) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = connect_to((struct sockaddr *)&four, sizeof four), error = errno;
    if (fd < 0) fd = connect_to((struct sockaddr *)&six, sizeof six);
    if (fd < 0) fail_with(error);
    return fd;
}

struct pump {
    int fd;
    uint64_t taken;           /* of the host's bytes, written to the port */
    struct buffer kept;       /* that the port has not taken */
    bool host_ended, port_ended;
};

static void from_port(struct pump *pump) {
    static uint8_t bytes[READ_BYTES];
    size_t most = may_send() < sizeof bytes ? may_send() : sizeof bytes;
    ssize_t got = most ? read(pump->fd, bytes, most) : -1;
    if (got > 0) send_bytes(bytes, (size_t)got);
    bool broken = got < 0 && most && errno != EAGAIN && errno != EINTR;
    if (got == 0 || broken) {
        pump->port_ended = true;
        tell(F_EOF, NULL);
    }
}

static void to_port(struct pump *pump) {
    while (buffer_length(&pump->kept)) {
        ssize_t put = send(pump->fd, buffer_head(&pump->kept), buffer_length(&pump->kept), MSG_NOSIGNAL);
        if (put < 0 && errno == EAGAIN) break;
        if (put < 0) put = (ssize_t)buffer_length(&pump->kept); /* nobody reads: dropped */
        buffer_take(&pump->kept, (size_t)put);
        pump->taken += (uint64_t)put;
        acknowledge(pump->taken);
    }
    if (pump->host_ended && !buffer_length(&pump->kept)) shutdown(pump->fd, SHUT_WR);
}

static void from_host(struct pump *pump) {
    const uint8_t *bytes = NULL;
    size_t length = 0;
    for (enum heard heard; (heard = hear(false, &bytes, &length)) != HEARD_NOTHING;) {
        if (heard == HEARD_DATA) buffer_append(&pump->kept, bytes, length);
        if (heard == HEARD_END) pump->host_ended = true;
    }
}

void do_dial(const struct request *request) {
    uint64_t port = request->numbers[T_PORT];
    if (!port || port > 65535) fail_with(EINVAL);
    struct pump pump = {.fd = dial((uint16_t)port)};
    tell(F_REPLY, NULL);
    while (!pump.port_ended || !pump.host_ended || buffer_length(&pump.kept)) {
        short events = 0;
        if (!pump.port_ended && may_send()) events |= POLLIN;
        if (buffer_length(&pump.kept)) events |= POLLOUT;
        struct pollfd waits[2] = {{helper_socket(), POLLIN, 0}, {events ? pump.fd : -1, events, 0}};
        poll(waits, 2, -1);
        from_host(&pump);
        to_port(&pump);
        if (!pump.port_ended) from_port(&pump);
    }
    tell(F_END, NULL);
}
