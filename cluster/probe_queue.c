#include "cluster/probe_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/probe.h"
#include "pure/proto/label.h"
#include "pure/proto/refusal.h"

enum {
    RETRY_MS = 200,
    PATIENCE_MS = 15000, // with a member that is busy
};

typedef struct request {
    kin_proto_measure wanted;
    kin_time since; // its first try; 0: none yet
} request;

struct kin_probe_queue {
    uv_timer_t timer; // starts the next try; probes start only here, outside of all callbacks
    uv_loop_t *loop;
    kin_probe_queue_options o;
    kin_probe_queue_measured measured;
    void *user;
    kin_probe *probe; // for the first request; NULL: none runs
    request requests[KIN_PROTO_MAX_MEASURES];
    int n;
};

static void on_timer(uv_timer_t *timer);

static void start_timer(kin_probe_queue *g, uint64_t in_ms) {
    if (!g->probe && g->n > 0) uv_timer_start(&g->timer, on_timer, in_ms, 0);
}

static void answer(kin_probe_queue *g, const kin_proto_id *id, const kin_probe_result *result, const char *reason) {
    kin_proto_measured m = {.id = *id};
    if (result) {
        m.rtt_s = result->rtt_s;
        m.to_bytes_s = result->to_bytes_s;
        m.from_bytes_s = result->from_bytes_s;
    } else {
        kin_label_set_sentence(m.reason, KIN_PROTO_MAX_REASON, reason);
    }
    g->measured(g->user, &m);
}

static request pop_request(kin_probe_queue *g) {
    request first = g->requests[0];
    memmove(g->requests, g->requests + 1, (size_t)--g->n * sizeof first);
    return first;
}

static void on_done(void *user, const kin_probe_result *result, const char *reason) {
    kin_probe_queue *g = user;
    g->probe = NULL;
    request r = pop_request(g);
    bool again = !result && kin_refusal_of(reason) == KIN_REFUSAL_BUSY && kin_clock_ms(r.since, kin_clock_now()) < PATIENCE_MS;
    if (again)
        g->requests[g->n++] = r; // behind the others
    else
        answer(g, &r.wanted.id, result, reason);
    start_timer(g, again ? RETRY_MS : 0);
}

static void on_timer(uv_timer_t *timer) {
    kin_probe_queue *g = timer->data;
    kin_err err;
    if (g->probe || g->n == 0) return;
    request *r = &g->requests[0];
    if (!r->since) r->since = kin_clock_now();
    kin_probe_options o = {.tls = g->o.tls,
                           .self = g->o.self,
                           .to = r->wanted.endpoint,
                           .who = &r->wanted.id,
                           .hidden_bytes = r->wanted.hidden_bytes};
    if (kin_probe_start(&g->probe, g->loop, &o, on_done, g, &err) != 0) on_done(g, NULL, err.text);
}

void kin_probe_queue_ask(kin_probe_queue *g, const kin_proto_measure *wanted) {
    if (g->n == KIN_PROTO_MAX_MEASURES) {
        answer(g, &wanted->id, NULL, "too many link measurements are pending");
        return;
    }
    g->requests[g->n++] = (request){.wanted = *wanted};
    start_timer(g, 0);
}

void kin_probe_queue_clear(kin_probe_queue *g) {
    if (!g) return;
    kin_probe_cancel(g->probe);
    g->probe = NULL;
    g->n = 0;
    uv_timer_stop(&g->timer);
}

int kin_probe_queue_open(kin_probe_queue **out, uv_loop_t *loop, const kin_probe_queue_options *o,
                         kin_probe_queue_measured measured, void *user, kin_err *err) {
    kin_probe_queue *g = *out = calloc(1, sizeof *g);
    if (!g) return kin_err_set(err, "out of memory");
    g->loop = loop;
    g->o = *o;
    g->measured = measured;
    g->user = user;
    uv_timer_init(loop, &g->timer);
    g->timer.data = g;
    return 0;
}

static void free_queue(uv_handle_t *timer) {
    free(timer->data);
}

void kin_probe_queue_close(kin_probe_queue *g) {
    if (!g) return;
    kin_probe_queue_clear(g);
    uv_close((uv_handle_t *)&g->timer, free_queue);
}
