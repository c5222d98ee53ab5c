// Prefetching for later plans: the head orders it (PREFETCH); the device fetches when nothing more important is to be fetched,
// then packs in a thread of the lowest priority, and reports its progress (PREFETCHED).
//
// A plan ends an order: if the order was for that plan, everything is here.
#include "cluster/join/prefetch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "cluster/join/fetch.h"
#include "cluster/join/messages.h"
#include "pure/proto/label.h"
#include "sys/disk.h"

enum {
    REPORT_MS = 1000,
    STANDBY_PART = 10, // of the free disk space, for standby weights
};

// ---- reporting

static void report_prefetch(kin_join *j, bool is_here, const char *reason) {
    kin_proto_message m = {.type = KIN_FRAME_PREFETCHED};
    // An order that has not begun waits for the fetch of a plan: reports that fetch's progress.
    bool waits = !j->ahead.is_begun && atomic_load(&j->is_fetching);
    const kin_proto_progress *progress = waits ? &j->preparing.progress : &j->ahead.progress;
    m.prefetched = (kin_proto_prefetched){.ticket = j->ahead.order->ticket, .is_here = is_here, .progress = *progress};
    if (reason) kin_label_set_sentence(m.prefetched.reason, KIN_PROTO_MAX_REASON, reason[0] ? reason : "it failed");
    j->ahead.reported_at = kin_clock_now();
    kin_join_send(j, 0, &m);
}

static void end_prefetch(kin_join *j, const char *reason) {
    if (!reason) j->ahead.progress.done = j->ahead.progress.total;
    report_prefetch(j, !reason, reason);
    j->ahead.order->ticket = 0;
}

// ---- packing

// What could not be packed ahead is packed when its plan begins.
void kin_join_on_packed(void *user, uint32_t ticket) {
    kin_join *j = user;
    if (j->ahead.order->ticket == ticket) end_prefetch(j, NULL);
}

int kin_join_pack(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err) {
    kin_join *j = user;
    kin_engine_instance_options o = kin_join_instance_options(j, job->path);
    o.n_threads = 1;
    return kin_engine_instance_prepack(&job->plan, &o, &job->but, stop, held, err);
}

// Packs the order's layers, except those of the instance that is open or being opened, which packs its own.
static void begin_packing(kin_join *j) {
    const kin_share share = kin_engine_instance_share(&j->ahead.order->plan);
    kin_prepacking_job *job = j->ring.job;
    const char *path = kin_join_has_own_file(j, &j->ahead.order->plan)
                           ? j->o.model_path
                           : kin_store_path(kin_chunk_store_store(j->fetching.chunks), 0);
    bool keeps = j->o.engine ? j->o.engine->prefetch != NULL : !j->o.no_cache;
    if (!keeps || j->ahead.order->plan.n_windows == 0) {
        end_prefetch(j, NULL);
        return;
    }
    job->ticket = j->ahead.order->ticket;
    job->plan = j->ahead.order->plan;
    job->but = j->preparing.ticket && kin_join_is_same_share(&share, &j->preparing.share) ? j->preparing.windows.windows
                                                                                          : (kin_windows){0};
    snprintf(job->path, sizeof job->path, "%s", path);
    j->ahead.progress.stage = KIN_PROTO_PACKING;
    kin_prepacking_begin(j->ring.prepacking, job);
}

// ---- the fetch

static void later_progress(kin_join *j, const kin_fetch_progress *p) {
    const kin_proto_progress *progress = &p->sent;
    if (!j->ahead.order->ticket) return;
    j->ahead.progress = *progress;
    if (j->o.progress) j->o.progress(j->o.user, "fetching ahead", progress->done, progress->total, progress->rate);
}

static void later_done(kin_join *j) {
    kin_member_windows w;
    kin_err err;
    j->ahead.fetches = false;
    if (!j->ahead.order->ticket || kin_engine_instance_windows(&j->ahead.order->plan, KIN_PROTO_MAX_LAYERS, &w, &err) != 0)
        return;
    int n_windows = kin_fetch_stats_now(j->fetching.fetch).n_windows; // only as many as the disk may hold
    if (n_windows < w.windows.n) w.windows.n = j->ahead.order->plan.n_windows = n_windows;
    const kin_share share = kin_engine_instance_share(&j->ahead.order->plan);
    kin_join_note_layers(j, &w.windows, &share);
    kin_log(KIN_LOG_DEBUG, "fetched ahead: %d layers for %s", kin_windows_n_layers(&w.windows),
            j->ahead.order->purpose == KIN_PROTO_FOR_PLAN ? "a better plan" : "the loss of another device");
    begin_packing(j);
}

static void later_failed(kin_join *j, const char *reason) {
    j->ahead.fetches = false;
    if (j->ahead.order->ticket) end_prefetch(j, reason);
}

static uint64_t standby_disk(const kin_join *j) {
    return j->o.standby_disk == KIN_JOIN_STANDBY_DISK ? kin_disk_free(j->o.cache_dir) / STANDBY_PART : j->o.standby_disk;
}

static void begin_prefetch(kin_join *j) {
    const kin_proto_plan *plan = &j->ahead.order->plan;
    kin_member_windows w;
    kin_err err;
    j->ahead.is_begun = true;
    kin_join_check_store(j);
    bool is_standby = j->ahead.order->purpose == KIN_PROTO_FOR_STANDBY;
    const kin_share share = kin_engine_instance_share(plan);
    if (kin_engine_instance_windows(plan, KIN_PROTO_MAX_LAYERS, &w, &err) != 0) {
        end_prefetch(j, err.text);
    } else if (is_standby && j->o.standby_disk == 0) {
        end_prefetch(j, "it lends no disk space for standby layers");
    } else if (kin_join_has_own_file(j, plan) || kin_join_has_layers(j, plan, &w.windows, &share) || w.windows.n == 0) {
        begin_packing(j);
    } else {
        kin_join_fetch(j, plan, &w.windows, true);
        if (j->fetching.fetch) kin_fetch_set_rate_limited(j->fetching.fetch, j->ahead.order->rate_limited);
        if (j->fetching.fetch && is_standby) kin_fetch_set_most(j->fetching.fetch, standby_disk(j));
    }
}

// ---- orders

// A fetch for an active plan, or for one being prepared, goes first.
static bool may_begin(kin_join *j) {
    return kin_member_state_now(j->member) != KIN_MEMBER_PREPARING && !atomic_load(&j->is_fetching);
}

void kin_join_prefetch_tick(kin_join *j) {
    if (!j->ahead.order->ticket) return;
    if (!j->ahead.is_begun && may_begin(j)) begin_prefetch(j);
    if (j->ahead.order->ticket && kin_clock_ms(j->ahead.reported_at, kin_clock_now()) >= REPORT_MS)
        report_prefetch(j, false, NULL);
}

void kin_join_handle_prefetch(kin_join *j, const kin_proto_prefetch *order) {
    bool is_new = order->ticket != j->ahead.order->ticket;
    if (is_new) {
        kin_join_end_prefetch(j);
        *j->ahead.order = *order;
        j->ahead.reported_at = kin_clock_now();
        j->ahead.progress = (kin_proto_progress){.stage = KIN_PROTO_FETCHING};
        kin_join_prefetch_tick(j);
    } else {
        j->ahead.order->rate_limited = order->rate_limited;
        if (j->ahead.fetches) kin_fetch_set_rate_limited(j->fetching.fetch, order->rate_limited);
    }
}

void kin_join_end_prefetch(kin_join *j) {
    j->ahead.order->ticket = 0;
    j->ahead.is_begun = false;
    kin_prepacking_cancel(j->ring.prepacking);
    if (j->ahead.fetches) kin_fetch_set_windows(j->fetching.fetch, &(kin_windows){0});
    if (j->fetching.fetch) kin_fetch_set_rate_limited(j->fetching.fetch, false);
}

// ---- opening and closing

int kin_join_open_prefetch(kin_join *j, kin_err *err) {
    static const kin_join_fetch_sink sink = {later_progress, NULL, later_done, later_failed};
    j->fetching.for_later = &sink;
    j->ahead.order = calloc(1, sizeof *j->ahead.order);
    return j->ahead.order ? 0 : kin_err_set(err, "out of memory");
}

void kin_join_close_prefetch(kin_join *j) {
    free(j->ahead.order);
}
