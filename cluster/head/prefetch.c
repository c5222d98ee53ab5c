#include "cluster/head/prefetch.h"

#include <string.h>

#include "pipeline/local_stage.h"

// ---- the head's own part

void kin_cluster_prefetch_note_packed(kin_cluster_prefetch *p, uint32_t question) {
    kin_cluster_devices_act(
        p->devices, &(kin_membership_event){
                        .kind = KIN_MEMBERSHIP_PREFETCHED, .link = KIN_MEMBERSHIP_OWN, .question = question, .is_here = true});
}

int kin_cluster_prefetch_pack(const kin_cluster_options *options, const kin_prepacking_job *job, const atomic_bool *stop,
                              kin_packed **held, kin_err *err) {
    kin_local_stage_options o = {.model = options->model, .devices = options->devices, .shard = options->shard};
    return kin_local_stage_prepack(&o, &job->windows, &job->but, stop, held, err);
}

static bool has_work(const kin_windows *windows, const kin_windows *but) {
    return windows->n > 0 && (windows->n != but->n || memcmp(windows->at, but->at, (size_t)but->n * sizeof but->at[0]) != 0);
}

static void prefetch_own(kin_cluster_prefetch *p, uint32_t question) {
    const kin_assignment *next = kin_cluster_plans_answer(p->plans, question), *now = p->plans->active;
    kin_prepacking_job *job = p->ring->job;
    if (question == p->own_ticket) return; // only the rate limit would differ
    p->own_ticket = job->ticket = question;
    job->windows = next->windows[0].windows;
    job->but = now->windows[0].windows;
    bool is_whole = kin_share_is_whole(&next->shares[0]); // a share is packed when its plan begins
    if (has_work(&job->windows, &job->but) && p->o->shard.cache_dir && is_whole)
        kin_prepacking_begin(p->ring->prepacking, job);
    else
        kin_cluster_prefetch_note_packed(p, question);
}

// ---- devices

void kin_cluster_prefetch_begin(kin_cluster_prefetch *p, const kin_membership_action *a) {
    if (a->link == KIN_MEMBERSHIP_OWN) {
        prefetch_own(p, a->question);
        return;
    }
    const kin_assignment *next = kin_cluster_plans_answer(p->plans, a->question);
    const kin_membership_device *d = kin_membership_device_at(p->devices->membership, a->device);
    kin_proto_message *m = p->plans->message;
    int i = kin_assignment_find(next, &d->id);
    if (i < 0 || next->question != a->question) return; // that plan was given up
    m->type = KIN_FRAME_PREFETCH;
    m->prefetch.ticket = a->question;
    m->prefetch.purpose = KIN_PROTO_FOR_PLAN;
    m->prefetch.rate_limited = a->rate_limited;
    kin_cluster_plans_fill(p->plans, next, i, &m->prefetch.plan);
    kin_connections_send(p->devices->connections, a->link, 0, m);
    kin_connections_send_haves(p->devices->connections, a->link);
}

void kin_cluster_prefetch_handle_answer(kin_cluster_prefetch *p, uint32_t from, const kin_proto_prefetched *m) {
    kin_cluster_devices_act(p->devices, &(kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED,
                                                                .link = from,
                                                                .question = m->ticket,
                                                                .is_here = m->is_here,
                                                                .progress = &m->progress,
                                                                .reason = m->reason[0] ? m->reason : NULL});
}
