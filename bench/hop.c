// hop: measures how long a frame takes from one device's compute thread to the next one's, over loopback, without computing.
//
//     compute A ─mailbox─► net A ═══ link: TLS over TCP ═══► net B ─queue─► compute B        and back, one frame at a time
//
// Each direction is timed by one clock, from building the frame to taking it out of the other side's queue. For comparison: the
// same between the two net threads alone, and plain TCP between two threads that block in read(), which is the lower bound.
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/median.h"
#include "net/link.h"
#include "net/listener.h"
#include "net/mailbox.h"

enum { EXIT_USAGE = 2, N_POSTS = 64, WARM_UP = 500, MAX_BYTES = 1 << 20 };

static const char usage[] =
    "usage: hop [--hops N] [--pause-us N] [--json]\n"
    "\n"
    "Times hops between two devices in one process: 16 and 4096 floats, N each way (default: 5000).\n"
    "--pause-us: a device waits so long before it builds a frame, as if it computed; processors and sockets go idle.\n";

static unsigned pause_us; // set once by main

typedef struct figures {
    const char *transport;
    size_t n_floats;
    double median_us, p99_us;
} figures;

typedef struct samples {
    double *us; // [n_max]
    int n, n_max;
} samples;

static figures summarize(samples *s, const char *transport, size_t n_floats) {
    double *from = s->us + WARM_UP;
    int n = s->n - WARM_UP;
    double median_us = kin_median(from, n);
    return (figures){transport, n_floats, median_us, from[(int)((double)n * 0.99)]};
}

// ---- plain TCP

static void check(int ok, const char *what) {
    if (ok) return;
    perror(what);
    exit(1);
}

static void move_all(int fd, uint8_t *bytes, size_t n, int is_write) {
    for (size_t at = 0; at < n;) {
        ssize_t k = is_write ? write(fd, bytes + at, n - at) : read(fd, bytes + at, n - at);
        check(k > 0, "plain TCP");
        at += (size_t)k;
    }
}

static void open_tcp_pair(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    check(bind(server, (struct sockaddr *)&address, n) == 0 && listen(server, 1) == 0, "listen");
    getsockname(server, (struct sockaddr *)&address, &n);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fds[0], (struct sockaddr *)&address, n) == 0, "connect");
    fds[1] = accept(server, NULL, NULL);
    for (int i = 0; i < 2; i++) setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(server);
}

typedef struct echo {
    int fd, n_rounds;
    size_t n_bytes;
} echo;

static void *run_echo(void *arg) {
    echo *e = arg;
    uint8_t *bytes = malloc(e->n_bytes);
    for (int i = 0; i < e->n_rounds; i++) {
        move_all(e->fd, bytes, e->n_bytes, 0);
        move_all(e->fd, bytes, e->n_bytes, 1);
    }
    free(bytes);
    return NULL;
}

// Counts half of each round trip.
static void time_tcp(samples *s, size_t n_bytes) {
    int fds[2];
    pthread_t thread;
    open_tcp_pair(fds);
    echo e = {fds[1], s->n_max, n_bytes};
    uint8_t *bytes = calloc(1, n_bytes);
    check(pthread_create(&thread, NULL, run_echo, &e) == 0, "thread");
    for (s->n = 0; s->n < s->n_max; s->n++) {
        if (pause_us > 0) usleep(pause_us);
        kin_time begun = kin_clock_now();
        move_all(fds[0], bytes, n_bytes, 1);
        move_all(fds[0], bytes, n_bytes, 0);
        s->us[s->n] = (double)(kin_clock_now() - begun) / 2e3;
    }
    pthread_join(thread, NULL);
    free(bytes);
    close(fds[0]);
    close(fds[1]);
}

// ---- devices

typedef struct device {
    pthread_t net, compute;
    uv_loop_t loop;
    kin_tls_ctx *tls;
    kin_listener *listener; // of the second device
    kin_link *link;
    kin_mailbox *mailbox;
    size_t n_bytes;
    bool is_first, hands_over; // passes frames to and from the compute thread
    samples *samples;          // both devices' hops; only one frame is in flight at a time
    kin_time *built;           // when the frame in flight was built; shared by both devices
    uint8_t *frame;            // [n_bytes] to be sent; owned by the compute thread until it is posted

    pthread_mutex_t lock; // guards the following fields: the queue to the compute thread, of one frame
    pthread_cond_t filled;
    uint8_t *received; // [n_bytes]
    bool is_full, is_ended;
} device;

static void end_device(void *arg) {
    device *d = arg;
    kin_link_close(d->link, NULL);
    kin_listener_close(d->listener);
    kin_mailbox_close(d->mailbox);
    d->link = NULL;
    d->listener = NULL;
}

static void wake_compute(device *d, bool is_ended) {
    pthread_mutex_lock(&d->lock);
    d->is_full = true;
    d->is_ended = is_ended;
    pthread_cond_signal(&d->filled);
    pthread_mutex_unlock(&d->lock);
}

static void send_frame(void *arg) {
    device *d = arg;
    kin_link_send(d->link, KIN_FRAME_STEP, 1, 1, &(kin_frame_part){d->frame, d->n_bytes});
}

static void build_frame(device *d) {
    if (pause_us > 0) usleep(pause_us);
    memset(d->frame, d->samples->n, d->n_bytes);
    *d->built = kin_clock_now();
}

// Records a finished hop; returns false after the last one.
static bool count_hop(device *d) {
    samples *s = d->samples;
    s->us[s->n++] = (double)(kin_clock_now() - *d->built) / 1e3;
    return s->n < s->n_max;
}

static void *compute(void *arg) {
    device *d = arg;
    for (;;) {
        pthread_mutex_lock(&d->lock);
        while (!d->is_full) pthread_cond_wait(&d->filled, &d->lock);
        d->is_full = false;
        bool is_ended = d->is_ended;
        pthread_mutex_unlock(&d->lock);
        if (is_ended) return NULL;
        bool is_last = !count_hop(d);
        if (!is_last) build_frame(d);
        kin_mailbox_call(d->mailbox, is_last ? end_device : send_frame, d);
        if (is_last) return NULL;
    }
}

static void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    device *d = user;
    (void)link;
    memcpy(d->received, payload, frame->length);
    if (d->hands_over) {
        wake_compute(d, false);
    } else if (count_hop(d)) {
        build_frame(d);
        send_frame(d);
    } else {
        end_device(d);
    }
}

static void on_opened(void *user, kin_link *link) {
    device *d = user;
    d->link = link;
    kin_link_set_frame_max(link, MAX_BYTES);
    build_frame(d);
    send_frame(d);
}

static void on_closed(void *user, kin_link *link, const char *reason) {
    device *d = user;
    (void)link, (void)reason;
    d->link = NULL;
    if (d->hands_over) wake_compute(d, true);
    end_device(d);
}

static const kin_link_callbacks callbacks = {on_opened, on_frame, NULL, on_closed};

static void on_accepted(void *user, kin_link *link) {
    device *d = user;
    d->link = link;
    kin_link_set_frame_max(link, MAX_BYTES);
    kin_link_accept(link, &callbacks, d);
}

static void *run_net(void *arg) {
    device *d = arg;
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
    return NULL;
}

static void open_device(device *d, const device *other) {
    kin_err err = {""};
    uv_loop_init(&d->loop);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->filled, NULL);
    d->frame = calloc(1, d->n_bytes);
    d->received = calloc(1, d->n_bytes);
    int rc = kin_mailbox_open(&d->mailbox, &d->loop, N_POSTS, &err);
    kin_link_options o = kin_link_options_default(d->tls);
    kin_listener_options lo = kin_listener_options_default(d->tls);
    if (rc == 0 && d->is_first)
        rc = kin_link_connect(&d->link, &d->loop, "127.0.0.1", kin_listener_port(other->listener), &o, &callbacks, d, &err);
    else if (rc == 0)
        rc = kin_listener_open(&d->listener, &d->loop, "127.0.0.1", 0, &lo, on_accepted, d, &err);
    if (rc == 0) return;
    fprintf(stderr, "hop: %s\n", err.text);
    exit(1);
}

static void time_links(samples *s, size_t n_bytes, bool hands_over) {
    static const uint8_t key[KIN_TLS_KEY_BYTES] = {1};
    kin_tls_ctx *tls;
    kin_time built;
    s->n = 0;
    check(kin_tls_ctx_open(&tls, key, NULL) == 0, "TLS");
    device *d = calloc(2, sizeof *d);
    for (int i = 1; i >= 0; i--) {
        d[i].is_first = i == 0;
        d[i].tls = tls;
        d[i].n_bytes = n_bytes;
        d[i].hands_over = hands_over;
        d[i].samples = s;
        d[i].built = &built;
        open_device(&d[i], &d[1]);
    }
    for (int i = 0; i < 2; i++) {
        check(pthread_create(&d[i].net, NULL, run_net, &d[i]) == 0, "thread");
        if (hands_over) check(pthread_create(&d[i].compute, NULL, compute, &d[i]) == 0, "thread");
    }
    for (int i = 0; i < 2; i++) {
        if (hands_over) pthread_join(d[i].compute, NULL);
        pthread_join(d[i].net, NULL);
        kin_mailbox_free(d[i].mailbox);
        free(d[i].frame);
        free(d[i].received);
    }
    free(d);
    kin_tls_ctx_close(tls);
}

// ---- figures

static void print_table(const figures *f, int n) {
    printf("%-40s %8s %12s %12s\n", "one way", "floats", "median", "p99");
    for (int i = 0; i < n; i++)
        printf("%-40s %8zu %9.1f us %9.1f us\n", f[i].transport, f[i].n_floats, f[i].median_us, f[i].p99_us);
}

static void print_json(const figures *f, int n) {
    printf("[");
    for (int i = 0; i < n; i++)
        printf("%s{\"way\": \"%s\", \"n_floats\": %zu, \"median_us\": %.1f, \"p99_us\": %.1f}", i ? ",\n " : "", f[i].transport,
               f[i].n_floats, f[i].median_us, f[i].p99_us);
    printf("]\n");
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"hops", required_argument, NULL, 'n'},
                                            {"pause-us", required_argument, NULL, 'p'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int n_hops = 5000, c;
    bool json = false;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'n') n_hops = atoi(optarg);
        if (c == 'p') pause_us = (unsigned)atoi(optarg);
        if (c == 'j') json = true;
        if (c == 'h' || c == '?') {
            fputs(usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : EXIT_USAGE;
        }
    }
    if (n_hops < 100) n_hops = 100;
    samples s = {.n_max = WARM_UP + n_hops * 2};
    s.us = calloc((size_t)s.n_max, sizeof *s.us);
    figures f[6];
    int n = 0;
    for (size_t n_floats = 16; n_floats <= 4096; n_floats *= 256) {
        size_t n_bytes = n_floats * sizeof(float);
        time_tcp(&s, n_bytes);
        f[n++] = summarize(&s, "plain TCP, blocking", n_floats);
        time_links(&s, n_bytes, false);
        f[n++] = summarize(&s, "link, net threads alone", n_floats);
        time_links(&s, n_bytes, true);
        f[n++] = summarize(&s, "link, compute thread to compute thread", n_floats);
    }
    if (json)
        print_json(f, n);
    else
        print_table(f, n);
    free(s.us);
    return 0;
}
