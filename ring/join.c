#include "ring/join.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pure/proto/label.h"
#include "pure/proto/member.h"
#include "ring/discovery.h"
#include "ring/fetch.h"
#include "ring/seat.h"
#include "ring/share.h"
#include "ring/station.h"
#include "ring/vitals.h"
#include "sys/cpu.h"
#include "sys/memory.h"

enum {
    N_PARCELS = 2 * KIN_STEPS_ON_THEIR_WAY + 16,
    LOOK_MS = 200, // how often the computing thread looks whether to stop
};

// How a preparation ended; from the computing thread to the loop's.
typedef struct result {
    struct join *join;
    uint32_t ticket, epoch;
    bool ok, of_step; // of_step: a step could not be computed
    kin_proto_ready ready;
    int n_embd;
    char reason[KIN_PROTO_MAX_REASON + 1];
} result;

typedef struct join {
    kin_join_options o;
    kin_parcels *pool;
    kin_parcel_queue *in;
    kin_station *station;
    kin_vitals *vitals;

    // The loop's thread.
    kin_member *member;
    kin_discovery *discovery;
    kin_share *share;
    kin_fetch *fetch;
    kin_stock *stock; // what the fetch fills
    kin_link *control;
    char head_address[KIN_MEMBER_ADDRESS];
    uint16_t head_port;
    kin_proto_id head_id;
    kin_proto_plan *plan, *arriving; // of the epoch in force; the one that just came
    kin_proto_hash fetching;         // and from which head
    kin_proto_id fetching_from;
    char fetching_address[KIN_MEMBER_ADDRESS];
    uint16_t fetching_port;
    int n_embd;      // of the model that the seat has open; 0: none yet
    uint32_t ticket; // of the preparation that waits for the fetch
    kin_proto_ready ready;
    kin_proto_progress progress;
    char doing[KIN_MEMBER_SENTENCE];
    char trouble[KIN_MEMBER_SENTENCE]; // why the head was not reached the last time

    // The computing thread.
    kin_seat *seat;
    uint32_t seat_ticket;
    kin_time progress_at;
    const char *progress_what;

    pthread_mutex_t mutex; // over the following
    kin_proto_progress computing_progress;
    char model_path[1024]; // to open the next seat by
    bool given_up;
    kin_err why;
} join;

static void act(join *j, const kin_member_event *event);

// ---- saying things

static void tell_status(join *j) {
    char line[KIN_MEMBER_SENTENCE];
    kin_member_doing(j->member, line, sizeof line);
    if (strcmp(line, j->doing) == 0) return;
    snprintf(j->doing, sizeof j->doing, "%s", line);
    if (j->o.status) j->o.status(j->o.user, line);
}

static void say(join *j, uint32_t epoch, const kin_proto_message *m) {
    if (j->control) kin_station_say(j->control, epoch, m);
}

static void say_facts(join *j) {
    kin_proto_message m = {.type = KIN_FRAME_DEVICE};
    kin_memory memory = kin_memory_read();
    kin_proto_device *d = &m.device;
    d->n_threads = (uint16_t)(j->o.n_threads ? j->o.n_threads : kin_cpu_n_cores());
    d->memory = memory.available + memory.own;
    if (j->o.memory && j->o.memory < d->memory) d->memory = j->o.memory;
    d->memory_total = memory.total;
    if (j->o.model_path) d->model = j->o.model_hash;
    d->endpoint.port = kin_station_port(j->station);
    for (int i = 0; i < j->o.n_advertise; i++) {
        kin_label_set(d->endpoint.address[d->endpoint.n_addresses++], KIN_PROTO_MAX_STR, j->o.advertise[i]);
    }
#ifdef __APPLE__
    kin_label_set(d->os, KIN_PROTO_MAX_STR, "macOS");
#else
    kin_label_set(d->os, KIN_PROTO_MAX_STR, "Linux");
#endif
    say(j, 0, &m);
}

static void say_events(join *j) {
    kin_proto_message m = {.type = KIN_FRAME_EVENTS};
    while (j->control &&
           (m.events.n_events = kin_events_take(kin_vitals_events(j->vitals), m.events.event, KIN_PROTO_MAX_EVENTS)))
        say(j, 0, &m);
}

static void say_status(join *j) {
    kin_proto_message m = {.type = KIN_FRAME_STATUS};
    kin_station_stats net = kin_station_stats_now(j->station);
    kin_member_state state = kin_member_state_now(j->member);
    bool is_computing;
    m.status = kin_vitals_status(j->vitals, &is_computing);
    m.status.state = state == KIN_MEMBER_READY       ? is_computing ? KIN_PROTO_COMPUTING : KIN_PROTO_WAITING
                     : state == KIN_MEMBER_PREPARING ? KIN_PROTO_PREPARING
                                                     : KIN_PROTO_JOINED;
    m.status.net_in = net.net_in;
    m.status.net_out = net.net_out;
    m.status.rtt_ns = net.rtt_ns;
    kin_label_set(m.status.doing, KIN_PROTO_MAX_STR, j->doing);
    say_events(j); // the head then has all events until now
    say(j, 0, &m);
}

// ---- preparing

// To the computing thread, which opens the seat.
static void queue_plan(join *j) {
    size_t n = kin_proto_size_plan(j->plan);
    kin_parcel *parcel = kin_parcels_take(j->pool, n);
    if (!parcel) { // all parcels are steps of an epoch that ends just now
        act(j,
            &(kin_member_event){
                .kind = KIN_MEMBER_PREPARE_FAILED, .ticket = j->ticket, .stage = "loading", .reason = "too much is on its way"});
        return;
    }
    parcel->frame = (kin_frame){.type = KIN_FRAME_PLAN, .epoch = j->ticket, .length = (uint32_t)n};
    kin_proto_encode_plan(parcel->payload, n, j->plan);
    kin_parcel_queue_put(j->in, parcel);
}

static void set_path(join *j, const char *path) {
    pthread_mutex_lock(&j->mutex);
    snprintf(j->model_path, sizeof j->model_path, "%s", path);
    pthread_mutex_unlock(&j->mutex);
}

static void fetch_opened(void *user, kin_stock *stock) {
    join *j = user;
    kin_stock_let_go(j->stock);
    j->stock = kin_stock_hold(stock);
    kin_share_set_stock(j->share, stock);
}

static void fetch_progress(void *user, const kin_fetch_progress *p) {
    join *j = user;
    j->progress = p->sent;
    if (j->o.progress) j->o.progress(j->o.user, "fetching weights", p->sent.done, p->sent.total, p->sent.rate);
    act(j, &(kin_member_event){.kind = KIN_MEMBER_PROGRESS, .ticket = j->ticket});
}

static void fetch_have(void *user, const kin_proto_have *have) {
    join *j = user;
    size_t n = kin_proto_size_have(have);
    uint8_t *payload = malloc(n);
    if (!payload || !j->control) {
        free(payload);
        return;
    }
    kin_proto_encode_have(payload, n, have);
    kin_link_part part = {payload, n};
    kin_link_send(j->control, KIN_FRAME_HAVE, 0, 1, &part); // when it does not fit now, the next one tells more
    free(payload);
}

static void fetch_done(void *user) {
    join *j = user;
    set_path(j, kin_store_path(kin_stock_store(j->stock), 0));
    queue_plan(j);
}

static void fetch_failed(void *user, const char *reason) {
    join *j = user;
    kin_fetch_cancel(j->fetch);
    j->fetch = NULL;
    act(j, &(kin_member_event){
               .kind = KIN_MEMBER_PREPARE_FAILED, .ticket = j->ticket, .stage = "fetching weights", .reason = reason});
}

static void fetch(join *j, const kin_windows *windows) {
    static const kin_fetch_callbacks callbacks = {.opened = fetch_opened,
                                                  .progress = fetch_progress,
                                                  .have_changed = fetch_have,
                                                  .done = fetch_done,
                                                  .failed = fetch_failed};
    kin_err err;
    bool same_head = kin_proto_id_equal(&j->fetching_from, &j->head_id) && strcmp(j->fetching_address, j->head_address) == 0 &&
                     j->fetching_port == j->head_port;
    if (j->fetch && same_head && memcmp(&j->fetching, &j->plan->model, sizeof j->fetching) == 0) {
        kin_fetch_set_windows(j->fetch, windows);
        return;
    }
    kin_fetch_cancel(j->fetch);
    j->fetching_from = j->head_id;
    j->fetching_port = j->head_port;
    memcpy(j->fetching_address, j->head_address, sizeof j->fetching_address);
    kin_fetch_options o = kin_fetch_options_default(kin_station_tls(j->station));
    o.id = j->o.id;
    o.name = j->o.name;
    o.version = j->o.version;
    o.cache_dir = j->o.cache_dir;
    o.model = j->fetching = j->plan->model;
    o.n_files = j->plan->n_files;
    o.file_sizes = j->plan->file_size;
    o.head_address = j->head_address;
    o.head_port = j->head_port;
    o.head_id = j->head_id;
    o.windows = windows;
    o.stock = j->stock; // it may be held still
    if (kin_fetch_start(&j->fetch, kin_station_loop(j->station), &o, &callbacks, j, &err) == 0) return;
    j->fetch = NULL;
    act(j, &(kin_member_event){
               .kind = KIN_MEMBER_PREPARE_FAILED, .ticket = j->ticket, .stage = "fetching weights", .reason = err.text});
}

static void prepare(join *j, uint32_t ticket) {
    static kin_member_windows windows; // large; only this thread
    kin_err err;
    j->ticket = ticket;
    if (kin_seat_windows(j->plan, KIN_PROTO_MAX_LAYERS, &windows, &err) != 0) {
        act(j, &(kin_member_event){
                   .kind = KIN_MEMBER_PREPARE_FAILED, .ticket = ticket, .stage = "reading the plan", .reason = err.text});
    } else if (j->o.model_path && memcmp(&j->o.model_hash, &j->plan->model, sizeof j->plan->model) == 0) {
        kin_fetch_cancel(j->fetch); // of another plan
        j->fetch = NULL;
        set_path(j, j->o.model_path);
        queue_plan(j);
    } else {
        fetch(j, &windows.windows);
    }
}

// The computing thread forgets what an earlier epoch left.
static void reuse(join *j, uint32_t epoch) {
    kin_parcel *parcel = kin_parcels_take(j->pool, 0);
    if (!parcel) { // all of them are steps of an epoch that ends just now
        act(j, &(kin_member_event){
                   .kind = KIN_MEMBER_COMPUTE_FAILED, .epoch = epoch, .stage = "clearing", .reason = "too much is on its way"});
        return;
    }
    parcel->frame = (kin_frame){.type = KIN_FRAME_END};
    kin_parcel_queue_put(j->in, parcel);
}

// ---- the control link

static void drop_control(join *j, const char *reason) {
    kin_link_close(j->control, reason);
    j->control = NULL;
}

static void control_opened(void *user, kin_link *link) {
    join *j = user;
    kin_station_say_open(j->station, link, KIN_PROTO_CONTROL, 0);
}

static void control_closed(void *user, kin_link *link, const char *reason) {
    join *j = user;
    if (j->control != link) return;
    j->control = NULL;
    if (strcmp(reason, j->trouble) != 0) kin_log(KIN_LOG_WARN, "head %s: %s", j->head_address, reason);
    snprintf(j->trouble, sizeof j->trouble, "%s", reason); // once, not at every try
    act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = reason});
}

// All of a plan that decides what has to be prepared: not whom to send to, nor what is recorded.
static void take_plan(join *j, uint32_t epoch, const kin_proto_plan *plan) {
    kin_proto_plan work = *plan;
    memset(&work.next_id, 0, sizeof work.next_id);
    work.next = (kin_proto_endpoint){0};
    work.flags &= ~(uint32_t)KIN_PROTO_PLAN_TIMELINE;
    size_t n = kin_proto_size_plan(&work);
    uint8_t *bytes = malloc(n);
    if (!bytes) return;
    kin_proto_encode_plan(bytes, n, &work);
    *j->arriving = *plan;
    uint32_t epoch_before = kin_member_epoch(j->member);
    kin_proto_plan *before = j->plan;
    j->plan = j->arriving;
    j->arriving = before;
    kin_member_event event = {.kind = KIN_MEMBER_PLAN, .epoch = epoch, .work = bytes, .n_work = n};
    act(j, &event);
    if (kin_member_epoch(j->member) == epoch_before) { // of an epoch that is over, or a second one of the same
        j->arriving = j->plan;
        j->plan = before;
    }
    free(bytes);
}

static void take_message(join *j, uint32_t epoch, const kin_proto_message *m) {
    switch (m->type) {
    case KIN_FRAME_ACCEPT:
        j->head_id = m->accept.id;
        j->trouble[0] = '\0';
        kin_link_set_frame_max(j->control, KIN_FRAME_CAP_LARGE);
        act(j, &(kin_member_event){.kind = KIN_MEMBER_ACCEPTED, .name = m->accept.name});
        break;
    case KIN_FRAME_REFUSE: act(j, &(kin_member_event){.kind = KIN_MEMBER_REFUSED, .reason = m->refuse.reason}); break;
    case KIN_FRAME_PLAN: take_plan(j, epoch, &m->plan); break;
    case KIN_FRAME_END: act(j, &(kin_member_event){.kind = KIN_MEMBER_END, .epoch = epoch}); break;
    case KIN_FRAME_STATUS_WANTED: say_status(j); break;
    case KIN_FRAME_HAVE:
        if (j->fetch) kin_fetch_have(j->fetch, &m->have);
        break;
    default:
        kin_log(KIN_LOG_WARN, "the head sent %s, which is not for a device", kin_frame_name(m->type));
        drop_control(j, "that message is not for a device");
        act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = "it sent what is not for a device"});
        break;
    }
}

static void control_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    join *j = user;
    kin_err err;
    kin_proto_message *m = malloc(sizeof *m);
    if (!m) return;
    if (kin_proto_decode(frame->type, payload, frame->length, m, &err) == 0) {
        take_message(j, frame->epoch, m);
    } else {
        kin_log(KIN_LOG_WARN, "%s: %s", kin_link_name(link), err.text);
        drop_control(j, err.text);
        act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = err.text});
    }
    free(m);
}

static void connect_head(join *j, const kin_member_action *a) {
    static const kin_link_callbacks callbacks = {.opened = control_opened, .frame = control_frame, .closed = control_closed};
    kin_link_options o = kin_link_options_default(kin_station_tls(j->station));
    kin_err err;
    drop_control(j, NULL);
    snprintf(j->head_address, sizeof j->head_address, "%s", a->address);
    j->head_port = a->port;
    if (kin_link_connect(&j->control, kin_station_loop(j->station), a->address, a->port, &o, &callbacks, j, &err) == 0) return;
    j->control = NULL;
    act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = err.text});
}

// ---- the membership's wishes

static void say_failed(join *j, const kin_member_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_FAILED};
    kin_label_set(m.failed.stage, KIN_PROTO_MAX_STR, a->stage);
    kin_label_set(m.failed.reason, KIN_PROTO_MAX_REASON, a->text);
    say(j, a->epoch, &m);
}

static void say_next(join *j, const kin_member_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_NEXT};
    m.next.is_open = a->is_open;
    kin_label_set(m.next.reason, KIN_PROTO_MAX_REASON, a->text);
    say(j, a->epoch, &m);
}

static void say_progress(join *j, uint32_t epoch) {
    kin_proto_message m = {.type = KIN_FRAME_PROGRESS};
    m.progress = j->progress;
    say(j, epoch, &m);
}

static void say_ready(join *j, uint32_t epoch) {
    kin_proto_message m = {.type = KIN_FRAME_READY};
    m.ready = j->ready;
    say(j, epoch, &m);
}

static void connect_next(join *j) {
    kin_proto_endpoint to = j->plan->next;
    if (to.n_addresses == 0) { // the head, where this device reached it
        to.n_addresses = 1;
        snprintf(to.address[0], sizeof to.address[0], "%s", j->head_address);
        if (to.port == 0) to.port = j->head_port;
    }
    kin_station_connect_next(j->station, &to);
}

static void give_up(join *j, const char *why) {
    pthread_mutex_lock(&j->mutex);
    j->given_up = true;
    kin_err_set(&j->why, "%s", why);
    pthread_mutex_unlock(&j->mutex);
}

static void enter_epoch(join *j, uint32_t epoch) {
    size_t frame_max = 0;
    if (epoch && j->n_embd) frame_max = kin_proto_step_size_max(j->plan->n_batch, (uint32_t)j->n_embd, j->plan->wire_type);
    kin_events_turn(kin_vitals_events(j->vitals), epoch && (j->plan->flags & KIN_PROTO_PLAN_TIMELINE));
    kin_station_set_epoch(j->station, epoch, frame_max > KIN_FRAME_CAP_STEP ? KIN_FRAME_CAP_STEP : (uint32_t)frame_max);
}

static void search(join *j) {
    kin_err err;
    if (j->discovery && kin_discovery_ask(j->discovery, &err) != 0) kin_log(KIN_LOG_DEBUG, "search: %s", err.text);
}

static void take_action(join *j, const kin_member_action *a) {
    switch (a->kind) {
    case KIN_MEMBER_SEARCH: search(j); break;
    case KIN_MEMBER_CONNECT: connect_head(j, a); break;
    case KIN_MEMBER_DROP: drop_control(j, a->text[0] ? a->text : NULL); break;
    case KIN_MEMBER_SEND_FACTS: say_facts(j); break;
    case KIN_MEMBER_PREPARE: prepare(j, a->ticket); break;
    case KIN_MEMBER_CANCEL: break; // what was fetched stays, what is being opened is replaced
    case KIN_MEMBER_REUSE: reuse(j, a->epoch); break;
    case KIN_MEMBER_SEND_PROGRESS: say_progress(j, a->epoch); break;
    case KIN_MEMBER_SEND_READY: say_ready(j, a->epoch); break;
    case KIN_MEMBER_SEND_FAILED: say_failed(j, a); break;
    case KIN_MEMBER_CONNECT_NEXT: connect_next(j); break;
    case KIN_MEMBER_CLOSE_NEXT: kin_station_close_next(j->station); break;
    case KIN_MEMBER_SEND_RING: say_next(j, a); break;
    case KIN_MEMBER_GIVE_UP: give_up(j, a->text); break;
    case KIN_MEMBER_LOG: kin_log(a->level, "%s", a->text); break;
    case KIN_MEMBER_STATUS: tell_status(j); break;
    }
}

// One step of the membership. Actions may cause events, and these must wait until the step's actions are done: the actions live
// until the next step.
static void act(join *j, const kin_member_event *event) {
    const kin_member_actions *now = kin_member_step(j->member, kin_clock_now(), event);
    kin_member_actions *actions = malloc(sizeof *actions);
    kin_assert(actions);
    *actions = *now;
    enter_epoch(j, kin_member_epoch(j->member));
    for (int i = 0; i < actions->n; i++) take_action(j, &actions->at[i]);
    free(actions);
}

// ---- the station's callbacks

static void on_tick(void *user) {
    join *j = user;
    act(j, &(kin_member_event){.kind = KIN_MEMBER_TICK});
    say_events(j);
}

static void on_next(void *user, uint32_t epoch, bool is_open, const char *reason) {
    join *j = user;
    act(j,
        &(kin_member_event){.kind = is_open ? KIN_MEMBER_NEXT_OPENED : KIN_MEMBER_NEXT_CLOSED, .epoch = epoch, .reason = reason});
}

static void on_fetch(void *user, kin_link *link, const kin_proto_open *open) {
    join *j = user;
    (void)open;
    kin_station_say_accept(j->station, link);
    kin_share_accept(j->share, link);
}

static void on_found(void *user, const kin_beacon *head, const char *address) {
    join *j = user;
    act(j, &(kin_member_event){.kind = KIN_MEMBER_FOUND, .name = head->name, .address = address, .port = head->port});
}

static void begin(void *arg) {
    join *j = arg;
    kin_err err;
    if (kin_share_open(&j->share, kin_station_loop(j->station), NULL, &err) != 0) {
        give_up(j, err.text);
        return;
    }
    if (!j->o.head) {
        kin_discovery_options o = {.port = KIN_DISCOVERY_PORT};
        memcpy(o.key, j->o.key.bytes, sizeof o.key);
        if (kin_discovery_search(&j->discovery, kin_station_loop(j->station), &o, on_found, j, &err) != 0) {
            kin_log(KIN_LOG_WARN, "cannot search for heads: %s; give the head's address", err.text);
        }
    }
    on_tick(j);
    tell_status(j);
}

static void end(void *arg) {
    join *j = arg;
    drop_control(j, "the device was stopped");
    kin_fetch_cancel(j->fetch);
    kin_share_close(j->share);
    kin_stock_let_go(j->stock);
    kin_discovery_close(j->discovery);
}

// ---- from the computing thread

static void on_result(void *arg) {
    result *r = arg;
    join *j = r->join;
    kin_member_event event = {.ticket = r->ticket, .epoch = r->epoch, .stage = "loading", .reason = r->reason};
    if (r->ok) {
        j->ready = r->ready;
        j->n_embd = r->n_embd;
    }
    event.kind = r->of_step ? KIN_MEMBER_COMPUTE_FAILED : r->ok ? KIN_MEMBER_PREPARED : KIN_MEMBER_PREPARE_FAILED;
    if (r->of_step) event.stage = "computing";
    act(j, &event);
    free(r);
}

static void on_progress(void *arg) {
    join *j = arg;
    pthread_mutex_lock(&j->mutex);
    j->progress = j->computing_progress;
    pthread_mutex_unlock(&j->mutex);
    act(j, &(kin_member_event){.kind = KIN_MEMBER_PROGRESS, .ticket = j->ticket});
}

static void report(void *user, const char *what, uint64_t done, uint64_t total) {
    join *j = user;
    if (j->o.progress) j->o.progress(j->o.user, what, done, total, 0);
    pthread_mutex_lock(&j->mutex); // several threads pack
    kin_time now = kin_clock_now();
    bool due = j->progress_what != what || kin_clock_ms(j->progress_at, now) >= LOOK_MS;
    if (due) {
        j->progress_what = what;
        j->progress_at = now;
        j->computing_progress = (kin_proto_progress){.stage = KIN_PROTO_PACKING, .done = done, .total = total};
    }
    pthread_mutex_unlock(&j->mutex);
    if (due) kin_station_call(j->station, on_progress, j);
}

static void tell(join *j, const result *r) {
    result *copy = malloc(sizeof *copy);
    kin_assert(copy);
    *copy = *r;
    copy->join = j;
    kin_station_call(j->station, on_result, copy);
}

static void open_seat(join *j, const kin_parcel *parcel) {
    result r = {.ticket = parcel->frame.epoch};
    kin_err err;
    char path[sizeof j->model_path];
    kin_proto_plan *plan = malloc(sizeof *plan);
    kin_assert(plan);
    pthread_mutex_lock(&j->mutex);
    memcpy(path, j->model_path, sizeof path);
    pthread_mutex_unlock(&j->mutex);
    kin_seat_close(j->seat);
    j->seat = NULL;
    kin_seat_options o = {.model_path = path,
                          .in_parts = !j->o.model_path || strcmp(path, j->o.model_path) != 0,
                          .cache_dir = j->o.no_cache ? NULL : j->o.cache_dir,
                          .cache_cap = j->o.cache_cap,
                          .memory = j->o.memory,
                          .n_threads = j->o.n_threads,
                          .no_gpu = j->o.no_gpu,
                          .pool = j->pool,
                          .stop = j->o.stop,
                          .progress = report,
                          .progress_user = j};
    r.ok = kin_proto_decode_plan(parcel->payload, parcel->frame.length, plan, &err) == 0 &&
           kin_seat_open(&j->seat, plan, &o, &err) == 0;
    if (r.ok) {
        kin_shard_stats s = kin_seat_stats(j->seat);
        r.n_embd = kin_seat_n_embd(j->seat);
        r.ready = (kin_proto_ready){.kv_bytes = s.kv_bytes,
                                    .weights_bytes = s.weights.mapped_bytes + s.weights.cached_bytes + s.weights.packed_bytes +
                                                     s.weights.gpu_bytes,
                                    .resident_bytes = s.weights.stream.resident_bytes,
                                    .compute_bytes = s.compute_bytes,
                                    .gpu_bytes = s.weights.gpu_bytes};
    } else {
        kin_label_set(r.reason, KIN_PROTO_MAX_REASON, err.text);
    }
    free(plan);
    tell(j, &r);
}

static void compute(join *j, kin_parcel *parcel) {
    uint32_t epoch = parcel->frame.epoch;
    kin_err err;
    if (!j->seat) { // of an epoch whose seat did not open
        kin_parcels_give(j->pool, parcel);
        return;
    }
    kin_vitals_begin(j->vitals, parcel);
    kin_parcel *out = kin_worker_take(kin_seat_worker(j->seat), parcel, &err);
    kin_vitals_end(j->vitals, j->seat);
    if (out) {
        kin_station_send(j->station, out);
        return;
    }
    result r = {.epoch = epoch, .of_step = true};
    kin_label_set(r.reason, KIN_PROTO_MAX_REASON, err.text);
    tell(j, &r);
}

static void handle(join *j, kin_parcel *parcel) {
    switch (parcel->frame.type) {
    case KIN_FRAME_PLAN:
        open_seat(j, parcel);
        kin_parcels_give(j->pool, parcel);
        break;
    case KIN_FRAME_END:
        if (j->seat) kin_part_reset(kin_seat_part(j->seat));
        kin_parcels_give(j->pool, parcel);
        break;
    default: compute(j, parcel); break;
    }
}

static bool is_over(join *j, kin_err *err) {
    pthread_mutex_lock(&j->mutex);
    bool over = j->given_up;
    if (over) *err = j->why;
    pthread_mutex_unlock(&j->mutex);
    return over;
}

static int work(join *j, kin_err *err) {
    while (!atomic_load(j->o.stop)) {
        kin_time begun = kin_clock_now();
        kin_parcel *parcel = kin_parcel_queue_take(j->in, LOOK_MS);
        bool came = parcel;
        kin_vitals_waited(j->vitals, begun, parcel);
        if (parcel) handle(j, parcel);
        kin_vitals_publish(j->vitals, j->seat, came);
        if (!parcel && is_over(j, err)) return KIN_FAIL;
    }
    return 0;
}

// ---- opening and closing

static int open_all(join *j, kin_err *err) {
    kin_member_options mo = kin_member_options_default();
    memcpy(&mo.seed, j->o.id.bytes, sizeof mo.seed);
    mo.seed ^= kin_clock_now();
    if (j->o.head) snprintf(mo.address, sizeof mo.address, "%s", j->o.head);
    mo.port = j->o.head_port;
    j->plan = calloc(1, sizeof *j->plan);
    j->arriving = calloc(1, sizeof *j->arriving);
    j->member = kin_member_new(&mo, kin_clock_now());
    if (!j->plan || !j->arriving || !j->member) return kin_err_set(err, "out of memory");
    if (kin_parcels_open(&j->pool, N_PARCELS, err) != 0 || kin_parcel_queue_open(&j->in, err) != 0) return KIN_FAIL;
    if (kin_vitals_open(&j->vitals, err) != 0) return KIN_FAIL;
    kin_station_options so = {.id = j->o.id,
                              .name = j->o.name,
                              .version = j->o.version,
                              .key = j->o.key,
                              .listen = j->o.listen,
                              .port = j->o.port,
                              .pool = j->pool,
                              .in = j->in,
                              .events = kin_vitals_events(j->vitals)};
    static const kin_station_callbacks callbacks = {.tick = on_tick, .fetch = on_fetch, .next = on_next};
    if (kin_station_open(&j->station, &so, &callbacks, j, err) != 0) return KIN_FAIL;
    return kin_station_start(j->station, begin, j, err);
}

static void close_all(join *j) {
    kin_station_close(j->station, end, j);
    kin_parcel *parcel;
    while (j->in && (parcel = kin_parcel_queue_take(j->in, 0))) kin_parcels_give(j->pool, parcel);
    kin_seat_close(j->seat);
    kin_vitals_close(j->vitals);
    kin_parcel_queue_close(j->in);
    kin_parcels_close(j->pool);
    kin_member_free(j->member);
    free(j->plan);
    free(j->arriving);
    pthread_mutex_destroy(&j->mutex);
    kin_key_wipe(&j->o.key);
    free(j);
}

int kin_join_run(const kin_join_options *o, kin_err *err) {
    join *j = calloc(1, sizeof *j);
    if (!j) return kin_err_set(err, "out of memory");
    j->o = *o;
    pthread_mutex_init(&j->mutex, NULL);
    int rc = open_all(j, err) == 0 ? work(j, err) : KIN_FAIL;
    close_all(j);
    return rc;
}
