#include "pipeline/exchange.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/tls_socket.h"
#include "sys/io.h"

enum {
    SPIN_NS = 50000, // measured by bench/sum.c: a sleep costs some 15 µs more
    SLEEP_MS = 20,   // then it checks whether the epoch is over, or the user has stopped
    HEAD = KIN_FRAME_HEADER + KIN_PROTO_SUM_HEAD,
    OWN_FRAME_BYTES = 2048, // limit for frames other than SUM: a PING of the link that this connection was
};

// A connection, and the incoming message on it.
typedef struct peer {
    kin_tls_socket socket;
    uint8_t header[KIN_FRAME_HEADER];
    size_t n_header;
    kin_frame frame;
    uint8_t *payload;
    size_t n_payload, cap;
    bool has_message; // a complete SUM: message points into the payload
    kin_proto_sum message;
} peer;

struct kin_exchange {
    kin_exchange_options o;

    pthread_mutex_t mutex; // guards the following
    kin_exchange_place place;
    struct {
        int fd;
        kin_tls *tls;
    } given[KIN_SHARE_RANKS]; // until the computing thread takes them
    int n_given;              // for this place
    bool is_accepted;         // the computing thread has taken them

    atomic_uint epoch; // of the place

    // The computing thread.
    kin_exchange_place at; // the place whose connections are in `peers`
    peer peers[KIN_SHARE_RANKS];
    uint32_t used;
    bool is_broken;
    kin_err why;
    uint64_t step;
    int round, i_sum;
    uint8_t *out; // an outgoing message
    float *total, *part;
    size_t cap; // in values
    kin_exchange_stats stats;
};

// ---- life

int kin_exchange_open(kin_exchange **out, const kin_exchange_options *o, kin_err *err) {
    kin_exchange *x = *out = calloc(1, sizeof *x);
    if (!x) return kin_err_set(err, "out of memory");
    x->o = *o;
    for (int r = 0; r < KIN_SHARE_RANKS; r++) x->peers[r].socket.fd = x->given[r].fd = -1;
    pthread_mutex_init(&x->mutex, NULL);
    return 0;
}

static void drop_given_of(kin_exchange *x, int rank) {
    if (x->given[rank].fd >= 0) close(x->given[rank].fd);
    kin_tls_close(x->given[rank].tls);
    x->given[rank].fd = -1;
    x->given[rank].tls = NULL;
}

static void drop_given(kin_exchange *x) {
    for (int r = 0; r < KIN_SHARE_RANKS; r++) drop_given_of(x, r);
}

static void drop_peer(peer *p) {
    kin_tls_socket_close(&p->socket);
    free(p->payload);
    *p = (peer){.socket.fd = -1};
}

void kin_exchange_close(kin_exchange *x) {
    if (!x) return;
    drop_given(x);
    for (int r = 0; r < KIN_SHARE_RANKS; r++) drop_peer(&x->peers[r]);
    pthread_mutex_destroy(&x->mutex);
    free(x->out);
    free(x->total);
    free(x->part);
    free(x);
}

void kin_exchange_enter(kin_exchange *x, const kin_exchange_place *place) {
    pthread_mutex_lock(&x->mutex);
    if (x->place.epoch != place->epoch) {
        drop_given(x);
        x->n_given = 0;
        x->is_accepted = false;
    }
    x->place = *place;
    atomic_store(&x->epoch, place->epoch);
    pthread_mutex_unlock(&x->mutex);
}

void kin_exchange_give(kin_exchange *x, uint32_t epoch, int rank, int fd, kin_tls *tls) {
    pthread_mutex_lock(&x->mutex);
    bool fits = epoch == x->place.epoch && !x->is_accepted;
    if (fits) {
        if (x->given[rank].fd < 0) x->n_given++;
        drop_given_of(x, rank);
        x->given[rank].fd = fd;
        x->given[rank].tls = tls;
    }
    pthread_mutex_unlock(&x->mutex);
    if (fits) return;
    close(fd);
    kin_tls_close(tls);
}

bool kin_exchange_is_complete(kin_exchange *x) {
    pthread_mutex_lock(&x->mutex);
    bool is_complete = x->place.n_ranks == 0 || x->n_given == x->place.n_ranks - 1;
    pthread_mutex_unlock(&x->mutex);
    return is_complete;
}

// ---- steps

// Takes over the connections for the epoch in use.
static int accept_connections(kin_exchange *x, kin_err *err) {
    for (int r = 0; r < KIN_SHARE_RANKS; r++) drop_peer(&x->peers[r]);
    pthread_mutex_lock(&x->mutex);
    x->at = x->place;
    bool fits = x->at.epoch == x->used && x->n_given == x->at.n_ranks - 1;
    for (int r = 0; r < KIN_SHARE_RANKS && fits; r++) {
        if (x->given[r].fd >= 0) fits = kin_tls_socket_open(&x->peers[r].socket, x->given[r].fd, x->given[r].tls, err) == 0;
        x->given[r].fd = -1;
        x->given[r].tls = NULL;
    }
    x->is_accepted = x->is_accepted || fits;
    pthread_mutex_unlock(&x->mutex);
    return fits ? 0 : kin_err_set(err, "the group is not connected");
}

void kin_exchange_use(kin_exchange *x, uint32_t epoch) {
    if (x->used == epoch) return;
    kin_io_block_sigpipe();
    x->used = epoch;
    x->is_broken = false;
    x->at = (kin_exchange_place){0};
}

static void begin(void *user, uint64_t step, int round) {
    kin_exchange *x = user;
    x->step = step;
    x->round = round;
    x->i_sum = 0;
}

bool kin_exchange_is_broken(const kin_exchange *x) {
    return x->is_broken;
}

kin_exchange_stats kin_exchange_get_stats(const kin_exchange *x) {
    return x->stats;
}

// ---- incoming messages

// A frame's header is complete: checks it, and makes room for its payload.
static int begin_frame(kin_exchange *x, peer *p, kin_err *err) {
    size_t most = HEAD - KIN_FRAME_HEADER + x->cap * sizeof(float);
    bool is_sum = p->frame.type == KIN_FRAME_SUM;
    if (p->frame.length > (is_sum ? most : OWN_FRAME_BYTES) || (is_sum && p->frame.epoch != x->used))
        return kin_err_set(err, "it sent an unexpected %s of %u bytes in epoch %u", kin_frame_name(p->frame.type),
                           (unsigned)p->frame.length, (unsigned)p->frame.epoch);
    if (p->cap >= p->frame.length) return 0;
    free(p->payload);
    p->cap = p->frame.length;
    p->payload = malloc(p->cap);
    return p->payload ? 0 : kin_err_set(err, "out of memory");
}

// Handles a complete frame. Frames of the former link are skipped.
static int handle_frame(peer *p, kin_err *err) {
    p->n_header = p->n_payload = 0;
    switch (p->frame.type) {
    case KIN_FRAME_PING:
    case KIN_FRAME_PONG: return 0;
    case KIN_FRAME_BYE: return kin_err_set(err, "it closed its connection");
    case KIN_FRAME_SUM: p->has_message = true; return kin_proto_decode_sum(p->payload, p->frame.length, &p->message, err);
    default: return kin_err_set(err, "it sent %s, which a group link does not accept", kin_frame_name(p->frame.type));
    }
}

static int read_some(kin_exchange *x, peer *p, size_t *n, kin_err *err) {
    if (p->n_header < KIN_FRAME_HEADER) {
        if (kin_tls_socket_receive(&p->socket, p->header + p->n_header, sizeof p->header - p->n_header, n, err) != 0)
            return KIN_FAIL;
        p->n_header += *n;
        if (kin_frame_decode(p->header, p->n_header, &p->frame, err) < 0) return KIN_FAIL;
        if (p->n_header == KIN_FRAME_HEADER && begin_frame(x, p, err) != 0) return KIN_FAIL;
    } else {
        if (kin_tls_socket_receive(&p->socket, p->payload + p->n_payload, p->frame.length - p->n_payload, n, err) != 0)
            return KIN_FAIL;
        p->n_payload += *n;
    }
    return p->n_header == KIN_FRAME_HEADER && p->n_payload == p->frame.length ? handle_frame(p, err) : 0;
}

// Reads until there is a message, or no more bytes for now.
static int read_message(kin_exchange *x, peer *p, bool *moved, kin_err *err) {
    for (size_t n = 1; !p->has_message && n > 0;) {
        if (read_some(x, p, &n, err) != 0) return KIN_FAIL;
        *moved = *moved || n > 0;
    }
    return 0;
}

// ---- waiting

static uint32_t bit(int rank) {
    return UINT32_C(1) << rank;
}

static int fail_peer(int rank, kin_err *err) {
    return kin_err_prefix(err, "device %d of the group", rank + 1);
}

// Polls all connections once. *done: nothing is left to send, and there is a message from each device in `from`.
static int poll_peers(kin_exchange *x, uint32_t from, bool *moved, bool *done, kin_err *err) {
    *moved = false;
    *done = true;
    for (int r = 0; r < x->at.n_ranks; r++) {
        peer *p = &x->peers[r];
        if (p->socket.fd < 0) continue;
        if (kin_tls_socket_has_to_send(&p->socket) && kin_tls_socket_send(&p->socket, moved, err) != 0) return fail_peer(r, err);
        if (from & bit(r) && read_message(x, p, moved, err) != 0) return fail_peer(r, err);
        *done = *done && !kin_tls_socket_has_to_send(&p->socket) && (!(from & bit(r)) || p->has_message);
    }
    return 0;
}

static void sleep_until_some(const kin_exchange *x, uint32_t from) {
    struct pollfd fds[KIN_SHARE_RANKS];
    nfds_t n = 0;
    for (int r = 0; r < x->at.n_ranks; r++) {
        const peer *p = &x->peers[r];
        short events = (short)((from & bit(r) && !p->has_message ? POLLIN : 0) |
                               (p->socket.fd >= 0 && kin_tls_socket_has_to_send(&p->socket) ? POLLOUT : 0));
        if (p->socket.fd >= 0 && events) fds[n++] = (struct pollfd){.fd = p->socket.fd, .events = events};
    }
    poll(fds, n, SLEEP_MS);
}

static bool is_stopped(const kin_exchange *x) {
    return x->o.stop && atomic_load(x->o.stop);
}

// Waits until all posted messages are sent, and there is a message from each device in `from`.
static int wait_for(kin_exchange *x, uint32_t from, kin_err *err) {
    kin_time moved_at = kin_clock_now();
    for (;;) {
        bool moved, done;
        if (poll_peers(x, from, &moved, &done, err) != 0) return KIN_FAIL;
        if (done) return 0;
        if (atomic_load(&x->epoch) != x->used) return kin_err_set(err, "the group's plan is over");
        if (is_stopped(x)) return kin_err_set(err, "stopped");
        if (x->o.n_signs) atomic_fetch_add_explicit(x->o.n_signs, 1, memory_order_relaxed);
        kin_time now = kin_clock_now();
        if (moved) moved_at = now;
        if (now - moved_at >= SPIN_NS) sleep_until_some(x, from);
    }
}

// ---- values

// Builds a message of these values in x->out. Returns its bytes.
static size_t make_message(kin_exchange *x, const float *values, size_t n) {
    size_t bytes = HEAD + (size_t)kin_activations_bytes(n, x->at.type);
    kin_proto_sum m = {
        .step = x->step, .round = (uint16_t)x->round, .i_sum = (uint16_t)x->i_sum, .type = x->at.type, .n_values = (uint32_t)n};
    kin_frame_encode(x->out, &(kin_frame){KIN_FRAME_SUM, x->used, (uint32_t)(bytes - KIN_FRAME_HEADER)});
    kin_proto_encode_sum_head(x->out + KIN_FRAME_HEADER, KIN_PROTO_SUM_HEAD, &m);
    kin_activations_encode(x->out + HEAD, values, n, x->at.type);
    return bytes;
}

static int post_message(kin_exchange *x, int to, size_t bytes, kin_err *err) {
    bool moved;
    if (kin_tls_write(x->peers[to].socket.tls, x->out, bytes, err) != 0 ||
        kin_tls_socket_send(&x->peers[to].socket, &moved, err) != 0)
        return fail_peer(to, err);
    return 0;
}

static int post(kin_exchange *x, int to, const float *values, size_t n, kin_err *err) {
    return post_message(x, to, make_message(x, values, n), err);
}

// Sends to all others; the values become what arrives there, after rounding.
static int post_to_others(kin_exchange *x, float *values, size_t n, kin_err *err) {
    size_t bytes = make_message(x, values, n);
    for (int i = 1; i < x->at.n_ranks; i++) { // starts after its own rank, so that not all devices send to the first one at once
        if (post_message(x, (x->at.rank + i) % x->at.n_ranks, bytes, err) != 0) return KIN_FAIL;
    }
    if (x->at.type != KIN_ACTIVATION_F32) kin_activations_decode(values, x->out + HEAD, n, x->at.type);
    return 0;
}

// Decodes the message of that device, which is there -> values // [n]
static int get(kin_exchange *x, int from, float *values, size_t n, kin_err *err) {
    peer *p = &x->peers[from];
    const kin_proto_sum *m = &p->message;
    p->has_message = false;
    bool fits = m->step == x->step && m->round == x->round && m->i_sum == x->i_sum && m->n_values == n && m->type == x->at.type;
    if (!fits) {
        kin_err_set(err, "out of step: it is at sum %d of step %llu with %u values, this device at sum %d of step %llu with %zu",
                    m->i_sum, (unsigned long long)m->step, (unsigned)m->n_values, x->i_sum, (unsigned long long)x->step, n);
        return fail_peer(from, err);
    }
    kin_activations_decode(values, m->values, n, m->type);
    return 0;
}

static int receive_values(kin_exchange *x, int from, float *values, size_t n, kin_err *err) {
    return wait_for(x, bit(from), err) == 0 ? get(x, from, values, n, err) : KIN_FAIL;
}

static void add_to(float *sum, const float *part, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] += part[i];
}

// Rounds the values as the others receive them.
static void round_as_sent(kin_exchange *x, float *values, size_t n) {
    if (x->at.type == KIN_ACTIVATION_F32) return;
    kin_activations_encode(x->out, values, n, x->at.type);
    kin_activations_decode(values, x->out, n, x->at.type);
}

// ---- the variants

static uint32_t others(const kin_exchange *x) {
    return (bit(x->at.n_ranks) - 1) & ~bit(x->at.rank);
}

// v // [n], the own part; all other parts are here -> their sum, in the order of the ranks
static int add_in_order(kin_exchange *x, float *v, size_t n, kin_err *err) {
    for (int r = 0; r < x->at.n_ranks; r++) {
        float *part = r == 0 ? x->total : x->part;
        if (r == x->at.rank)
            memcpy(part, v, n * sizeof *v);
        else if (get(x, r, part, n, err) != 0)
            return KIN_FAIL;
        if (r > 0) add_to(x->total, x->part, n);
    }
    memcpy(v, x->total, n * sizeof *v);
    return 0;
}

static int sum_by_mesh(kin_exchange *x, float *v, size_t n, kin_err *err) {
    if (post_to_others(x, v, n, err) != 0) return KIN_FAIL;
    return wait_for(x, others(x), err) == 0 ? add_in_order(x, v, n, err) : KIN_FAIL;
}

static int sum_by_star(kin_exchange *x, float *v, size_t n, kin_err *err) {
    int hub = x->at.n_ranks - 1;
    if (x->at.rank != hub) return post(x, hub, v, n, err) == 0 ? receive_values(x, hub, v, n, err) : KIN_FAIL;
    round_as_sent(x, v, n);
    if (wait_for(x, others(x), err) != 0 || add_in_order(x, v, n, err) != 0) return KIN_FAIL;
    return post_to_others(x, v, n, err) == 0 ? wait_for(x, 0, err) : KIN_FAIL;
}

static int sum_by_tree(kin_exchange *x, float *v, size_t n, kin_err *err) {
    int rank = x->at.rank, step = 1;
    for (; step < x->at.n_ranks && rank % (2 * step) == 0; step *= 2) {
        if (rank + step >= x->at.n_ranks) continue;
        if (receive_values(x, rank + step, x->part, n, err) != 0) return KIN_FAIL;
        add_to(v, x->part, n);
    }
    if (rank > 0 && (post(x, rank - step, v, n, err) != 0 || receive_values(x, rank - step, v, n, err) != 0)) return KIN_FAIL;
    if (rank == 0) round_as_sent(x, v, n);
    for (step /= 2; step > 0; step /= 2) {
        if (rank + step < x->at.n_ranks && post(x, rank + step, v, n, err) != 0) return KIN_FAIL;
    }
    return wait_for(x, 0, err);
}

// Returns the size of piece i of n values among n_ranks: [*begin, *begin + size)
static size_t piece_of(const kin_exchange *x, int i, size_t n, size_t *begin) {
    size_t n_ranks = (size_t)x->at.n_ranks, k = (size_t)i % n_ranks, unit = kin_activation_unit(x->at.type), n_units = n / unit;
    *begin = n_units * k / n_ranks * unit;
    return n_units * (k + 1) / n_ranks * unit - *begin;
}

// Sends piece `out` to the next device, and receives piece `in` from the previous one. adds: to the present values; else replaces
// them.
static int pass_round(kin_exchange *x, float *v, size_t n, int out, int in, bool adds, kin_err *err) {
    int n_ranks = x->at.n_ranks;
    size_t begin, count = piece_of(x, out, n, &begin);
    if (post(x, (x->at.rank + 1) % n_ranks, v + begin, count, err) != 0) return KIN_FAIL;
    count = piece_of(x, in, n, &begin);
    if (receive_values(x, (x->at.rank + n_ranks - 1) % n_ranks, adds ? x->part : v + begin, count, err) != 0) return KIN_FAIL;
    if (adds) add_to(v + begin, x->part, count);
    return 0;
}

static int sum_by_ring(kin_exchange *x, float *v, size_t n, kin_err *err) {
    int n_ranks = x->at.n_ranks, at = x->at.rank + n_ranks;
    for (int s = 0; s < n_ranks - 1; s++) {
        if (pass_round(x, v, n, at - s, at - s - 1, true, err) != 0) return KIN_FAIL;
    }
    size_t begin, count = piece_of(x, at + 1, n, &begin); // the piece that is complete here
    round_as_sent(x, v + begin, count);
    for (int s = 0; s < n_ranks - 1; s++) {
        if (pass_round(x, v, n, at + 1 - s, at - s, false, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- sums

static int grow(kin_exchange *x, size_t n, kin_err *err) {
    if (n <= x->cap) return 0;
    free(x->out);
    free(x->total);
    free(x->part);
    x->out = malloc(HEAD + n * sizeof(float));
    x->total = malloc(n * sizeof *x->total);
    x->part = malloc(n * sizeof *x->part);
    x->cap = x->out && x->total && x->part ? n : 0;
    return x->cap ? 0 : kin_err_set(err, "out of memory for a sum of %zu values", n);
}

static int sum_up(kin_exchange *x, float *v, size_t n, kin_err *err) {
    static int (*const variants[KIN_PROTO_ALLREDUCE_N])(kin_exchange * x, float *v, size_t n, kin_err *err) = {
        [KIN_PROTO_ALLREDUCE_MESH] = sum_by_mesh,
        [KIN_PROTO_ALLREDUCE_STAR] = sum_by_star,
        [KIN_PROTO_ALLREDUCE_TREE] = sum_by_tree,
        [KIN_PROTO_ALLREDUCE_RING] = sum_by_ring,
    };
    if (grow(x, n, err) != 0) return KIN_FAIL;
    if (x->at.epoch != x->used && accept_connections(x, err) != 0) return KIN_FAIL;
    size_t unit = kin_activation_unit(x->at.type);
    bool has_pieces = x->at.allreduce != KIN_PROTO_ALLREDUCE_RING || n / unit >= (size_t)x->at.n_ranks;
    if (x->i_sum == KIN_PROTO_MAX_SUMS || n % unit != 0 || !has_pieces)
        return kin_err_set(err, "a sum of this size is not supported");
    return variants[x->at.allreduce](x, v, n, err);
}

static int add(void *user, float *v, int n_rows, int n_embd, kin_err *err) {
    kin_exchange *x = user;
    kin_time begun = kin_clock_now();
    if (x->is_broken) {
        *err = x->why;
        return KIN_FAIL;
    }
    if (sum_up(x, v, (size_t)n_rows * (size_t)n_embd, err) != 0) {
        x->is_broken = true;
        x->why = *err;
        if (x->o.broken && !is_stopped(x)) x->o.broken(x->o.user, x->used, err->text);
        return KIN_FAIL;
    }
    x->i_sum++;
    x->stats.n_sums++;
    x->stats.sum_ns += kin_clock_now() - begun;
    return 0;
}

// Bytes for the own message, part and total, and for each other device its message, its output, and its socket's input.
static size_t bytes_of(int n_ranks, size_t n_values) {
    size_t values = n_values * sizeof(float), message = HEAD + values;
    return message + 2 * values + (size_t)(n_ranks - 1) * (message + kin_tls_output_bytes(message) + KIN_TLS_SOCKET_INPUT);
}

kin_sum kin_exchange_sum(kin_exchange *x) {
    return (kin_sum){.begin = begin, .add = add, .bytes = bytes_of, .user = x};
}
