#include "serve/http/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "serve/http/http_listener.h"
#include "serve/http/http_socket.h"
#include "sys/io.h"

enum {
    N_LISTENERS = 2,
    FILES_ELSE = 1024, // open files for the rest of the process
    TICK_MS_LEAST = 10,
    TICK_MS_MOST = 1000
};

struct kin_http {
    kin_http_sockets sockets; // first member: it is cast back to kin_http
    kin_http_socket list;     // head of the circular list
    int n_sockets;
    kin_http_listener *listeners[N_LISTENERS]; // NULL: none
    char *prefix;
    uint16_t port;
    uv_timer_t timer; // runs while there are sockets
    uint64_t tick_ms;
    bool is_closed, has_timer;
};

kin_http_options kin_http_options_default(void) {
    return (kin_http_options){.host = "localhost",
                              .limits = {.max_header = 64 << 10,
                                         .max_body = KIN_HTTP_MAX_BODY,
                                         .max_memory = 256 << 20,
                                         .max_connections = 16384,
                                         .header_ms = 15000,
                                         .idle_ms = 75000,
                                         .stall_ms = 30000,
                                         .max_pending = 4 << 20}};
}

// ---- connections

static void free_if_done(kin_http *h) {
    if (!h->is_closed || h->n_sockets > 0 || h->has_timer || h->sockets.service.memory.n_holds > 0) return;
    free(h->prefix);
    free(h);
}

static void on_released(void *user) {
    free_if_done(user);
}

static void on_timer_closed(uv_handle_t *timer) {
    kin_http *h = timer->data;
    h->has_timer = false;
    free_if_done(h);
}

static void on_tick(uv_timer_t *timer) {
    kin_http *h = timer->data;
    kin_time now = kin_clock_now();
    for (kin_http_socket *s = h->list.next; s != &h->list; s = s->next) kin_http_connection_tick(s->connection, now);
}

static void on_socket_closed(kin_http_socket *s, kin_http_sockets *sockets) {
    kin_http *h = (kin_http *)sockets;
    s->next->prev = s->prev;
    s->prev->next = s->next;
    if (--h->n_sockets == 0 && !h->is_closed) uv_timer_stop(&h->timer);
    free_if_done(h);
}

// Returns the connection that has been idle longest; NULL: none is idle.
static kin_http_socket *find_idlest(kin_http *h) {
    kin_http_socket *idlest = NULL;
    kin_time since, least = 0;
    for (kin_http_socket *s = h->list.next; s != &h->list; s = s->next) {
        if (!kin_http_connection_is_idle(s->connection, &since) || (idlest && since >= least)) continue;
        idlest = s;
        least = since;
    }
    return idlest;
}

static void on_connected(void *user, uv_stream_t *listener) {
    kin_http *h = user;
    kin_http_socket *s;
    if (kin_http_socket_accept(&s, &h->sockets, listener, NULL) != 0) return;
    s->prev = h->list.prev;
    s->next = &h->list;
    s->prev->next = s->next->prev = s;
    if (h->n_sockets++ == 0) uv_timer_start(&h->timer, on_tick, h->tick_ms, h->tick_ms);
    if (h->n_sockets > h->sockets.service.limits.max_connections) kin_http_connection_end(find_idlest(h)->connection);
}

// ---- open

// Returns the number of connections that the limit allows.
static int raise_file_limit(int n_wanted) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return n_wanted;
    rlim_t wanted = (rlim_t)n_wanted + FILES_ELSE;
    if (limit.rlim_cur >= wanted) return n_wanted;
    struct rlimit more = {.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
    return (int)(limit.rlim_cur > 2 * FILES_ELSE ? limit.rlim_cur - FILES_ELSE : limit.rlim_cur / 2);
}

static uint64_t tick_of(const kin_http_limits *l) {
    uint64_t ms = l->header_ms < l->idle_ms ? l->header_ms : l->idle_ms;
    if (l->stall_ms < ms) ms = l->stall_ms;
    ms /= 4;
    return ms < TICK_MS_LEAST ? TICK_MS_LEAST : ms > TICK_MS_MOST ? TICK_MS_MOST : ms;
}

static int listen_on(kin_http *h, uv_loop_t *loop, const kin_http_options *o, kin_err *err) {
    static const char *const localhost[] = {"127.0.0.1", "::1"};
    bool is_localhost = strcasecmp(o->host, "localhost") == 0;
    const char *first = is_localhost ? localhost[0] : o->host;
    if (kin_http_listener_open(&h->listeners[0], loop, first, o->port, on_connected, h, err) != 0) return KIN_FAIL;
    h->port = kin_http_listener_port(h->listeners[0]);
    if (!is_localhost || kin_http_listener_open(&h->listeners[1], loop, localhost[1], h->port, on_connected, h, err) == 0)
        return 0;
    // Some machines have no IPv6. On the others clients may try it first, so another program must not own that port.
    kin_http_listener *any;
    bool has_v6 = kin_http_listener_open(&any, loop, localhost[1], 0, on_connected, h, NULL) == 0;
    kin_http_listener_close(any);
    return has_v6 ? KIN_FAIL : 0;
}

static int set_prefix(kin_http *h, const char *prefix, kin_err *err) {
    size_t n = prefix ? strlen(prefix) : 0;
    while (n > 0 && prefix[n - 1] == '/') n--;
    if (n == 0) return 0;
    if (prefix[0] != '/') return kin_err_set(err, "the API prefix must begin with a slash, such as /kin, but is %s", prefix);
    h->prefix = strndup(prefix, n);
    return h->prefix ? 0 : kin_err_set(err, "out of memory");
}

int kin_http_open(kin_http **out, uv_loop_t *loop, const kin_http_options *options, const kin_http_callbacks *callbacks,
                  void *user, kin_err *err) {
    *out = NULL;
    kin_http *h = calloc(1, sizeof *h);
    if (!h) return kin_err_set(err, "out of memory");
    kin_io_block_sigpipe();
    uv_timer_init(loop, &h->timer);
    h->has_timer = true;
    h->timer.data = h;
    h->list.next = h->list.prev = &h->list;
    h->tick_ms = tick_of(&options->limits);
    h->sockets.tls = options->tls;
    h->sockets.closed = on_socket_closed;
    kin_http_service *s = &h->sockets.service;
    s->limits = options->limits;
    s->limits.max_connections = raise_file_limit(options->limits.max_connections);
    if (s->limits.max_body > KIN_HTTP_MAX_BODY) s->limits.max_body = KIN_HTTP_MAX_BODY;
    s->memory = (kin_http_memory){.max = options->limits.max_memory, .released = on_released, .user = h};
    s->callbacks = *callbacks;
    s->user = user;
    uint64_t seed;
    int rc = uv_random(NULL, NULL, &seed, sizeof seed, 0, NULL);
    if (rc != 0) kin_err_set(err, "cannot get random numbers: %s", uv_strerror(rc));
    kin_rng_seed(&s->rng, seed);
    if (rc == 0 && set_prefix(h, options->prefix, err) == 0 && listen_on(h, loop, options, err) == 0) {
        s->prefix = h->prefix;
        *out = h;
        return 0;
    }
    kin_http_close(h);
    return KIN_FAIL;
}

// ---- the end

static void stop_listening(kin_http *h) {
    for (int i = 0; i < N_LISTENERS; i++) {
        kin_http_listener_close(h->listeners[i]);
        h->listeners[i] = NULL;
    }
}

void kin_http_drain(kin_http *h) {
    stop_listening(h);
    h->sockets.service.is_draining = true;
    for (kin_http_socket *s = h->list.next; s != &h->list; s = s->next) kin_http_connection_drain(s->connection);
}

void kin_http_close(kin_http *h) {
    if (!h || h->is_closed) return;
    h->is_closed = true;
    stop_listening(h);
    for (kin_http_socket *s = h->list.next; s != &h->list; s = s->next) kin_http_connection_end(s->connection);
    uv_close((uv_handle_t *)&h->timer, on_timer_closed);
}

// ---- inspection

uint16_t kin_http_port(const kin_http *h) {
    return h->port;
}

int kin_http_n_connections(const kin_http *h) {
    return h->n_sockets;
}

int kin_http_n_exchanges(const kin_http *h) {
    int n = 0;
    for (const kin_http_socket *s = h->list.next; s != &h->list; s = s->next) n += kin_http_connection_is_busy(s->connection);
    return n;
}

size_t kin_http_memory_used(const kin_http *h) {
    return h->sockets.service.memory.used;
}
