#include "net/link.h"

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
#include "net/transport_tcp.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"
#include "pure/proto/message.h"

enum {
    QUEUE_MS = 300,
    BULK_BYTES = 2048,        // more than the heartbeats between two ticks
    MIN_IN_FLIGHT = 16 << 10, // what 100 kbit/s carries in 1.3 s
    MAX_IN_FLIGHT = 1 << 20,  // above it the OS manages the window
    LARGE_BYTES = 1000,       // a longer frame may exceed a path MTU that TCP overestimates
};

typedef enum link_phase {
    OPENING,
    OPEN,
    LINGERING, // closed by the owner; queued data is still sent
    ENDING,    // waiting for libuv to release it
} link_phase;

struct kin_link {
    uv_timer_t timer;
    kin_byte_stream *stream; // NULL: closed
    link_phase phase;
    bool is_owned; // the owner still expects callbacks
    kin_tls_fault fault;
    kin_link_options o;
    kin_link_callbacks callbacks;
    void *user;
    char name[KIN_ADDRESS_TEXT], address[KIN_ADDRESS_HOST]; // saved for when the stream is closed
    char reason[sizeof((kin_err *)0)->text];
    uint16_t version; // protocol version

    kin_frame_reader inbox;
    size_t n_refused; // bytes of the frame that was refused; 0: none

    kin_time begun, heard, ticked, ticked_before; // begun: also when lingering began
    kin_time moved;                               // when bytes were last sent or acknowledged, or none were waiting
    uint64_t n_moved;
    size_t n_unacknowledged;
    uint64_t n_acknowledged; // bytes
    kin_time acknowledged;   // when that last grew, or everything was acknowledged
    uint64_t n_came;         // bytes
    kin_time answered;       // send time of the last ping that was answered
    uint64_t trip_ns_least;  // shortest round trip; 0: no answer yet
    size_t max_in_flight;    // limit of the peer's bytes in flight; 0: the OS decides
    uint64_t stuck_ms;       // two thirds of the silence after which the peer ends the link
    uint64_t large_at;       // stream offset a little into the first large frame; 0: none sent
    kin_heartbeat pulse;
    kin_link_stats stats;
};

// ---- the stream

static kin_byte_stream_counts counts(const kin_link *l) {
    return l->stream ? l->stream->transport->counts(l->stream) : (kin_byte_stream_counts){0};
}

static size_t waiting(const kin_link *l) {
    return counts(l).waiting;
}

static void flush(kin_link *l) {
    if (l->stream) l->stream->transport->flush(l->stream);
}

static void close_stream(kin_link *l) {
    kin_byte_stream *s = l->stream;
    if (!s) return;
    snprintf(l->name, sizeof l->name, "%s", s->transport->name(s));
    snprintf(l->address, sizeof l->address, "%s", s->transport->address(s));
    l->fault = s->transport->fault(s);
    l->stats.bytes_in = counts(l).in;
    l->stats.bytes_out = counts(l).out;
    l->stream = NULL;
    s->transport->close(s);
}

// ---- the end

static kin_time after_ms(kin_time from, uint64_t ms) {
    return from + ms * 1000000;
}

static void on_timer_closed(uv_handle_t *handle) {
    kin_link *l = handle->data;
    if (l->is_owned && l->callbacks.closed) l->callbacks.closed(l->user, l, l->reason);
    kin_frame_reader_fini(&l->inbox);
    free(l);
}

static void end(kin_link *l) {
    if (l->phase == ENDING) return;
    l->phase = ENDING;
    close_stream(l);
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
}

// True if no large frame has ever arrived although small ones have: they opened the link, and the peer is still heard, but it
// has acknowledged nothing for stuck_ms.
static bool swallows_large(const kin_link *l, kin_time now) {
    bool is_stuck = l->n_unacknowledged > 0 && now >= after_ms(l->acknowledged, l->stuck_ms);
    return is_stuck && now < after_ms(l->heard, l->stuck_ms) && l->large_at > 0 && l->n_acknowledged < l->large_at;
}

// Ends the link; the owner gets the reason and reports it.
static void end_because(kin_link *l, const char *fmt, ...) KIN_PRINTF(2, 3);
static void end_because(kin_link *l, const char *fmt, ...) {
    if (l->phase == ENDING) return;
    if (l->phase != LINGERING) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(l->reason, sizeof l->reason, fmt, args);
        va_end(args);
        if (swallows_large(l, kin_clock_now())) snprintf(l->reason, sizeof l->reason, "%s", KIN_LINK_MTU);
        if (l->is_owned) kin_log(KIN_LOG_DEBUG, "link %s: %s", kin_link_name(l), l->reason);
    }
    end(l);
}

static void fail_aloud(kin_link *l, const kin_err *err) {
    end_because(l, "%s", err->text);
}

// ---- sending

kin_link_sent kin_link_send(kin_link *l, kin_frame_type type, uint32_t epoch, int n_parts, const kin_frame_part *parts) {
    if (l->phase != OPEN) return KIN_LINK_SHUT;
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].n;
    kin_assert(n <= kin_frame_cap(type));
    size_t n_wire = kin_frame_writer_wire_bytes(n), n_waiting = waiting(l);
    // A BYE may exceed the limit, so that a peer that reads slowly still gets the reason.
    size_t n_most = l->o.queue_max + (type == KIN_FRAME_BYE ? n_wire : 0);
    if (n_waiting > 0 && n_waiting + n_wire > n_most) {
        l->n_refused = n_wire;
        return KIN_LINK_FULL;
    }
    kin_frame frame = {.type = type, .epoch = epoch, .length = (uint32_t)n};
    kin_err err;
    if (n_wire > LARGE_BYTES && l->large_at == 0) l->large_at = counts(l).out + n_waiting + LARGE_BYTES;
    if (kin_frame_writer_put(l->stream, &frame, n_parts, parts, &err) != 0) fail_aloud(l, &err);
    flush(l);
    if (l->phase != OPEN) return KIN_LINK_SHUT;
    l->stats.frames_out++;
    if (n_waiting == 0) l->moved = kin_clock_now();
    return waiting(l) == 0 ? KIN_LINK_SENT : KIN_LINK_QUEUED;
}

// ---- the link's own frames

static void send_own(kin_link *l, kin_frame_type type, const void *bytes, size_t n) {
    size_t n_refused = l->n_refused; // the owner's refused frame, if any
    kin_link_send(l, type, 0, 1, &(kin_frame_part){bytes, n});
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
    kin_label_set_sentence(bye.reason, KIN_PROTO_MAX_REASON, reason ? reason : "");
    send_own(l, KIN_FRAME_BYE, bytes, kin_proto_encode_bye(bytes, sizeof bytes, &bye));
}

static int handle_ping(kin_link *l, kin_err *err) {
    uint8_t bytes[KIN_FRAME_READER_OWN_BYTES];
    kin_proto_ping ping;
    if (kin_proto_decode_ping(l->inbox.payload, l->inbox.frame.length, &ping, err) != 0) return KIN_FAIL;
    kin_proto_pong pong = {.time = ping.time, .own = kin_clock_now()};
    send_own(l, KIN_FRAME_PONG, bytes, kin_proto_encode_pong(bytes, sizeof bytes, &pong));
    return 0;
}

static int handle_pong(kin_link *l, kin_err *err) {
    kin_proto_pong pong;
    if (kin_proto_decode_pong(l->inbox.payload, l->inbox.frame.length, &pong, err) != 0) return KIN_FAIL;
    kin_time now = kin_clock_now();
    kin_heartbeat_add(&l->pulse, pong.time, pong.own, now);
    if (pong.time > l->answered && pong.time <= now) l->answered = pong.time; // the time comes from the peer, so check it
    if (l->trip_ns_least == 0 || now - l->answered < l->trip_ns_least) l->trip_ns_least = now - l->answered;
    return 0;
}

static int handle_bye(kin_link *l, kin_err *err) {
    kin_proto_bye bye;
    if (kin_proto_decode_bye(l->inbox.payload, l->inbox.frame.length, &bye, err) != 0) return KIN_FAIL;
    end_because(l, KIN_GOODBYE_CLOSED "%s%s", bye.reason[0] ? ": " : "", bye.reason);
    return 0;
}

static void handle_own(kin_link *l) {
    kin_err err;
    int rc = l->inbox.frame.type == KIN_FRAME_PING   ? handle_ping(l, &err)
             : l->inbox.frame.type == KIN_FRAME_PONG ? handle_pong(l, &err)
                                                     : handle_bye(l, &err);
    if (rc != 0) fail_aloud(l, &err);
}

// ---- receiving

static void handle_frame(kin_link *l) {
    l->stats.frames_in++;
    if (kin_frame_reader_is_own(l->inbox.frame.type))
        handle_own(l);
    else
        l->callbacks.frame(l->user, l, &l->inbox.frame, l->inbox.payload);
}

static void read_frames(kin_link *l) {
    while (l->phase == OPEN) {
        kin_err err;
        kin_frame_reader_state state = kin_frame_reader_pull(&l->inbox, l->stream, l->o.frame_max, &err);
        if (state == KIN_FRAME_READER_MORE) return;
        if (state == KIN_FRAME_READER_FAILED)
            fail_aloud(l, &err);
        else
            handle_frame(l);
    }
}

// ---- stream callbacks

static void stream_opened(void *user) {
    kin_link *l = user;
    l->phase = OPEN;
    l->heard = l->moved = l->acknowledged = kin_clock_now();
    send_ping(l);
    if (l->phase == OPEN && l->callbacks.opened) l->callbacks.opened(l->user, l);
}

static void stream_readable(void *user) {
    kin_link *l = user;
    l->heard = kin_clock_now();
    read_frames(l);
}

static void stream_written(void *user) {
    kin_link *l = user;
    size_t n = waiting(l);
    if (l->phase != OPEN || l->n_refused == 0 || (n > 0 && n + l->n_refused > l->o.queue_max)) return;
    l->n_refused = 0;
    if (l->callbacks.drained) l->callbacks.drained(l->user, l);
}

static void stream_ended(void *user, const char *reason) {
    end_because(user, "%s", reason);
}

static const kin_byte_stream_callbacks of_stream = {stream_opened, stream_readable, stream_written, stream_ended};

// ---- time

// Repeated on every tick, because the OS also adjusts its windows.
static void limit_window(kin_link *l, size_t n) {
    l->max_in_flight = n;
    l->stream->transport->limit_window(l->stream, n);
}

// On a slow link TCP lets the queue in front of it grow to seconds, which delays all other traffic, including heartbeats of other
// links. If a ping is not answered before the next one because the peer's data takes long, its bytes in flight are limited to
// what arrives in QUEUE_MS plus a round trip. While pings are answered in time the limit grows.
static void keep_queue_short(kin_link *l, kin_time now, uint64_t n_in) {
    uint64_t n = n_in - l->n_came, since_ns = now - l->ticked_before;
    bool is_late = l->trip_ns_least > 0 && now >= after_ms(l->answered, 3 * (uint64_t)l->o.ping_ms / 2) + l->trip_ns_least;
    l->n_came = n_in;
    if (is_late && n > BULK_BYTES && since_ns > 0 && since_ns < after_ms(0, l->o.silence_ms)) {
        double rate = (double)n / (double)since_ns, most = rate * (double)(l->trip_ns_least + after_ms(0, QUEUE_MS));
        limit_window(l, most < MIN_IN_FLIGHT ? MIN_IN_FLIGHT : most < MAX_IN_FLIGHT ? (size_t)most : 0);
    } else if (!is_late && l->max_in_flight > 0) {
        limit_window(l, l->max_in_flight < MAX_IN_FLIGHT / 2 ? 2 * l->max_in_flight : 0);
    }
}

static void tick_open(kin_link *l, kin_time now) {
    kin_byte_stream_counts c = counts(l);
    size_t n = c.waiting, n_unacknowledged = l->stream->transport->unacknowledged(l->stream);
    uint64_t n_acknowledged = c.out > n_unacknowledged ? c.out - n_unacknowledged : 0;
    // On a slow link the OS sends megabytes from its buffer before it accepts more.
    if (n == 0 || c.out != l->n_moved || n_unacknowledged != l->n_unacknowledged) l->moved = now;
    if (n_unacknowledged == 0 || n_acknowledged > l->n_acknowledged) l->acknowledged = now;
    l->n_moved = c.out;
    l->n_unacknowledged = n_unacknowledged;
    l->n_acknowledged = n_acknowledged;
    keep_queue_short(l, now, c.in);
    if (now >= after_ms(l->heard, l->o.silence_ms))
        end_because(l, "no answer for %.1f s", l->o.silence_ms / 1e3);
    else if (now >= after_ms(l->moved, l->o.silence_ms))
        end_because(l, "the other side has not read %zu queued bytes for %u ms", n, l->o.silence_ms);
    else if (n == 0) // otherwise other traffic shows that we are alive
        send_ping(l);
}

static void tick(uv_timer_t *timer) {
    kin_link *l = timer->data;
    kin_time now = kin_clock_now();
    // The tick is late: this process was stopped or busy, and data from the peer may be waiting.
    if (now >= after_ms(l->ticked, l->o.ping_ms + l->o.silence_ms / 2)) l->heard = l->moved = l->acknowledged = l->answered = now;
    l->ticked_before = l->ticked;
    l->ticked = now;
    if (l->phase == OPEN)
        tick_open(l, now);
    else if (l->phase == OPENING)
        l->stream->transport->tick(l->stream, now);
    else if (now >= after_ms(l->begun, l->o.linger_ms))
        end(l);
}

// ---- opening

kin_link_options kin_link_options_default(kin_tls_ctx *tls) {
    return (kin_link_options){.transport = &kin_transport_tcp,
                              .tls = tls,
                              .frame_max = KIN_LINK_FRAME_MAX_FIRST,
                              .queue_max = 16 << 20,
                              .handshake_ms = 3000,
                              .ping_ms = 300,
                              .silence_ms = 1500,
                              .linger_ms = 1000};
}

static int open_link(kin_link **out, uv_loop_t *loop, const kin_link_options *o, const kin_link_callbacks *callbacks, void *user,
                     kin_err *err) {
    kin_link *l = *out = calloc(1, sizeof *l);
    if (!l) return kin_err_set(err, "out of memory");
    l->o = *o;
    l->callbacks = *callbacks;
    l->user = user;
    l->is_owned = true;
    l->stuck_ms = (uint64_t)o->silence_ms * 2 / 3;
    l->ticked = l->heard = l->moved = l->acknowledged = kin_clock_now();
    uv_timer_init(loop, &l->timer);
    l->timer.data = l;
    uv_timer_start(&l->timer, tick, o->ping_ms, o->ping_ms);
    return 0;
}

// Finishes opening; `rc` is the result of opening the stream. The stream may have ended already: then the loop informs the owner.
static int have_stream(kin_link **out, kin_link *l, int rc) {
    *out = rc == 0 ? l : NULL;
    if (rc == 0) return 0;
    l->is_owned = false;
    end(l);
    return KIN_FAIL;
}

int kin_link_connect(kin_link **out, uv_loop_t *loop, const char *address, uint16_t port, const kin_link_options *o,
                     const kin_link_callbacks *callbacks, void *user, kin_err *err) {
    kin_link *l;
    kin_byte_stream_options so = {o->tls, o->handshake_ms};
    *out = NULL;
    if (open_link(&l, loop, o, callbacks, user, err) != 0) return KIN_FAIL;
    return have_stream(out, l, o->transport->connect(&l->stream, o->transport, loop, address, port, &so, &of_stream, l, err));
}

int kin_link_serve(kin_link **out, uv_loop_t *loop, kin_acceptor *acceptor, const kin_link_options *o,
                   const kin_link_callbacks *callbacks, void *user, kin_err *err) {
    kin_link *l;
    kin_byte_stream_options so = {o->tls, o->handshake_ms};
    *out = NULL;
    if (open_link(&l, loop, o, callbacks, user, err) != 0) return KIN_FAIL;
    return have_stream(out, l, o->transport->accept(&l->stream, acceptor, &so, &of_stream, l, err));
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

void kin_link_set_silence(kin_link *l, uint32_t ms) {
    l->o.silence_ms = ms;
}

void kin_link_close(kin_link *l, const char *reason) {
    if (!l) return;
    l->is_owned = false;
    if (l->phase == OPEN) {
        send_bye(l, reason);
        if (l->stream) l->stream->transport->finish(l->stream);
    }
    if (l->phase != OPEN) {
        end(l);
        return;
    }
    l->phase = LINGERING;
    l->begun = kin_clock_now();
}

int kin_link_release(kin_link *l, int *fd, kin_tls **tls, kin_err *err) {
    if (l->phase != OPEN) return kin_err_set(err, "the link is not open");
    if (kin_frame_reader_has_part(&l->inbox)) return kin_err_set(err, "part of a frame has already arrived");
    if (l->stream->transport->release(l->stream, fd, tls, err) != 0) return KIN_FAIL;
    l->is_owned = false;
    l->stream = NULL;
    end(l);
    return 0;
}

// ---- inspection

kin_link_stats kin_link_stats_now(const kin_link *l) {
    kin_link_stats stats = l->stats;
    kin_byte_stream_counts c = counts(l);
    stats.queued = c.waiting;
    stats.unacknowledged = l->stream ? l->stream->transport->unacknowledged(l->stream) : 0;
    stats.partial = kin_frame_reader_has_part(&l->inbox) ? l->inbox.n_header + l->inbox.n_payload : 0;
    if (l->stream) stats.bytes_in = c.in;
    if (l->stream) stats.bytes_out = c.out;
    stats.rtt_ns = kin_heartbeat_rtt(&l->pulse);
    stats.clock_ahead_ns = kin_heartbeat_clock_ahead(&l->pulse);
    return stats;
}

const uint8_t *kin_link_arriving(const kin_link *l, kin_frame *frame, size_t *n) {
    const kin_frame_reader *b = &l->inbox;
    if (!kin_frame_reader_has_part(b) || b->n_payload == 0) return NULL;
    *frame = b->frame;
    *n = b->n_payload;
    return b->payload;
}

kin_tls_fault kin_link_fault(const kin_link *l) {
    return l->fault;
}

const char *kin_link_name(const kin_link *l) {
    return l->stream ? l->stream->transport->name(l->stream) : l->name;
}

const char *kin_link_address(const kin_link *l) {
    return l->stream ? l->stream->transport->address(l->stream) : l->address;
}
