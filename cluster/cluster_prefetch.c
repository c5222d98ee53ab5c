// What is prepared for a plan that is not in force yet: devices are told to fetch and pack (PREFETCH), and the head packs its own
// part in a thread that gives way to all others.
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster_impl.h"
#include "pure/proto/id.h"

// ---- whose plan

kin_assignment **kin_cluster_answer_of(kin_cluster *c, uint32_t question) {
    return c->next->question == question ? &c->next : &c->asked;
}

void kin_cluster_keep_next(kin_cluster *c) {
    kin_assignment *answer = c->asked;
    if (kin_membership_prepares(c->membership) != answer->question) return;
    c->asked = c->next;
    c->next = answer;
}

// ---- the head's own part

// From the packing thread.
typedef struct packed {
    kin_cluster *cluster;
    uint32_t ticket;
} packed;

static void say_own(kin_cluster *c, uint32_t question) {
    kin_cluster_act(c, &(kin_membership_event){
                           .kind = KIN_MEMBERSHIP_PREFETCHED, .link = KIN_MEMBERSHIP_OWN, .question = question, .is_here = true});
}

static void on_packed(void *arg) {
    packed *p = arg;
    say_own(p->cluster, p->ticket);
    free(p);
}

// What could not be packed ahead is packed when the plan begins.
static void packing_is_done(void *user, uint32_t ticket, const char *reason) {
    kin_cluster *c = user;
    packed *p = malloc(sizeof *p);
    (void)reason;
    kin_assert(p);
    *p = (packed){c, ticket};
    if (!kin_endpoint_call(c->endpoint, on_packed, p)) free(p);
}

static int pack(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err) {
    const kin_cluster *c = user;
    kin_local_stage_options o = {.model = c->o.model, .devices = c->o.devices, .shard = c->o.shard};
    return kin_local_stage_prepack(&o, &job->windows, &job->but, stop, held, err);
}

static bool has_work(const kin_windows *windows, const kin_windows *but) {
    return windows->n > 0 && (windows->n != but->n || memcmp(windows->at, but->at, (size_t)but->n * sizeof but->at[0]) != 0);
}

static void prefetch_own(kin_cluster *c, uint32_t question) {
    const kin_assignment *p = *kin_cluster_answer_of(c, question), *now = c->plan;
    kin_prepacking_job *job = c->own_job;
    if (question == c->own_ticket) return; // only its pace would be another one
    c->own_ticket = job->ticket = question;
    job->windows = p->windows[p->ring.n_members - 1].windows;
    job->but = now->windows[now->ring.n_members - 1].windows;
    if (has_work(&job->windows, &job->but) && c->o.shard.cache_dir)
        kin_prepacking_begin(c->prepacking, job);
    else
        say_own(c, question);
}

// ---- devices

void kin_cluster_prefetch(kin_cluster *c, const kin_membership_action *a) {
    if (a->link == KIN_MEMBERSHIP_OWN) {
        prefetch_own(c, a->question);
        return;
    }
    const kin_assignment *p = *kin_cluster_answer_of(c, a->question);
    const kin_membership_device *d = kin_membership_device_at(c->membership, a->device);
    kin_proto_message *m = c->message;
    int i = kin_assignment_find(p, &d->id);
    if (i < 0 || p->question != a->question) return; // it has been given up
    m->type = KIN_FRAME_PREFETCH;
    m->prefetch.ticket = a->question;
    m->prefetch.purpose = KIN_PROTO_FOR_PLAN;
    m->prefetch.gently = a->gently;
    kin_cluster_fill_plan(c, p, i, &m->prefetch.plan);
    kin_connections_send(c->connections, a->link, 0, m);
    kin_connections_tell(c->connections, a->link);
}

void kin_cluster_take_prefetched(kin_cluster *c, uint32_t from, const kin_proto_prefetched *m) {
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED,
                                               .link = from,
                                               .question = m->ticket,
                                               .is_here = m->is_here,
                                               .progress = &m->progress,
                                               .reason = m->reason[0] ? m->reason : NULL});
}

// ---- opening and closing

int kin_cluster_open_prefetch(kin_cluster *c, kin_err *err) {
    c->own_job = calloc(1, sizeof *c->own_job);
    if (!c->own_job) return kin_err_set(err, "out of memory");
    kin_prepacking_options o = {.pack = pack, .done = packing_is_done, .user = c};
    return kin_prepacking_open(&c->prepacking, &o, err);
}

void kin_cluster_close_prefetch(kin_cluster *c) {
    kin_prepacking_close(c->prepacking);
    free(c->own_job);
}
