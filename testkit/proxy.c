#include "testkit/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { MAX_PAIRS = 32, BUFFER_BYTES = 64 << 10, LOOK_MS = 10, LOOKS_PER_S = 1000 / LOOK_MS };

// Bytes read from one side and not yet written to the other.
typedef struct flow {
    size_t begin, end;
    uint8_t bytes[BUFFER_BYTES];
} flow;

typedef struct pair {
    int fd[2]; // the client, and the side it is connected to; -1: a free place
    flow from[2];
    uint32_t n_passed; // bytes forwarded to the client
} pair;

struct kin_proxy {
    uint16_t to, port;
    int listener;
    pthread_t thread;
    atomic_bool stop, stalled, cuts, corrupts;
    atomic_uint limit, bytes_s, n_accepted;
    // of the thread
    pair pairs[MAX_PAIRS];
    kin_time checked_at;
    uint64_t n_may_pass; // bytes, at the current rate
};

static struct sockaddr_in loopback(uint16_t port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void drop(pair *p) {
    for (int i = 0; i < 2; i++) {
        if (p->fd[i] >= 0) close(p->fd[i]);
        p->fd[i] = -1;
        p->from[i].begin = p->from[i].end = 0;
    }
    p->n_passed = 0;
}

static void accept_connection(kin_proxy *x) {
    struct sockaddr_in to = loopback(x->to);
    int fd = accept(x->listener, NULL, NULL);
    for (int i = 0; i < MAX_PAIRS && fd >= 0; i++) {
        pair *p = &x->pairs[i];
        if (p->fd[0] >= 0) continue;
        atomic_fetch_add(&x->n_accepted, 1);
        p->fd[0] = fd;
        p->fd[1] = socket(AF_INET, SOCK_STREAM, 0);
        if (p->fd[1] < 0 || connect(p->fd[1], (struct sockaddr *)&to, sizeof to) != 0) drop(p);
        return;
    }
    if (fd >= 0) close(fd);
}

// False if the pair has ended.
static bool read_some(kin_proxy *x, pair *p, int i) {
    flow *f = &p->from[i];
    ssize_t n = recv(p->fd[i], f->bytes, sizeof f->bytes, MSG_DONTWAIT);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    if (atomic_exchange(&x->corrupts, false)) f->bytes[n / 2] ^= 0x10;
    f->begin = 0;
    f->end = (size_t)n;
    return true;
}

// Returns the bytes that may be written to the client.
static size_t room_of(const kin_proxy *x, const pair *p) {
    uint32_t limit = atomic_load(&x->limit);
    size_t room = limit ? limit - p->n_passed : SIZE_MAX;
    return atomic_load(&x->bytes_s) && x->n_may_pass < room ? (size_t)x->n_may_pass : room;
}

// False if the pair has ended.
static bool write_some(kin_proxy *x, pair *p, int i) {
    flow *f = &p->from[i];
    size_t n_wanted = f->end - f->begin, room = i == 1 ? room_of(x, p) : SIZE_MAX;
    if (room == 0) return true;
    ssize_t n = send(p->fd[1 - i], f->bytes + f->begin, n_wanted < room ? n_wanted : room, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    f->begin += (size_t)n;
    if (i == 0) return true;
    p->n_passed += (uint32_t)n;
    if (atomic_load(&x->bytes_s)) x->n_may_pass -= (uint64_t)n;
    uint32_t limit = atomic_load(&x->limit);
    return limit == 0 || p->n_passed < limit;
}

static bool pass(kin_proxy *x, pair *p) {
    for (int i = 0; i < 2; i++) {
        if (p->from[i].begin == p->from[i].end && !read_some(x, p, i)) return false;
        if (p->from[i].begin < p->from[i].end && !write_some(x, p, i)) return false;
    }
    return true;
}

// At most the bytes of two intervals may pass at once.
static void let_time_pass(kin_proxy *x) {
    kin_time now = kin_clock_now();
    uint64_t bytes_s = atomic_load(&x->bytes_s), most = 2 * bytes_s / LOOKS_PER_S + 1;
    x->n_may_pass += bytes_s * (now - x->checked_at) / 1000000000;
    if (x->n_may_pass > most) x->n_may_pass = most;
    x->checked_at = now;
}

static void *run(void *arg) {
    kin_proxy *x = arg;
    while (!atomic_load(&x->stop)) {
        if (atomic_load(&x->bytes_s)) { // otherwise polling would not wait
            usleep(LOOK_MS * 1000);
            let_time_pass(x);
        }
        struct pollfd fds[1 + 2 * MAX_PAIRS] = {{.fd = x->listener, .events = POLLIN}};
        bool stalled = atomic_load(&x->stalled);
        for (int i = 0; i < MAX_PAIRS; i++) {
            for (int k = 0; k < 2; k++) {
                const pair *p = &x->pairs[i];
                bool reads = p->from[k].begin == p->from[k].end, writes = p->from[1 - k].begin < p->from[1 - k].end;
                short events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
                fds[1 + 2 * i + k] = (struct pollfd){.fd = stalled ? -1 : p->fd[k], .events = events};
            }
        }
        poll(fds, 1 + 2 * MAX_PAIRS, LOOK_MS);
        bool cuts = atomic_exchange(&x->cuts, false);
        for (int i = 0; i < MAX_PAIRS; i++) {
            pair *p = &x->pairs[i];
            if (p->fd[0] >= 0 && (cuts || (!stalled && !pass(x, p)))) drop(p);
        }
        if (fds[0].revents) accept_connection(x);
    }
    return NULL;
}

int kin_proxy_open(kin_proxy **out, uint16_t to, kin_err *err) {
    struct sockaddr_in at = loopback(0);
    socklen_t n = sizeof at;
    kin_proxy *x = *out = calloc(1, sizeof *x);
    if (!x) return kin_err_set(err, "out of memory");
    x->to = to;
    for (int i = 0; i < MAX_PAIRS; i++) x->pairs[i].fd[0] = x->pairs[i].fd[1] = -1;
    x->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (x->listener >= 0 && bind(x->listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(x->listener, 16) == 0 &&
        getsockname(x->listener, (struct sockaddr *)&at, &n) == 0) {
        x->port = ntohs(at.sin_port);
        if (pthread_create(&x->thread, NULL, run, x) == 0) return 0;
    }
    if (x->listener >= 0) close(x->listener);
    free(x);
    *out = NULL;
    return kin_err_set(err, "no proxy: %s", strerror(errno));
}

void kin_proxy_close(kin_proxy *x) {
    if (!x) return;
    atomic_store(&x->stop, true);
    pthread_join(x->thread, NULL);
    for (int i = 0; i < MAX_PAIRS; i++) drop(&x->pairs[i]);
    close(x->listener);
    free(x);
}

uint16_t kin_proxy_port(const kin_proxy *x) {
    return x->port;
}

void kin_proxy_cut(kin_proxy *x) {
    atomic_store(&x->cuts, true);
}

void kin_proxy_stall(kin_proxy *x, bool stalled) {
    atomic_store(&x->stalled, stalled);
}

void kin_proxy_corrupt(kin_proxy *x) {
    atomic_store(&x->corrupts, true);
}

void kin_proxy_limit(kin_proxy *x, uint32_t bytes) {
    atomic_store(&x->limit, bytes);
}

void kin_proxy_slow(kin_proxy *x, uint32_t bytes_s) {
    atomic_store(&x->bytes_s, bytes_s);
}

uint32_t kin_proxy_n_accepted(const kin_proxy *x) {
    return atomic_load(&x->n_accepted);
}
