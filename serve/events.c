#include "serve/events.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/cluster_json.h"
#include "serve/json_out.h"
#include "serve/refuse.h"

static const kin_time SPACING_NS = UINT64_C(950000000), LOOKED_AT_NS = UINT64_C(60000000000);

typedef struct listener {
    kin_exchange_data data;
    kin_events *events;
    kin_http_exchange *x; // NULL: free entry
    uint64_t plan;        // number of the plan that was sent to it
} listener;

struct kin_events {
    kin_events_options o;
    uv_loop_t *loop;
    listener listeners[KIN_EVENTS_MAX];
    int n;
    bool is_stopped;
    kin_time sent_at, asked_until;
    // The plan is read in libuv's pool, because the planner may be busy for seconds.
    uv_work_t work;
    kin_planner *planner;
    bool is_reading;
    kin_plan_basis *seen, *now; // seen: the basis of `plan`; now: the pool's result
    bool has_changed;           // the pool's result
    json_t *found;              // likewise
    kin_text_buffer plan;       // the event; empty: none
    uint64_t n_plans;
    // Under the mutex: the cluster answers on its own thread.
    pthread_mutex_t mutex;
    char *status; // JSON; NULL: none yet
};

int kin_events_open(kin_events **out, uv_loop_t *loop, const kin_events_options *o, kin_err *err) {
    kin_events *e = *out = calloc(1, sizeof *e);
    if (!e) return kin_err_set(err, "out of memory");
    e->o = *o;
    e->loop = loop;
    e->seen = calloc(1, sizeof *e->seen);
    e->now = calloc(1, sizeof *e->now);
    pthread_mutex_init(&e->mutex, NULL);
    if (e->seen && e->now) return 0;
    kin_events_close(e);
    *out = NULL;
    return kin_err_set(err, "out of memory");
}

bool kin_events_is_reading(const kin_events *e) {
    return e->is_reading;
}

void kin_events_stop(kin_events *e) {
    e->is_stopped = true;
    for (int i = 0; i < KIN_EVENTS_MAX; i++) {
        kin_http_exchange *x = e->listeners[i].x;
        e->listeners[i].x = NULL;
        if (x) kin_http_end(x);
    }
    e->n = 0;
}

void kin_events_close(kin_events *e) {
    if (!e) return;
    pthread_mutex_destroy(&e->mutex);
    kin_text_fini(&e->plan);
    json_decref(e->found);
    free(e->status);
    free(e->seen);
    free(e->now);
    free(e);
}

// Returns the most recently used model in memory; NULL: none.
static const kin_served_model *last_used(const kin_events *e) {
    const kin_served_model *last = NULL;
    for (int i = 0; i < e->o.router->n; i++) {
        const kin_served_model *m = &e->o.router->models[i];
        if (m->shared.service && (!last || m->used > last->used)) last = m;
    }
    return last;
}

// ---- queries

static void store_status(void *user, char *text) {
    kin_events *e = user;
    pthread_mutex_lock(&e->mutex);
    char *before = e->status;
    e->status = text;
    pthread_mutex_unlock(&e->mutex);
    free(before);
}

static void ask_for_status(kin_events *e) {
    const kin_served_model *m = last_used(e);
    if (!m) {
        store_status(e, NULL);
    } else if (m->shared.preparer.session->clustered) {
        kin_cluster_ask_status(m->shared.preparer.session->fleet.cluster, store_status, e);
    } else {
        kin_service_status status = kin_service_get_status(m->shared.service);
        store_status(e, kin_alone_status_json(m->shared.preparer.session, m->shared.model, &status));
    }
}

// Runs in libuv's pool.
static void read_plan(uv_work_t *work) {
    kin_events *e = work->data;
    bool is_there = kin_planner_last(e->planner, &e->now->facts, &e->now->plan);
    e->has_changed = is_there && memcmp(e->now, e->seen, sizeof *e->now) != 0;
    e->found = e->has_changed ? kin_plan_basis_json(e->now) : NULL;
}

static void store_plan(uv_work_t *work, int status) {
    kin_events *e = work->data;
    e->is_reading = false;
    if (status != 0 || !e->found) return;
    kin_plan_basis *before = e->seen;
    e->seen = e->now;
    e->now = before;
    e->plan.len = 0;
    kin_json_put_event("plan", e->found, &e->plan);
    e->found = NULL;
    e->n_plans++;
}

// Only with one model, which is never unloaded: with several, the planner could be freed meanwhile.
static void ask_for_plan(kin_events *e) {
    if (e->is_reading || e->o.router->host || e->o.router->n == 0) return;
    e->planner = e->o.router->models[0].shared.preparer.session->planner;
    if (!e->planner) return;
    e->work.data = e;
    e->is_reading = uv_queue_work(e->loop, &e->work, read_plan, store_plan) == 0;
}

// ---- events

static void add_requests(kin_events *e, const kin_call_shared *shared, json_t *requests) {
    kin_slot_view *views = calloc((size_t)e->o.n_parallel, sizeof *views);
    int n = views ? kin_call_views(shared, views, e->o.n_parallel) : 0;
    for (int i = 0; i < n; i++)
        json_array_append_new(requests,
                              json_pack("{s:i, s:i, s:i, s:i}", "n_prompt", views[i].n_prompt, "n_done", views[i].n_done,
                                        "n_cached", views[i].n_cached, "n_generated", views[i].n_generated));
    free(views);
}

static void set_count(json_t *o, const char *key, uint64_t n) {
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void set_service(kin_events *e, json_t *o) {
    struct kin_call_counters counters;
    kin_service_status of_all;
    kin_router_sum(e->o.router, &counters, &of_all);
    const kin_service_status *status = &of_all;
    const kin_scheduler_stats *s = &of_all.scheduler;
    const struct kin_call_counters *c = &counters;
    json_t *requests = json_array();
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {{"running", (uint64_t)status->n_running},
                  {"waiting", (uint64_t)status->n_waiting},
                  {"kv_blocks", (uint64_t)s->n_blocks},
                  {"kv_blocks_free", (uint64_t)s->n_free_blocks},
                  {"prompt_tokens", s->n_prompt_tokens},
                  {"cached_tokens", s->n_cached_tokens},
                  {"generated_tokens", s->n_generated_tokens},
                  {"preempted", s->n_preempted},
                  {"requests", c->n_requests},
                  {"failed", c->n_failed},
                  {"cancelled", c->n_cancelled}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) set_count(o, counts[i].key, counts[i].n);
    for (int i = 0; i < e->o.router->n; i++) add_requests(e, &e->o.router->models[i].shared, requests);
    json_object_set_new(o, "texts", requests);
}

static void set_cluster(kin_events *e, json_t *o) {
    pthread_mutex_lock(&e->mutex);
    if (e->status) json_object_set_new(o, "cluster", json_loads(e->status, 0, NULL));
    pthread_mutex_unlock(&e->mutex);
}

static json_t *state_json(kin_events *e) {
    const kin_served_model *m = last_used(e);
    kin_loading loading;
    bool is_up = e->o.get_loading(e->o.user, &loading);
    json_t *o = json_pack("{s:s, s:s, s:b, s:i, s:I}", "version", KIN_VERSION, "model", m ? m->shared.model : e->o.alias, "is_up",
                          is_up, "n_parallel", e->o.n_parallel, "uptime_s", (json_int_t)(time(NULL) - e->o.begun_s));
    if (m) {
        json_object_set_new(o, "n_ctx", json_integer(m->shared.preparer.session->n_ctx));
        json_object_set_new(o, "has_others", json_boolean(m->shared.preparer.session->clustered));
        json_object_set_new(o, "head", kin_head_address_json(m->shared.preparer.session));
    }
    if (e->o.router->n > 0) set_service(e, o);
    if (m) set_cluster(e, o);
    if (!is_up && loading.what[0]) json_object_set_new(o, "doing", json_string(loading.what));
    if (!is_up && loading.percent >= 0) json_object_set_new(o, "percent", json_real(loading.percent));
    if (!is_up && loading.seconds_left >= 0) json_object_set_new(o, "seconds_left", json_real(loading.seconds_left));
    return o;
}

static void send_state(kin_events *e, listener *l, const kin_text_buffer *state) {
    if (!state->failed) kin_http_write(l->x, state->at, state->len);
    if (l->plan == e->n_plans || e->plan.failed || e->plan.len == 0) return;
    l->plan = e->n_plans;
    kin_http_write(l->x, e->plan.at, e->plan.len);
}

static void send_all(kin_events *e) {
    kin_text_buffer state = {0};
    kin_json_put_event("state", state_json(e), &state);
    for (int i = 0; i < KIN_EVENTS_MAX; i++)
        if (e->listeners[i].x) send_state(e, &e->listeners[i], &state);
    kin_text_fini(&state);
}

void kin_events_tick(kin_events *e, kin_time now) {
    if ((e->n == 0 && now > e->asked_until) || now - e->sent_at < SPACING_NS) return;
    e->sent_at = now;
    if (e->n > 0) send_all(e);
    ask_for_status(e); // for the next time
    if (e->n > 0) ask_for_plan(e);
}

json_t *kin_events_cluster(kin_events *e) {
    json_t *cluster;
    e->asked_until = kin_clock_now() + LOOKED_AT_NS;
    pthread_mutex_lock(&e->mutex);
    cluster = e->status ? json_loads(e->status, 0, NULL) : NULL;
    pthread_mutex_unlock(&e->mutex);
    return cluster;
}

// ---- listeners

static void on_listener_gone(void *self) {
    listener *l = self;
    l->x = NULL;
    l->events->n--;
}

void kin_events_add(kin_events *e, kin_http_exchange *x) {
    listener *l = NULL;
    for (int i = 0; i < KIN_EVENTS_MAX && !l; i++)
        if (!e->listeners[i].x) l = &e->listeners[i];
    if (!l || e->is_stopped) {
        kin_http_reply_error(x, 503, e->is_stopped ? "the server is shutting down" : "too many event streams are open");
        return;
    }
    *l = (listener){.data = {on_listener_gone, l}, .events = e, .x = x};
    kin_http_set_data(x, &l->data);
    kin_http_add_header(x, "Cache-Control", "no-store");
    kin_http_begin(x, 200, "text/event-stream");
    e->n++;
    if (e->n == 1) ask_for_status(e);
    e->sent_at = 0; // the next tick sends the current state
}
