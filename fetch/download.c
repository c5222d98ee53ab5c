#include "fetch/download.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    SLICE_BYTES = 64 << 10,     // rate-limited: bytes per request, half a millisecond of a gigabit link
    SLICE_BYTES_MAX = 96 << 10, // the last slice may be this long, to save a pause for a few bytes
    SLICE_REST = 3,             // pause, as a multiple of a slice's time: uses at most a quarter of the link
};

// A chunk in flight.
typedef struct buffer {
    kin_proto_hash of; // the model, or the page
    uint32_t n, n_asked;
    kin_chunk_part part; // bytes // [n], NULL until the first bytes arrive
} buffer;

struct kin_download {
    kin_dial *dial; // NULL: accepted
    kin_link *link; // NULL: not open yet
    kin_download_callbacks callbacks;
    void *user;
    bool wants_hashes, is_gentle;
    kin_time asked_at, next_at; // when the last slice was requested; earliest time for the next, 0: now
    uint32_t n_heard;           // bytes of the arriving DATA message that the owner was told of
    buffer buffers[KIN_DOWNLOAD_REQUESTS];
    int n_buffers;
};

// ---- bytes

static int find_buffer(const kin_download *s, uint32_t i_chunk) {
    for (int i = 0; i < s->n_buffers; i++) {
        if (s->buffers[i].part.i_chunk == i_chunk) return i;
    }
    return -1;
}

// Returns the buffer that these bytes continue; NULL: they were not requested.
static buffer *find_place(kin_download *s, const kin_proto_data *m) {
    int i = find_buffer(s, m->i_chunk);
    buffer *p = i < 0 ? NULL : &s->buffers[i];
    return p && m->offset == p->part.n_here && m->n_bytes <= p->n_asked - p->part.n_here ? p : NULL;
}

static int add_bytes(buffer *p, const kin_proto_data *m, kin_err *err) {
    if (!p->part.bytes) p->part.bytes = malloc(p->n);
    if (!p->part.bytes) return kin_err_set(err, "out of memory for a chunk of %" PRIu32 " bytes", p->n);
    memcpy(p->part.bytes + p->part.n_here, m->bytes, m->n_bytes);
    p->part.n_here += m->n_bytes;
    return 0;
}

// Returns the DATA message that is arriving, as far as it is here; NULL: none, or it does not match a request.
static buffer *find_arriving(kin_download *s, kin_proto_data *m) {
    kin_frame frame;
    size_t n;
    const uint8_t *payload = s->link ? kin_link_arriving(s->link, &frame, &n) : NULL;
    if (!payload || frame.type != KIN_FRAME_DATA || kin_proto_decode_data(payload, n, m, NULL) != 0) return NULL;
    kin_proto_data whole = *m;
    whole.n_bytes += (uint32_t)(frame.length - n);
    return find_place(s, &whole);
}

// Keeps the received part of a message when the link ends within it.
static void keep_arriving(kin_download *s) {
    kin_proto_data m;
    buffer *p = find_arriving(s, &m);
    if (p) (void)add_bytes(p, &m, NULL); // out of memory: it is lost
}

// ---- the end

static void give_part(kin_download *s, const kin_chunk_part *part) {
    if (part->bytes && s->callbacks.part)
        s->callbacks.part(s->user, part);
    else
        free(part->bytes);
}

static void free_source(kin_download *s) {
    for (int i = 0; i < s->n_buffers; i++) give_part(s, &s->buffers[i].part);
    free(s);
}

void kin_download_close(kin_download *s, const char *reason) {
    if (!s) return;
    keep_arriving(s);
    kin_dial_cancel(s->dial, reason);
    kin_link_close(s->link, reason);
    free_source(s);
}

static void on_closed(void *user, kin_link *link, const char *reason) {
    kin_download *s = user;
    (void)link;
    kin_download_callbacks callbacks = s->callbacks;
    void *owner = s->user;
    free_source(s);
    callbacks.closed(owner, reason);
}

static void on_link_closed(void *user, kin_link *link, const char *reason) {
    keep_arriving(user);
    on_closed(user, link, reason);
}

// Ends the download for a local reason, inside the link's callbacks.
static void end_download(kin_download *s, const char *reason) {
    kin_log(KIN_LOG_WARN, "link %s: %s", kin_link_name(s->link), reason);
    kin_link_close(s->link, reason);
    on_closed(s, s->link, reason);
}

// ---- receiving

static int handle_hashes(kin_download *s, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_hashes m;
    if (!s->wants_hashes) return kin_err_set(err, "the peer sent hashes without a request");
    if (kin_proto_decode_hashes(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    s->callbacks.hashes(s->user, &m);
    return 0;
}

static buffer pop_buffer(kin_download *s, int i) {
    buffer p = s->buffers[i];
    s->buffers[i] = s->buffers[--s->n_buffers];
    return p;
}

static bool send_message(kin_download *s, kin_frame_type type, const uint8_t *bytes, size_t n) {
    kin_link_sent sent = kin_link_send(s->link, type, 0, 1, &(kin_frame_part){bytes, n});
    return sent == KIN_LINK_SENT || sent == KIN_LINK_QUEUED;
}

// Requests the rest of a chunk, or one slice of it if rate-limited.
static bool ask_more(kin_download *s, buffer *p) {
    uint32_t n = p->n - p->n_asked;
    if (s->is_gentle && n > SLICE_BYTES_MAX) n = SLICE_BYTES;
    kin_proto_get m = {.model = p->of, .i_chunk = p->part.i_chunk, .offset = p->n_asked, .length = n};
    uint8_t bytes[sizeof m];
    p->n_asked += n;
    s->asked_at = kin_clock_now();
    return send_message(s, KIN_FRAME_GET, bytes, kin_proto_encode_get(bytes, sizeof bytes, &m));
}

// Called when a slice has arrived: starts the pause.
static void rest(kin_download *s) {
    kin_time now = kin_clock_now();
    s->next_at = s->is_gentle ? now + SLICE_REST * (now - s->asked_at) : now;
    kin_download_tick(s);
}

void kin_download_tick(kin_download *s) {
    if (kin_clock_now() < s->next_at) return;
    for (int i = 0; i < s->n_buffers; i++) {
        buffer *p = &s->buffers[i];
        if (p->part.n_here == p->n_asked && p->n_asked < p->n) ask_more(s, p); // if it cannot be sent, the link ends
    }
}

kin_time kin_download_next_at(const kin_download *s) {
    return s->next_at;
}

void kin_download_set_rate_limited(kin_download *s, bool is_gentle) {
    s->is_gentle = is_gentle;
    if (is_gentle) return;
    s->next_at = 0;
    kin_download_tick(s);
}

static int handle_data(kin_download *s, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_data m;
    if (kin_proto_decode_data(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    buffer *p = find_place(s, &m);
    if (!p) return kin_err_set(err, "the peer sent bytes of chunk %" PRIu32 " without a request", m.i_chunk);
    if (add_bytes(p, &m, err) != 0) return KIN_FAIL;
    s->callbacks.heard(s->user, m.n_bytes - s->n_heard);
    s->n_heard = 0;
    if (p->part.n_here < p->n_asked) return 0;
    if (p->part.n_here < p->n) {
        rest(s);
        return 0;
    }
    buffer whole = pop_buffer(s, find_buffer(s, m.i_chunk));
    rest(s);
    s->callbacks.chunk(s->user, &whole.part);
    return 0;
}

void kin_download_listen(kin_download *s) {
    kin_proto_data m;
    if (!find_arriving(s, &m) || m.n_bytes <= s->n_heard) return;
    uint32_t n = m.n_bytes - s->n_heard;
    s->n_heard = m.n_bytes;
    s->callbacks.heard(s->user, n);
}

static int handle_lack(kin_download *s, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_lack m;
    if (kin_proto_decode_lack(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    int i = find_buffer(s, m.i_chunk);
    if (i < 0 && m.i_chunk != KIN_PROTO_NO_CHUNK) {
        return kin_err_set(err, "the peer reports chunk %" PRIu32 " as missing, but it was not requested", m.i_chunk);
    }
    if (i >= 0) {
        buffer p = pop_buffer(s, i);
        give_part(s, &p.part);
    }
    s->callbacks.lacks(s->user, m.i_chunk);
    return 0;
}

static void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_download *s = user;
    kin_err err;
    int rc;
    (void)link;
    // Each of these calls its callback last, because the download may be closed inside.
    if (frame->type == KIN_FRAME_DATA)
        rc = handle_data(s, frame, payload, &err);
    else if (frame->type == KIN_FRAME_HASHES)
        rc = handle_hashes(s, frame, payload, &err);
    else if (frame->type == KIN_FRAME_LACK)
        rc = handle_lack(s, frame, payload, &err);
    else
        rc = kin_err_set(&err, "the peer sent %s, but this link accepts only chunks", kin_frame_name(frame->type));
    if (rc != 0) end_download(s, err.text);
}

// ---- opening

static void on_accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    static const kin_link_callbacks callbacks = {.frame = on_frame, .closed = on_link_closed};
    kin_download *s = user;
    (void)accept;
    s->dial = NULL;
    s->link = link;
    kin_link_accept(link, &callbacks, s);
    kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
    s->callbacks.accepted(s->user);
}

static void on_failed(void *user, const kin_dial_failure *failure) {
    kin_download *s = user;
    s->dial = NULL;
    if (failure->end != KIN_DIAL_LOST) kin_log(KIN_LOG_WARN, "link %s: %s", failure->at, failure->reason);
    on_closed(s, NULL, failure->reason);
}

int kin_download_open(kin_download **out, uv_loop_t *loop, const kin_dial_options *options,
                      const kin_download_callbacks *callbacks, void *user, kin_err *err) {
    static const kin_dial_callbacks of_dial = {.accepted = on_accepted, .failed = on_failed};
    kin_download *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->callbacks = *callbacks;
    s->user = user;
    if (kin_dial_start(&s->dial, loop, options, &of_dial, s, err) == 0) return 0;
    free(s);
    *out = NULL;
    return KIN_FAIL;
}

// ---- requests

bool kin_download_ask_hashes(kin_download *s, const kin_proto_hash *model) {
    kin_proto_hashes_wanted m = {.model = *model};
    uint8_t bytes[sizeof m];
    s->wants_hashes = true;
    return s->link && send_message(s, KIN_FRAME_HASHES_WANTED, bytes, kin_proto_encode_hashes_wanted(bytes, sizeof bytes, &m));
}

bool kin_download_ask(kin_download *s, const kin_proto_hash *model, const kin_chunk_part *part, uint32_t n) {
    kin_assert(part->n_here < n);
    if (!s->link || s->n_buffers == KIN_DOWNLOAD_REQUESTS || find_buffer(s, part->i_chunk) >= 0) return false;
    buffer *p = &s->buffers[s->n_buffers];
    *p = (buffer){.of = *model, .n = n, .n_asked = part->n_here, .part = *part};
    p->part.n_before = part->n_here;
    if (!ask_more(s, p)) return false;
    s->n_buffers++;
    return true;
}

// ---- inspection

bool kin_download_is_accepted(const kin_download *s) {
    return s->link != NULL;
}

int kin_download_n_asked(const kin_download *s) {
    return s->n_buffers;
}

uint32_t kin_download_asked(const kin_download *s, int i) {
    return s->buffers[i].part.i_chunk;
}
