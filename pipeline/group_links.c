#include "pipeline/group_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/dial.h"
#include "pure/proto/id.h"

enum { RETRY_MS = 300, HANDSHAKE_MS = 2000, ANSWER_MS = 4000 };

typedef struct partner {
    kin_group_links *of;
    int rank;
    bool is_there; // its connection is with the exchange
    kin_dial *dial;
    unsigned n_tries;
    kin_time tried_at;
} partner;

struct kin_group_links {
    kin_endpoint *endpoint;
    kin_exchange *exchange;
    kin_group_links_report report;
    void *user;
    uint32_t epoch;
    kin_proto_group group;
    partner partners[KIN_PROTO_MAX_RANKS];
};

int kin_group_links_open(kin_group_links **out, kin_endpoint *endpoint, kin_exchange *exchange, kin_group_links_report report,
                         void *user, kin_err *err) {
    kin_group_links *g = *out = calloc(1, sizeof *g);
    if (!g) return kin_err_set(err, "out of memory");
    g->endpoint = endpoint;
    g->exchange = exchange;
    g->report = report;
    g->user = user;
    for (int r = 0; r < KIN_PROTO_MAX_RANKS; r++) g->partners[r] = (partner){.of = g, .rank = r};
    return 0;
}

static void leave(kin_group_links *g) {
    for (int r = 0; r < KIN_PROTO_MAX_RANKS; r++) {
        kin_dial_cancel(g->partners[r].dial, NULL);
        g->partners[r] = (partner){.of = g, .rank = r};
    }
}

void kin_group_links_close(kin_group_links *g) {
    if (!g) return;
    leave(g);
    free(g);
}

static void fail(partner *p, const char *reason) {
    char sentence[KIN_PROTO_MAX_REASON];
    snprintf(sentence, sizeof sentence, "no link to device %d of its group (%s)", p->rank + 1, reason);
    p->of->report(p->of->user, p->of->epoch, false, sentence);
}

// Gives the connection of a link that was accepted, by this or the other side, to the exchange.
static void hand_over(partner *p, kin_link *link) {
    kin_group_links *g = p->of;
    kin_err err;
    kin_tls *tls;
    int fd;
    if (kin_link_release(link, &fd, &tls, &err) != 0) {
        kin_link_close(link, err.text);
        fail(p, err.text);
        return;
    }
    kin_exchange_give(g->exchange, g->epoch, p->rank, fd, tls);
    p->is_there = true;
    if (kin_group_links_is_complete(g)) g->report(g->user, g->epoch, true, "");
}

// ---- devices with a higher rank

static void dial_accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    partner *p = user;
    (void)accept;
    p->dial = NULL;
    hand_over(p, link);
}

static void dial_failed(void *user, const kin_dial_failure *failure) {
    partner *p = user;
    p->dial = NULL;
    fail(p, failure->reason);
}

static void dial(partner *p) {
    static const kin_dial_callbacks callbacks = {.accepted = dial_accepted, .failed = dial_failed};
    kin_group_links *g = p->of;
    const kin_proto_endpoint *to = &g->group.endpoint[p->rank];
    kin_err err;
    kin_dial_options o = kin_dial_options_default(kin_endpoint_tls(g->endpoint));
    o.link.handshake_ms = HANDSHAKE_MS;
    o.limit_ms = ANSWER_MS;
    o.open = kin_endpoint_self(g->endpoint);
    o.open.role = KIN_PROTO_GROUP;
    o.epoch = g->epoch;
    o.answers = g->group.id[p->rank];
    if (to->n_addresses > 0) o.to = kin_dial_address(to->address[p->n_tries++ % (unsigned)to->n_addresses], to->port);
    p->tried_at = kin_clock_now();
    if (kin_dial_start(&p->dial, kin_endpoint_loop(g->endpoint), &o, &callbacks, p, &err) != 0) fail(p, err.text);
}

void kin_group_links_tick(kin_group_links *g) {
    kin_time now = kin_clock_now();
    for (int r = g->group.rank + 1; g->epoch && r < g->group.n_ranks; r++) {
        partner *p = &g->partners[r];
        bool is_due = !p->tried_at || kin_clock_ms(p->tried_at, now) >= RETRY_MS;
        if (!p->is_there && !p->dial && is_due) dial(p);
    }
}

// ---- devices with a lower rank

static int rank_of(const kin_group_links *g, const kin_proto_id *id) {
    for (int r = 0; r < g->group.rank && r < g->group.n_ranks; r++) {
        if (kin_proto_id_equal(&g->group.id[r], id)) return r;
    }
    return -1;
}

void kin_group_links_accept(kin_group_links *g, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    if (g->epoch == 0 || epoch != g->epoch) {
        kin_endpoint_refuse(link, "busy: this device is not in that epoch");
        return;
    }
    kin_proto_open self = kin_endpoint_self(g->endpoint);
    int rank = rank_of(g, &open->id);
    if (!kin_proto_id_equal(&open->peer, &self.id)) {
        kin_endpoint_refuse(link, "identity: this is not the device that was called");
    } else if (rank < 0) {
        kin_endpoint_refuse(link, "identity: the caller is not an earlier device of this group");
    } else { // also a second time: the device has dropped the first link, whose answer came too late
        kin_endpoint_send_accept(g->endpoint, link);
        hand_over(&g->partners[rank], link);
    }
}

// ---- the place

bool kin_group_links_is_complete(const kin_group_links *g) {
    for (int r = 0; g->epoch && r < g->group.n_ranks; r++) {
        if (r != g->group.rank && !g->partners[r].is_there) return false;
    }
    return true;
}

void kin_group_links_enter(kin_group_links *g, uint32_t epoch, const kin_proto_group *group, kin_activation_type type) {
    if (g->epoch == epoch) return;
    leave(g);
    g->epoch = epoch;
    g->group = *group;
    kin_exchange_place place = {.epoch = group->n_ranks ? epoch : 0, .type = type};
    if (place.epoch) {
        place.rank = group->rank;
        place.n_ranks = group->n_ranks;
        place.allreduce = group->allreduce;
    }
    kin_exchange_enter(g->exchange, &place);
    kin_group_links_tick(g);
}
