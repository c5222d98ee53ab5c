#include "net/link.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/address.h"
#include "net/frame_reader.h"
#include "net/frame_writer.h"
#include "net/heartbeat.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"
#include "pure/proto/message.h"

enum {
    INPUT_BYTES = 64 << 10,  // one read from the socket
    WRITE_BYTES = 4 << 20,   // most in one write
    FLUSH_BYTES = 256 << 10, // a long frame leaves in such pieces, while the next is encrypted
    N_ADDRESSES = 8,         // of a name
};

typedef enum link_phase {
    RESOLVING,
    CONNECTING,
    HANDSHAKE,
    OPEN,
    LINGERING, // closed by the owner; what is queued gets out
    ENDING,    // waits for libuv to let go
} link_phase;

struct kin_link {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    int n_held; // handles and requests that libuv still has

    link_phase phase;
    bool is_server, is_owned; // owned: the owner wants to hear of it
    kin_link_options o;
    kin_link_callbacks callbacks;
    void *user;
    char name[KIN_ADDRESS_TEXT], address[KIN_ADDRESS_HOST];
    char reason[sizeof((kin_err *)0)->text];
    uint16_t port;
    uint16_t version;                   // of the protocol
    kin_address addresses[N_ADDRESSES]; // to be tried
    int n_addresses, i_address;

    kin_tls *tls;
    kin_frame_reader inbox;
    uint8_t *in_flight; // what is being written, NULL: nothing
    size_t n_in_flight; // bytes of it
    size_t n_given;     // of these, given to libuv
    size_t n_refused;   // bytes of the frame that did not fit; 0: none
    uint64_t n_handed;  // bytes ever given to libuv

    kin_time begun, heard, ticked; // begun: the phase, as far as it has a limit
    kin_time moved;                // when bytes last left, or none waited
    uint64_t n_moved;
    kin_heartbeat pulse;
    kin_link_stats stats;
    uint8_t input[INPUT_BYTES];
};

// ---- the end

static void let_go(kin_link *l) {
    if (--l->n_held > 0) return;
    kin_tls_close(l->tls);
    kin_frame_reader_fini(&l->inbox);
    free(l->in_flight);
    free(l);
}

static void on_tcp_closed(uv_handle_t *handle) {
    let_go(handle->data);
}

// Looking up a name cannot always be stopped: the owner is told before all is let go.
static void on_timer_closed(uv_handle_t *handle) {
    kin_link *l = handle->data;
    if (l->is_owned && l->callbacks.closed) l->callbacks.closed(l->user, l, l->reason);
    l->is_owned = false;
    let_go(l);
}

// Of bytes that are to be written, as many as libuv is given at once: it counts them in 32 bits.
static uv_buf_t piece_of(const uint8_t *bytes, size_t n) {
    return uv_buf_init((char *)bytes, (unsigned)(n < WRITE_BYTES ? n : WRITE_BYTES));
}

// The last words of TLS, an alert or a goodbye, if the OS takes them at once.
static void say_goodbye(kin_link *l) {
    if (!l->tls || l->in_flight) return;
    size_t n;
    kin_tls_finish(l->tls);
    const uint8_t *bytes = kin_tls_output(l->tls, &n);
    uv_buf_t buf = piece_of(bytes, n);
    if (n > 0) uv_try_write((uv_stream_t *)&l->tcp, &buf, 1);
}

static void end(kin_link *l) {
    if (l->phase == ENDING) return;
    if (l->phase == RESOLVING) uv_cancel((uv_req_t *)&l->resolve);
    l->phase = ENDING;
    say_goodbye(l);
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
    if (!uv_is_closing((uv_handle_t *)&l->tcp)) uv_close((uv_handle_t *)&l->tcp, on_tcp_closed);
}

// The owner is told the reason, and says what it means.
static void end_because(kin_link *l, const char *fmt, ...) KIN_PRINTF(2, 3);
static void end_because(kin_link *l, const char *fmt, ...) {
    if (l->phase == ENDING) return;
    if (l->phase != LINGERING) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(l->reason, sizeof l->reason, fmt, args);
        va_end(args);
        if (l->is_owned) kin_log(KIN_LOG_DEBUG, "link %s: %s", l->name, l->reason);
    }
    end(l);
}

static void fail_aloud(kin_link *l, const kin_err *err) {
    end_because(l, "%s", err->text);
}

// ---- sending

static void flush(kin_link *l);

// Bytes that the OS has taken.
static uint64_t n_out(const kin_link *l) {
    return l->n_handed - uv_stream_get_write_queue_size((const uv_stream_t *)&l->tcp);
}

// Bytes that it has not.
static size_t waiting(const kin_link *l) {
    size_t n = 0;
    if (l->tls) kin_tls_output(l->tls, &n);
    return n + l->n_in_flight - l->n_given + uv_stream_get_write_queue_size((const uv_stream_t *)&l->tcp);
}

static void on_shut_down(uv_shutdown_t *shutdown, int status) {
    (void)shutdown, (void)status; // then the other side closes, or linger_ms are over
}

static void finish_linger(kin_link *l) {
    if (l->phase == LINGERING && waiting(l) == 0 && !uv_is_closing((uv_handle_t *)&l->tcp))
        uv_shutdown(&l->shutdown, (uv_stream_t *)&l->tcp, on_shut_down);
}

static void write_piece(kin_link *l);

static void end_flight(kin_link *l) {
    free(l->in_flight);
    l->in_flight = NULL;
    l->n_in_flight = l->n_given = 0;
}

static void on_written(uv_write_t *write, int status) {
    kin_link *l = write->data;
    bool has_more = l->n_given < l->n_in_flight;
    if (status < 0 || l->phase == ENDING || !has_more) end_flight(l);
    if (l->phase == ENDING) return;
    if (status < 0) {
        end_because(l, "the connection broke: %s", uv_strerror(status));
        return;
    }
    if (has_more) {
        write_piece(l);
        return;
    }
    flush(l);
    finish_linger(l);
    size_t n = waiting(l);
    if (l->phase != OPEN || l->n_refused == 0 || (n > 0 && n + l->n_refused > l->o.queue_max)) return;
    l->n_refused = 0;
    if (l->callbacks.drained) l->callbacks.drained(l->user, l);
}

static void write_piece(kin_link *l) {
    uv_buf_t buf = piece_of(l->in_flight + l->n_given, l->n_in_flight - l->n_given);
    l->n_given += buf.len;
    l->n_handed += buf.len;
    int rc = uv_write(&l->write, (uv_stream_t *)&l->tcp, &buf, 1, on_written);
    if (rc == 0) return;
    end_flight(l);
    end_because(l, "the connection broke: %s", uv_strerror(rc));
}

// Hands what is encrypted to the OS at once; what it does not take follows when it can.
static void flush(kin_link *l) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(l->tls, &n);
    if (n == 0 || l->in_flight || l->phase == ENDING) return;
    uv_buf_t buf = piece_of(bytes, n);
    int sent = uv_try_write((uv_stream_t *)&l->tcp, &buf, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        end_because(l, "the connection broke: %s", uv_strerror(sent));
        return;
    }
    if (sent < 0) sent = 0;
    l->n_handed += (uint64_t)sent;
    if ((size_t)sent == n) {
        kin_tls_output_done(l->tls);
        return;
    }
    l->in_flight = kin_tls_output_take(l->tls, &l->n_in_flight);
    l->n_given = (size_t)sent;
    write_piece(l);
}

// Between the records of a frame.
static int flush_long(void *user, kin_err *err) {
    kin_link *l = user;
    size_t n;
    kin_tls_output(l->tls, &n);
    if (n >= FLUSH_BYTES) flush(l);
    return l->phase == OPEN ? 0 : kin_err_set(err, "%s", l->reason);
}

kin_link_sent kin_link_send(kin_link *l, kin_frame_type type, uint32_t epoch, int n_parts, const kin_link_part *parts) {
    if (l->phase != OPEN) return KIN_LINK_SHUT;
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].n;
    kin_assert(n <= kin_frame_cap(type));
    size_t n_wire = kin_frame_writer_wire_bytes(n), n_waiting = waiting(l);
    // Why a link closes is said even to who does not read: there is room for one BYE more.
    size_t n_most = l->o.queue_max + (type == KIN_FRAME_BYE ? n_wire : 0);
    if (n_waiting > 0 && n_waiting + n_wire > n_most) {
        l->n_refused = n_wire;
        return KIN_LINK_FULL;
    }
    kin_frame frame = {.type = type, .epoch = epoch, .length = (uint32_t)n};
    kin_err err;
    if (kin_frame_writer_put(l->tls, &frame, n_parts, parts, flush_long, l, &err) != 0) fail_aloud(l, &err);
    flush(l);
    if (l->phase != OPEN) return KIN_LINK_SHUT;
    l->stats.frames_out++;
    if (n_waiting == 0) l->moved = kin_clock_now();
    return waiting(l) == 0 ? KIN_LINK_SENT : KIN_LINK_QUEUED;
}

// ---- frames of the link's own

static void send_own(kin_link *l, kin_frame_type type, const void *bytes, size_t n) {
    size_t n_refused = l->n_refused; // of the owner's frame, if any
    kin_link_send(l, type, 0, 1, &(kin_link_part){bytes, n});
    l->n_refused = n_refused;
}

static void send_ping(kin_link *l) {
    uint8_t bytes[KIN_FRAME_READER_OWN_BYTES];
    kin_proto_ping ping = {.time = kin_clock_now()};
    send_own(l, KIN_FRAME_PING, bytes, kin_proto_encode_ping(bytes, sizeof bytes, &ping));
}

static void send_bye(kin_link *l, const char *reason) {
    uint8_t bytes[KIN_FRAME_READER_OWN_BYTES];
    kin_proto_bye bye;
    kin_label_set(bye.reason, KIN_PROTO_MAX_REASON, reason ? reason : "");
    send_own(l, KIN_FRAME_BYE, bytes, kin_proto_encode_bye(bytes, sizeof bytes, &bye));
}

static int take_ping(kin_link *l, kin_err *err) {
    uint8_t bytes[KIN_FRAME_READER_OWN_BYTES];
    kin_proto_ping ping;
    if (kin_proto_decode_ping(l->inbox.payload, l->inbox.frame.length, &ping, err) != 0) return KIN_FAIL;
    kin_proto_pong pong = {.time = ping.time, .own = kin_clock_now()};
    send_own(l, KIN_FRAME_PONG, bytes, kin_proto_encode_pong(bytes, sizeof bytes, &pong));
    return 0;
}

static int take_pong(kin_link *l, kin_err *err) {
    kin_proto_pong pong;
    if (kin_proto_decode_pong(l->inbox.payload, l->inbox.frame.length, &pong, err) != 0) return KIN_FAIL;
    kin_heartbeat_add(&l->pulse, pong.time, pong.own, kin_clock_now());
    return 0;
}

static int take_bye(kin_link *l, kin_err *err) {
    kin_proto_bye bye;
    if (kin_proto_decode_bye(l->inbox.payload, l->inbox.frame.length, &bye, err) != 0) return KIN_FAIL;
    end_because(l, KIN_GOODBYE_CLOSED "%s%s", bye.reason[0] ? ": " : "", bye.reason);
    return 0;
}

static void take_own(kin_link *l) {
    kin_err err;
    int rc = l->inbox.frame.type == KIN_FRAME_PING   ? take_ping(l, &err)
             : l->inbox.frame.type == KIN_FRAME_PONG ? take_pong(l, &err)
                                                     : take_bye(l, &err);
    if (rc != 0) fail_aloud(l, &err);
}

// ---- receiving

static void take_frame(kin_link *l) {
    l->stats.frames_in++;
    if (kin_frame_reader_is_own(l->inbox.frame.type))
        take_own(l);
    else
        l->callbacks.frame(l->user, l, &l->inbox.frame, l->inbox.payload);
}

static void read_frames(kin_link *l) {
    while (l->phase == OPEN) {
        kin_err err;
        kin_frame_reader_state state = kin_frame_reader_pull(&l->inbox, l->tls, l->o.frame_max, &err);
        if (state == KIN_FRAME_READER_MORE) return;
        if (state == KIN_FRAME_READER_FAILED)
            fail_aloud(l, &err);
        else
            take_frame(l);
    }
}

// ---- the handshake, and what comes

static void become_open(kin_link *l) {
    l->phase = OPEN;
    l->heard = l->moved = kin_clock_now();
    send_ping(l);
    if (l->phase == OPEN && l->callbacks.opened) l->callbacks.opened(l->user, l);
}

static void take_bytes(kin_link *l, const uint8_t *bytes, size_t n) {
    kin_err err;
    l->stats.bytes_in += n;
    l->heard = kin_clock_now();
    if (l->phase == LINGERING) return;
    if (kin_tls_feed(l->tls, bytes, n, &err) != 0) {
        fail_aloud(l, &err);
        return;
    }
    flush(l);
    if (l->phase == HANDSHAKE && kin_tls_state_now(l->tls) == KIN_TLS_OPEN) become_open(l);
    read_frames(l);
    if (l->phase == OPEN && kin_tls_state_now(l->tls) == KIN_TLS_CLOSED) end_because(l, KIN_GOODBYE_CLOSED);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void)suggested;
    kin_link *l = handle->data;
    *buf = uv_buf_init((char *)l->input, sizeof l->input);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    kin_link *l = stream->data;
    if (n > 0)
        take_bytes(l, (const uint8_t *)buf->base, (size_t)n);
    else if (n == UV_EOF)
        end_because(l, l->phase == HANDSHAKE ? "the other side hung up during the handshake"
                                             : "the connection ended without a goodbye");
    else if (n < 0)
        end_because(l, "the connection broke: %s", uv_strerror((int)n));
}

static void set_name(kin_link *l, const kin_address *address) {
    kin_address_host(address, l->address);
    kin_address_format(address, l->name);
}

static void begin_handshake(kin_link *l) {
    kin_err err;
    kin_address address;
    int n = sizeof address.at;
    l->phase = HANDSHAKE;
    if (uv_tcp_getpeername(&l->tcp, (struct sockaddr *)&address.at, &n) == 0) set_name(l, &address);
    uv_tcp_nodelay(&l->tcp, 1);
    if (kin_tls_open(&l->tls, l->o.tls, !l->is_server, &err) != 0) {
        fail_aloud(l, &err);
        return;
    }
    flush(l);
    int rc = l->phase == HANDSHAKE ? uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read) : 0;
    if (rc != 0) end_because(l, "the connection broke: %s", uv_strerror(rc));
}

// ---- time

static kin_time after_ms(kin_time from, uint64_t ms) {
    return from + ms * 1000000;
}

static void next_address(kin_link *l);

static void tick_open(kin_link *l, kin_time now) {
    size_t n = waiting(l);
    if (n == 0 || n_out(l) != l->n_moved) l->moved = now;
    l->n_moved = n_out(l);
    if (now >= after_ms(l->heard, l->o.silence_ms))
        end_because(l, "no answer for %.1f s", l->o.silence_ms / 1e3);
    else if (now >= after_ms(l->moved, l->o.silence_ms))
        end_because(l, "the other side took none of the %zu bytes that wait for it for %u ms", n, l->o.silence_ms);
    else if (n == 0) // else it hears from us anyway
        send_ping(l);
}

static void tick(uv_timer_t *timer) {
    kin_link *l = timer->data;
    kin_time now = kin_clock_now();
    // A late tick: this process was stopped or busy, and what the others sent waits to be read.
    if (now >= after_ms(l->ticked, l->o.ping_ms + l->o.silence_ms / 2)) l->heard = l->moved = now;
    l->ticked = now;
    bool is_late = now >= after_ms(l->begun, l->phase == LINGERING ? l->o.linger_ms : l->o.handshake_ms);
    if (l->phase == OPEN)
        tick_open(l, now);
    else if (is_late && l->phase == LINGERING)
        end(l);
    else if (is_late)
        end_because(l, l->phase == HANDSHAKE ? "no handshake within %u ms" : "no answer within %u ms", l->o.handshake_ms);
    else if (l->phase == CONNECTING &&
             now >= after_ms(l->begun, (uint64_t)l->o.handshake_ms * (unsigned)l->i_address / (unsigned)l->n_addresses))
        next_address(l);
}

// ---- opening

kin_link_options kin_link_options_default(kin_tls_ctx *tls) {
    return (kin_link_options){.tls = tls,
                              .frame_max = KIN_LINK_FRAME_MAX_FIRST,
                              .queue_max = 16 << 20,
                              .handshake_ms = 3000,
                              .ping_ms = 300,
                              .silence_ms = 1500,
                              .linger_ms = 1000};
}

// libuv writes with write(): a connection that the other side has closed would end the process.
static void block_sigpipe(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int open_link(kin_link **out, uv_loop_t *loop, const kin_link_options *o, const kin_link_callbacks *callbacks, void *user,
                     kin_err *err) {
    kin_link *l = *out = malloc(sizeof *l);
    if (!l) return kin_err_set(err, "out of memory");
    block_sigpipe();
    memset(l, 0, offsetof(kin_link, input));
    l->o = *o;
    l->callbacks = *callbacks;
    l->user = user;
    l->is_owned = true;
    l->begun = l->ticked = l->heard = l->moved = kin_clock_now();
    l->n_held = 2;
    uv_tcp_init(loop, &l->tcp);
    uv_timer_init(loop, &l->timer);
    l->tcp.data = l->timer.data = l->connect.data = l->write.data = l->resolve.data = l;
    uv_timer_start(&l->timer, tick, o->ping_ms, o->ping_ms);
    return 0;
}

static void try_connect(kin_link *l);

static void on_attempt_closed(uv_handle_t *handle) {
    kin_link *l = handle->data;
    if (l->phase == ENDING) {
        let_go(l);
        return;
    }
    uv_tcp_init(handle->loop, &l->tcp);
    l->tcp.data = l;
    try_connect(l);
}

static void next_address(kin_link *l) {
    if (l->i_address < l->n_addresses && !uv_is_closing((uv_handle_t *)&l->tcp))
        uv_close((uv_handle_t *)&l->tcp, on_attempt_closed);
}

static void on_connected(uv_connect_t *connect, int status) {
    kin_link *l = connect->data;
    if (l->phase != CONNECTING || status == UV_ECANCELED) return;
    if (status == 0)
        begin_handshake(l);
    else if (l->i_address < l->n_addresses)
        next_address(l);
    else
        end_because(l, "no connection: %s", uv_strerror(status));
}

static void try_connect(kin_link *l) {
    l->phase = CONNECTING;
    const kin_address *address = &l->addresses[l->i_address++];
    set_name(l, address);
    int rc = uv_tcp_connect(&l->connect, &l->tcp, (const struct sockaddr *)&address->at, on_connected);
    if (rc != 0) on_connected(&l->connect, rc);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list) {
    kin_link *l = resolve->data;
    if (l->phase == RESOLVING && status == 0) l->n_addresses = kin_address_take(l->addresses, N_ADDRESSES, list, l->port);
    uv_freeaddrinfo(list);
    if (l->phase == RESOLVING && l->n_addresses > 0)
        try_connect(l);
    else if (l->phase == RESOLVING)
        end_because(l, "no such name: %s", status == 0 ? "it has no address" : uv_strerror(status));
    let_go(l);
}

int kin_link_connect(kin_link **out, uv_loop_t *loop, const char *address, uint16_t port, const kin_link_options *o,
                     const kin_link_callbacks *callbacks, void *user, kin_err *err) {
    kin_link *l;
    *out = NULL;
    if (open_link(&l, loop, o, callbacks, user, err) != 0) return KIN_FAIL;
    snprintf(l->name, sizeof l->name, "%s:%u", address, port);
    l->port = port;
    if (kin_address_parse(&l->addresses[0], address, port)) {
        l->n_addresses = 1;
        try_connect(l);
    } else {
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        int rc = uv_getaddrinfo(loop, &l->resolve, on_resolved, address, NULL, &hints);
        if (rc == 0)
            l->n_held++;
        else
            end_because(l, "no such name: %s", uv_strerror(rc));
    }
    *out = l;
    return 0;
}

int kin_link_serve(kin_link **out, uv_stream_t *server, const kin_link_options *o, const kin_link_callbacks *callbacks,
                   void *user, kin_err *err) {
    kin_link *l;
    *out = NULL;
    if (open_link(&l, server->loop, o, callbacks, user, err) != 0) return KIN_FAIL;
    l->is_server = true;
    int rc = uv_accept(server, (uv_stream_t *)&l->tcp);
    if (rc != 0) {
        l->is_owned = false;
        end(l);
        return kin_err_set(err, "cannot take a connection: %s", uv_strerror(rc));
    }
    begin_handshake(l);
    *out = l;
    return 0;
}

void kin_link_accept(kin_link *l, const kin_link_callbacks *callbacks, void *user) {
    l->callbacks = *callbacks;
    l->user = user;
}

void kin_link_set_version(kin_link *l, uint16_t version) {
    l->version = version;
}

uint16_t kin_link_version(const kin_link *l) {
    return l->version;
}

void kin_link_set_frame_max(kin_link *l, uint32_t n) {
    l->o.frame_max = n;
}

void kin_link_set_queue_max(kin_link *l, size_t n) {
    l->o.queue_max = n;
}

void kin_link_close(kin_link *l, const char *reason) {
    if (!l) return;
    l->is_owned = false;
    if (l->phase == OPEN) {
        send_bye(l, reason);
        kin_tls_finish(l->tls);
        flush(l);
    }
    if (l->phase != OPEN) {
        end(l);
        return;
    }
    l->phase = LINGERING;
    l->begun = kin_clock_now();
    finish_linger(l);
}

// ---- inspection

kin_link_stats kin_link_stats_now(const kin_link *l) {
    kin_link_stats stats = l->stats;
    stats.queued = waiting(l);
    stats.bytes_out = n_out(l);
    stats.rtt_ns = kin_heartbeat_rtt(&l->pulse);
    stats.clock_ahead_ns = kin_heartbeat_clock_ahead(&l->pulse);
    return stats;
}

bool kin_link_has_other_key(const kin_link *l) {
    return l->tls && kin_tls_has_other_key(l->tls);
}

const char *kin_link_name(const kin_link *l) {
    return l->name;
}

const char *kin_link_address(const kin_link *l) {
    return l->address;
}
