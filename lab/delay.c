// delay: a wire with latency. Carries Ethernet frames between two network interfaces and sends each of them a set time after it
// arrived, in the same order. Loses none, unless it must carry more than it can hold, or is told to swallow large ones. For labs
// whose kernel has no netem.
//
// Frames are read and written through packet sockets with their offload header (PACKET_VNET_HDR), so a frame of 64 KiB that the
// sender's kernel left for a network card to cut passes whole, with its checksum not yet filled in. One thread; each direction
// has its own queue. Time counts from the kernel's timestamp of arrival, so a late wake-up here does not add to a late wake-up at
// the other end.
//
// Jitter is drawn for each slot of time, not for each frame: frames must not overtake each other, so with a draw per frame every
// busy moment would get the largest delay. It depends on seed, direction and slot only.
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

enum {
    FRAME_MAX = 65536 + 256, // largest frame that a kernel makes of TCP over IPv4, including headers
    QUEUE_BYTES = 64 << 20,  // capacity of one direction: 50 ms at 10 Gbit/s
    SOCKET_BYTES = 32 << 20, // what the kernel holds for this program
    BATCH = 64,              // frames taken from one side before it is the other's turn
    SLOT_MS_MIN = 1,         // shortest slot of jitter
    USAGE = 2,
};

static const char usage[] =
    "usage: delay [--delay TIME] [--jitter TIME] [--seed N] [--swallow BYTES] INTERFACE INTERFACE\n"
    "\n"
    "Carries frames between the two interfaces, both ways, until SIGTERM.\n"
    "\n"
    "  --delay TIME   each frame takes at least this long (0.5ms, 300us, 1s; at most 10s; default 0us)\n"
    "  --jitter TIME  and up to this much more\n"
    "  --seed N       of the jitter\n"
    "  --swallow N    frames of more than N bytes get lost without an error, as with a wrong MTU (0: none; default)\n";

typedef struct options {
    uint64_t delay_ns, jitter_ns, seed, most_bytes; // most_bytes 0: of any size
    const char *interfaces[2];
} options;

// One direction of the wire. The queue is a ring of records {header, frame}; no record is split at its end.
typedef struct path {
    int from, to; // packet sockets
    uint64_t number;
    uint8_t *queue;
    size_t begin, end, wrap; // begin == end: empty; wrap: end of the records when `end` went back to 0
    uint64_t due_last;
    uint64_t n_frames, n_bytes, n_lost, n_swallowed, late_ns_sum, late_ns_max;
} path;

typedef struct record {
    uint64_t due_ns;
    uint64_t length; // of the offload header and the frame that follow
} record;

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

_Noreturn static void fail(const char *what, const char *of) {
    fprintf(stderr, "delay: %s %s: %s\n", what, of, strerror(errno));
    exit(1);
}

// ---- the queue

// Returns room for a record of the largest frame, or NULL.
static record *queue_room(path *w) {
    const size_t most = sizeof(record) + FRAME_MAX;
    if (w->begin == w->end) w->begin = w->end = 0;
    if (w->begin <= w->end) {
        if (QUEUE_BYTES - w->end >= most) return (record *)(w->queue + w->end);
        if (w->begin <= most) return NULL;
        w->wrap = w->end;
        w->end = 0;
    }
    return w->begin - w->end > most ? (record *)(w->queue + w->end) : NULL;
}

static size_t record_bytes(const record *r) {
    return (sizeof *r + r->length + 7) & ~(size_t)7;
}

static void queue_push(path *w, const record *r) {
    w->end += record_bytes(r);
}

static record *queue_first(path *w) {
    if (w->begin == w->end) return NULL;
    if (w->end < w->begin && w->begin == w->wrap) w->begin = 0;
    return w->begin == w->end ? NULL : (record *)(w->queue + w->begin);
}

static void queue_pop(path *w) {
    w->begin += record_bytes((record *)(w->queue + w->begin));
}

// ---- time

static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t jitter_ns(const options *o, const path *w, uint64_t at_ns) {
    if (!o->jitter_ns) return 0;
    const uint64_t slot_ns = o->jitter_ns > SLOT_MS_MIN * NS_PER_MS ? o->jitter_ns : SLOT_MS_MIN * NS_PER_MS;
    return mix(mix(o->seed ^ w->number << 56) + at_ns / slot_ns) % (o->jitter_ns + 1);
}

// Returns how long ago the kernel received the frame. The timestamp's clock can be set: a step of that clock must not delay
// frames.
static uint64_t age_ns(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPNS) continue;
        struct timespec t;
        memcpy(&t, CMSG_DATA(c), sizeof t);
        const uint64_t now = now_ns(CLOCK_REALTIME), then = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
        return then < now && now - then < NS_PER_S ? now - then : 0;
    }
    return 0;
}

// ---- frames

// A link that is down is a wire that carries nothing, not an error.
static bool is_passing(int error) {
    return error == ENETDOWN || error == ENXIO || error == EAGAIN || error == EINTR;
}

static void receive_frames(const options *o, path *w) {
    for (int i = 0; i < BATCH; i++) {
        static uint8_t waste[FRAME_MAX];
        union {
            struct cmsghdr header;
            uint8_t bytes[CMSG_SPACE(sizeof(struct timespec))];
        } control;
        record *r = queue_room(w);
        struct iovec part = {.iov_base = r ? (void *)(r + 1) : waste, .iov_len = FRAME_MAX};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        const ssize_t n = recvmsg(w->from, &message, MSG_DONTWAIT);
        if (n < 0 && !is_passing(errno)) fail("cannot read from", o->interfaces[w->number]);
        if (n < 0 && errno != ENETDOWN) return;
        if (n <= 0) continue;
        if (!r || (message.msg_flags & MSG_TRUNC)) {
            w->n_lost++;
            continue;
        }
        if (o->most_bytes && (uint64_t)n - sizeof(struct virtio_net_hdr) > o->most_bytes) {
            w->n_swallowed++;
            continue;
        }
        const uint64_t arrived = now_ns(CLOCK_MONOTONIC) - age_ns(&message);
        const uint64_t due = arrived + o->delay_ns + jitter_ns(o, w, arrived);
        r->due_ns = w->due_last = due > w->due_last ? due : w->due_last;
        r->length = (uint64_t)n;
        queue_push(w, r);
    }
}

// Sends the frames that are due. Returns the time of the next one, or UINT64_MAX.
static uint64_t send_due(path *w) {
    for (int i = 0; i < BATCH; i++) {
        record *r = queue_first(w);
        if (!r) return UINT64_MAX;
        const uint64_t now = now_ns(CLOCK_MONOTONIC);
        if (r->due_ns > now) return r->due_ns;
        if (send(w->to, r + 1, r->length, 0) < 0) {
            w->n_lost++;
        } else {
            const uint64_t late = now - r->due_ns;
            w->n_frames++;
            w->n_bytes += r->length - sizeof(struct virtio_net_hdr);
            w->late_ns_sum += late;
            if (late > w->late_ns_max) w->late_ns_max = late;
        }
        queue_pop(w);
    }
    return 0;
}

static void carry(const options *o, path paths[2]) {
    struct pollfd polled[2] = {{paths[0].from, POLLIN, 0}, {paths[1].from, POLLIN, 0}};
    sigset_t none;
    sigemptyset(&none);
    while (!stopped) {
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            receive_frames(o, &paths[i]);
            const uint64_t due = send_due(&paths[i]);
            if (due < next) next = due;
        }
        const uint64_t now = now_ns(CLOCK_MONOTONIC), rest = next > now ? next - now : 0;
        const struct timespec wait = {(time_t)(rest / NS_PER_S), (long)(rest % NS_PER_S)};
        if (ppoll(polled, 2, next == UINT64_MAX ? NULL : &wait, &none) < 0 && errno != EINTR) fail("cannot wait for", "frames");
    }
}

// ---- start and end

static int open_interface(const char *name) {
    const int one = 1, bytes = SOCKET_BYTES;
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("cannot make a packet socket for", name);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
        fail("cannot set up the socket of", name);
    const struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
    if (!address.sll_ifindex || bind(fd, (const struct sockaddr *)&address, sizeof address))
        fail("cannot read from interface", name);
    return fd;
}

static void open_paths(const options *o, path paths[2]) {
    const int sockets[2] = {open_interface(o->interfaces[0]), open_interface(o->interfaces[1])};
    for (int i = 0; i < 2; i++) {
        paths[i] = (path){.from = sockets[i], .to = sockets[1 - i], .number = (uint64_t)i};
        paths[i].queue = mmap(NULL, QUEUE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (paths[i].queue == MAP_FAILED) fail("no memory for", "the queue");
    }
}

// Runs before everything that computes on this machine, and before lab/brake: otherwise frames would wait for a processor.
static void go_first(void) {
    const struct sched_param priority = {.sched_priority = 2};
    if (sched_setscheduler(0, SCHED_FIFO, &priority)) fprintf(stderr, "delay: no real-time priority here: frames may be late\n");
    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
}

static void report(const options *o, const path *w) {
    fprintf(stderr,
            "delay: %s to %s: %llu frames, %llu bytes, %llu lost, %llu swallowed; late by %.1f us on average, %.1f at most\n",
            o->interfaces[w->number], o->interfaces[1 - w->number], (unsigned long long)w->n_frames,
            (unsigned long long)w->n_bytes, (unsigned long long)w->n_lost, (unsigned long long)w->n_swallowed,
            w->n_frames ? (double)w->late_ns_sum / (double)w->n_frames / 1e3 : 0.0, (double)w->late_ns_max / 1e3);
}

_Noreturn static void refuse(const char *why) {
    fprintf(stderr, "delay: %s\n%s", why, usage);
    exit(USAGE);
}

static uint64_t parse_time(const char *text) {
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *unit;
    const double value = strtod(text, &unit);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (unit == text || strcmp(unit, units[i].name) != 0) continue;
        if (value >= 0 && value * units[i].ns <= 10e9) return (uint64_t)(value * units[i].ns);
    }
    refuse("a time is a number from 0 to 10 s with its unit: us, ms or s");
}

static options parse(int argc, char **argv) {
    static const struct option names[] = {{"delay", required_argument, NULL, 'd'},
                                          {"jitter", required_argument, NULL, 'j'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"swallow", required_argument, NULL, 'w'},
                                          {0}};
    options o = {.seed = 1};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == 'd')
            o.delay_ns = parse_time(optarg);
        else if (c == 'j')
            o.jitter_ns = parse_time(optarg);
        else if (c == 's')
            o.seed = strtoull(optarg, NULL, 10);
        else if (c == 'w')
            o.most_bytes = strtoull(optarg, NULL, 10);
        else
            refuse("unknown option");
    }
    if (argc - optind != 2) refuse("two interfaces are wanted");
    o.interfaces[0] = argv[optind];
    o.interfaces[1] = argv[optind + 1];
    return o;
}

// SIGTERM and SIGINT arrive only while waiting for frames: one that came just before would otherwise be missed.
static void catch_signals(void) {
    const struct sigaction action = {.sa_handler = stop};
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGTERM);
    sigaddset(&both, SIGINT);
    sigprocmask(SIG_BLOCK, &both, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

int main(int argc, char **argv) {
    const options o = parse(argc, argv);
    path paths[2];
    catch_signals();
    open_paths(&o, paths);
    go_first();
    puts("carrying");
    fflush(stdout);
    carry(&o, paths);
    report(&o, &paths[0]);
    report(&o, &paths[1]);
    return 0;
}
