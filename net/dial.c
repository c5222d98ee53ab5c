#include "net/dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/proto/id.h"
#include "pure/proto/versions.h"

struct kin_dial {
    uv_timer_t limit;
    uv_loop_t *loop;
    kin_dial_options o;
    kin_dial_callbacks callbacks;
    void *user;
    kin_link *link;
    int i_address; // next address to try
    bool is_open;  // OPEN was sent
};

kin_dial_options kin_dial_options_default(kin_tls_ctx *tls) {
    return (kin_dial_options){.link = kin_link_options_default(tls), .limit_ms = KIN_DIAL_LIMIT_MS};
}

kin_proto_endpoint kin_dial_address(const char *address, uint16_t port) {
    kin_proto_endpoint to = {.port = port, .n_addresses = 1};
    snprintf(to.address[0], sizeof to.address[0], "%s", address);
    return to;
}

// ---- the end

static void on_dial_timer_closed(uv_handle_t *timer) {
    free(timer->data);
}

void kin_dial_cancel(kin_dial *d, const char *reason) {
    if (!d) return;
    kin_link_close(d->link, reason);
    d->link = NULL;
    uv_close((uv_handle_t *)&d->limit, on_dial_timer_closed); // frees it, in a later iteration of the loop
}

static int connect_next(kin_dial *d, kin_err *err);

static bool tries_next(kin_dial *d, kin_dial_end end) {
    kin_err err;
    return end != KIN_DIAL_REFUSED && d->i_address < d->o.to.n_addresses && connect_next(d, &err) == 0;
}

// Handles a link that is closed or useless.
static void fail_dial(kin_dial *d, kin_dial_end end, const char *at, const char *reason) {
    char at_copy[sizeof d->o.to.address[0]];
    snprintf(at_copy, sizeof at_copy, "%s", at);
    kin_link_close(d->link, reason);
    d->link = NULL;
    if (tries_next(d, end)) return;
    kin_dial_callbacks callbacks = d->callbacks;
    void *user = d->user;
    kin_dial_cancel(d, NULL);
    callbacks.failed(user, &(kin_dial_failure){.end = end, .reason = reason, .at = at_copy});
}

static void on_limit(uv_timer_t *timer) {
    kin_dial *d = timer->data;
    d->i_address = d->o.to.n_addresses;
    fail_dial(d, KIN_DIAL_LOST, kin_link_name(d->link), d->is_open ? "it does not answer OPEN" : "no answer in time");
}

// ---- the answer

static int check_id(const kin_dial *d, const kin_proto_accept *accept, kin_err *err) {
    if (kin_proto_id_equal(&accept->id, &d->o.open.id)) return kin_err_set(err, "its address leads back to this device");
    if (kin_proto_id_is_none(&d->o.answers) || kin_proto_id_equal(&accept->id, &d->o.answers)) return 0;
    return kin_err_set(err, "another device, '%s', answers at its address", accept->name);
}

// Checks the answer. On KIN_FAIL the dial fails with *end.
static int check_answer(const kin_dial *d, const kin_frame *frame, const uint8_t *payload, kin_proto_accept *accept,
                        kin_dial_end *end, kin_err *err) {
    kin_proto_refuse refuse;
    *end = KIN_DIAL_WRONG;
    if (frame->type == KIN_FRAME_REFUSE) {
        if (kin_proto_decode_refuse(payload, frame->length, &refuse, err) != 0) return KIN_FAIL;
        *end = KIN_DIAL_REFUSED;
        return kin_err_set(err, "%s", refuse.reason);
    }
    if (frame->type != KIN_FRAME_ACCEPT) return kin_err_set(err, "it sent %s before ACCEPT", kin_frame_name(frame->type));
    if (kin_proto_decode_accept(payload, frame->length, accept, err) != 0) return KIN_FAIL;
    if (check_id(d, accept, err) != 0) return KIN_FAIL;
    const kin_proto_open *own = &d->o.open;
    uint16_t version = kin_proto_versions_agree(&(kin_proto_speaker){own->name, own->version, own->versions},
                                                &(kin_proto_speaker){accept->name, accept->version, accept->versions}, err);
    kin_link_set_version(d->link, version);
    return version ? 0 : KIN_FAIL;
}

static void on_dialed_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_dial *d = user;
    kin_proto_accept accept;
    kin_dial_end end;
    kin_err err;
    if (check_answer(d, frame, payload, &accept, &end, &err) != 0) {
        fail_dial(d, end, kin_link_name(link), err.text);
        return;
    }
    kin_dial_callbacks callbacks = d->callbacks;
    void *owner = d->user;
    d->link = NULL; // keeps the link open
    kin_dial_cancel(d, NULL);
    callbacks.accepted(owner, link, &accept);
}

// ---- the link

static void on_opened(void *user, kin_link *link) {
    kin_dial *d = user;
    uint8_t bytes[KIN_LINK_FRAME_MAX_FIRST];
    d->is_open = true;
    size_t n = kin_proto_encode_open(bytes, sizeof bytes, &d->o.open);
    kin_link_send(link, KIN_FRAME_OPEN, d->o.epoch, 1, &(kin_frame_part){bytes, n});
}

static void on_dialed_closed(void *user, kin_link *link, const char *reason) {
    kin_dial *d = user;
    static const kin_dial_end ends[] = {[KIN_TLS_FAULT_NONE] = KIN_DIAL_LOST,
                                        [KIN_TLS_FAULT_OTHER_KEY] = KIN_DIAL_OTHER_KEY,
                                        [KIN_TLS_FAULT_STRANGER] = KIN_DIAL_STRANGER};
    kin_dial_end end = ends[kin_link_fault(link)];
    d->link = NULL; // the link has ended
    fail_dial(d, end, kin_link_name(link), end == KIN_DIAL_STRANGER ? "it answers, but is not kin" : reason);
}

static int connect_next(kin_dial *d, kin_err *err) {
    static const kin_link_callbacks callbacks = {.opened = on_opened, .frame = on_dialed_frame, .closed = on_dialed_closed};
    const char *address = d->o.to.address[d->i_address++];
    d->is_open = false;
    if (kin_link_connect(&d->link, d->loop, address, d->o.to.port, &d->o.link, &callbacks, d, err) == 0) return 0;
    d->link = NULL;
    return KIN_FAIL;
}

int kin_dial_start(kin_dial **out, uv_loop_t *loop, const kin_dial_options *o, const kin_dial_callbacks *callbacks, void *user,
                   kin_err *err) {
    *out = NULL;
    if (o->to.n_addresses == 0) return kin_err_set(err, "its address is unknown");
    kin_dial *d = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "out of memory");
    d->loop = loop;
    d->o = *o;
    d->o.link.frame_max = KIN_LINK_FRAME_MAX_FIRST;
    if (kin_proto_id_is_none(&d->o.open.peer)) d->o.open.peer = o->answers;
    d->o.open.versions = kin_proto_versions_or_own(o->open.versions);
    d->callbacks = *callbacks;
    d->user = user;
    if (connect_next(d, err) != 0) {
        free(d);
        return KIN_FAIL;
    }
    uv_timer_init(loop, &d->limit);
    d->limit.data = d;
    uv_timer_start(&d->limit, on_limit, o->limit_ms, 0);
    *out = d;
    return 0;
}
