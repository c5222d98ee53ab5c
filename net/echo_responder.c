#include "net/echo_responder.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/rng.h"
#include "pure/proto/message.h"

enum { NOISE_BYTES = 64 << 10, N_PARTS = 1 + KIN_FRAME_ECHO_BYTES / NOISE_BYTES, HEAD_BYTES = 12 };

typedef struct caller {
    kin_link *link; // NULL: free slot
    kin_time since;
    uint64_t n_bytes;
} caller;

struct kin_echo_responder {
    caller callers[KIN_ECHO_RESPONDER_LINKS];
};

static uint8_t noise[NOISE_BYTES];
static pthread_once_t noise_once = PTHREAD_ONCE_INIT;

static void make_noise(void) {
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (size_t i = 0; i < NOISE_BYTES; i += 8) kin_put_u64(noise + i, kin_rng_u64(&rng));
}

kin_link_sent kin_echo_responder_send(kin_link *link, uint64_t token, uint32_t answer_bytes, uint32_t n_bytes) {
    uint8_t head[HEAD_BYTES];
    kin_frame_part parts[N_PARTS] = {{head, sizeof head}};
    kin_assert(n_bytes <= KIN_FRAME_ECHO_BYTES);
    pthread_once(&noise_once, make_noise);
    kin_proto_echo m = {.token = token, .answer_bytes = answer_bytes};
    kin_proto_encode_echo(head, sizeof head, &m); // the data follows
    int n = 1;
    for (uint32_t left = n_bytes; left > 0; n++) {
        parts[n] = (kin_frame_part){noise, left < NOISE_BYTES ? left : NOISE_BYTES};
        left -= (uint32_t)parts[n].n;
    }
    return kin_link_send(link, KIN_FRAME_ECHO, 0, n, parts);
}

int kin_echo_responder_open(kin_echo_responder **out, kin_err *err) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : kin_err_set(err, "out of memory");
}

static void drop_caller(caller *c, const char *reason) {
    kin_link_close(c->link, reason);
    c->link = NULL;
}

void kin_echo_responder_close(kin_echo_responder *e, const char *reason) {
    if (!e) return;
    for (int i = 0; i < KIN_ECHO_RESPONDER_LINKS; i++) {
        if (e->callers[i].link) drop_caller(&e->callers[i], reason);
    }
    free(e);
}

static int answer_caller(caller *c, const kin_frame *frame, const uint8_t *payload, kin_err *err) {
    kin_proto_echo m;
    if (frame->type != KIN_FRAME_ECHO)
        return kin_err_set(err, "%s, but a probe link accepts only ECHO", kin_frame_name(frame->type));
    if (kin_proto_decode_echo(payload, frame->length, &m, err) != 0) return KIN_FAIL;
    c->n_bytes += (uint64_t)frame->length + HEAD_BYTES + m.answer_bytes;
    if (c->n_bytes > KIN_ECHO_RESPONDER_BYTES_MAX) return kin_err_set(err, "more bytes than a measurement needs");
    kin_link_sent sent = kin_echo_responder_send(c->link, m.token, 0, m.answer_bytes);
    return sent == KIN_LINK_FULL ? kin_err_set(err, "ECHO, but does not read the answers") : 0;
}

static void caller_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    caller *c = user;
    kin_err err;
    if (answer_caller(c, frame, payload, &err) == 0) return;
    kin_log(KIN_LOG_WARN, "%s sent %s", kin_link_name(link), err.text);
    drop_caller(c, err.text);
}

static void caller_closed(void *user, kin_link *link, const char *reason) {
    (void)link, (void)reason;
    ((caller *)user)->link = NULL;
}

static caller *find_free_caller(kin_echo_responder *e) {
    for (int i = 0; i < KIN_ECHO_RESPONDER_LINKS; i++) {
        if (!e->callers[i].link) return &e->callers[i];
    }
    return NULL;
}

bool kin_echo_responder_is_full(const kin_echo_responder *e) {
    return !find_free_caller((kin_echo_responder *)e);
}

bool kin_echo_responder_add(kin_echo_responder *e, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = caller_frame, .closed = caller_closed};
    caller *c = find_free_caller(e);
    if (!c) return false;
    *c = (caller){.link = link, .since = kin_clock_now()};
    kin_link_accept(link, &callbacks, c);
    kin_link_set_frame_max(link, kin_frame_cap(KIN_FRAME_ECHO));
    return true;
}

void kin_echo_responder_tick(kin_echo_responder *e, kin_time now) {
    for (int i = 0; i < KIN_ECHO_RESPONDER_LINKS; i++) {
        caller *c = &e->callers[i];
        if (c->link && kin_clock_ms(c->since, now) >= KIN_ECHO_RESPONDER_LIFE_MS) drop_caller(c, "the probe took too long");
    }
}
