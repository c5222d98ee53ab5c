#include <string.h>

#include "base/hash.h"
#include "pure/proto/label.h"
#include "testkit/sim/cluster.h"

static int node_of(const kin_membership_device *d) {
    return d->id.bytes[0];
}

static void ask_planner(kin_sim *w, const kin_membership_action *a) {
    w->question = a->question;
    w->n_asked = a->n_devices;
    for (int i = 0; i < a->n_devices; i++) w->asked[i] = node_of(kin_membership_device_at(w->membership, a->devices[i]));
    if (!kin_sim_is_calm(w) && kin_sim_below(w, 3) == 0) w->plan_variant = kin_sim_below(w, 4);
    kin_sim_push(w, (kin_sim_event){.at = w->now + kin_sim_between_ms(w, 0, 120),
                                    .what = KIN_SIM_ANSWER,
                                    .serial = w->nodes[KIN_SIM_HEAD].life,
                                    .ticket = a->question});
}

static void send_plan(kin_sim *w, const kin_membership_action *a) {
    kin_assert(a->epoch < KIN_SIM_EPOCHS);
    kin_assert(w->request == 0); // no request is disturbed by a better plan
    uint64_t *plan = &w->plan_of[a->epoch];
    if (*plan == 0) w->totals->n_epochs++;
    kin_assert(*plan == 0 || *plan == w->plan); // one epoch, one plan
    *plan = w->plan;
    int node = node_of(kin_membership_device_at(w->membership, a->device)), next = KIN_SIM_HEAD, previous = KIN_SIM_HEAD;
    for (int i = 0; i + 1 < w->n_planned; i++) {
        if (w->planned[i] == node) next = w->planned[i + 1];
        if (w->planned[i + 1] == node) previous = w->planned[i];
    }
    kin_sim_send(
        w, kin_sim_link_at(w, a->link), 1,
        (kin_sim_message){.word = KIN_SIM_PLAN, .epoch = a->epoch, .value = w->plan, .node = next, .previous = previous});
}

static void prefetch(kin_sim *w, const kin_membership_action *a) {
    kin_assert(kin_membership_state_now(w->membership) == KIN_MEMBERSHIP_SERVING); // the epoch in force goes on
    kin_assert(a->question == kin_membership_prepares(w->membership));
    if (a->link != KIN_MEMBERSHIP_OWN) {
        int at = kin_sim_link_at(w, a->link);
        if (at >= 0) kin_sim_send(w, at, 1, (kin_sim_message){.word = KIN_SIM_PREFETCH, .request = a->question});
        return;
    }
    kin_sim_push(w, (kin_sim_event){.at = w->now + kin_sim_between_ms(w, 0, 200),
                                    .what = KIN_SIM_PREFETCHED,
                                    .serial = w->nodes[KIN_SIM_HEAD].life,
                                    .ticket = a->question});
}

static void note_given_up(kin_sim *w, const char *line) {
    w->totals->n_given_up += strstr(line, "cannot prepare a better plan") != NULL;
}

static void fail_requests(kin_sim *w, const kin_membership_action *a) {
    KIN_SIM_REPORT(w, "head: the request fails: %s", a->text);
    kin_assert(w->request != 0);
    kin_assert(strstr(a->text, "device '"));
    kin_assert(strstr(a->text, "(stage "));
    w->request = 0;
    w->totals->n_failed++;
}

static void head_act(kin_sim *w, const kin_membership_action *a) {
    kin_sim_node *n = &w->nodes[KIN_SIM_HEAD];
    int at = kin_sim_link_at(w, a->link); // if the kind has a link
    kin_sim_message text = {.word = KIN_SIM_REFUSE};
    switch (a->kind) {
    case KIN_MEMBERSHIP_ACCEPT: kin_sim_send(w, at, 1, (kin_sim_message){.word = KIN_SIM_ACCEPT}); break;
    case KIN_MEMBERSHIP_REFUSE:
        kin_label_set(text.text, sizeof text.text - 1, a->text);
        kin_sim_send(w, at, 1, text);
        kin_sim_shut(w, at, 1);
        break;
    case KIN_MEMBERSHIP_DROP: kin_sim_shut(w, at, 1); break;
    case KIN_MEMBERSHIP_ASK: ask_planner(w, a); break;
    case KIN_MEMBERSHIP_SEND_PLAN: send_plan(w, a); break;
    case KIN_MEMBERSHIP_PREFETCH: prefetch(w, a); break;
    case KIN_MEMBERSHIP_SEND_END: kin_sim_send(w, at, 1, (kin_sim_message){.word = KIN_SIM_END, .epoch = a->epoch}); break;
    case KIN_MEMBERSHIP_OPEN_RING:
        n->neighbours[KIN_SIM_NEXT] = w->planned[0];
        n->neighbours[KIN_SIM_PREVIOUS] = w->planned[w->n_planned - 1];
        kin_sim_ring_connect(w, KIN_SIM_HEAD, KIN_SIM_NEXT, false);
        break;
    case KIN_MEMBERSHIP_CLOSE_RING: kin_sim_ring_close(w, KIN_SIM_HEAD); break;
    case KIN_MEMBERSHIP_UP:
        KIN_SIM_REPORT(w, "head: plan %u is up", a->epoch);
        kin_assert(w->n_planned == 0 || n->ring[KIN_SIM_NEXT] >= 0);
        break;
    case KIN_MEMBERSHIP_FAIL: fail_requests(w, a); break;
    case KIN_MEMBERSHIP_LOG:
        w->totals->n_left_out += strncmp(a->text, "no link from", 12) == 0;
        note_given_up(w, a->text);
        KIN_SIM_REPORT(w, "head: %s", a->text);
        break;
    case KIN_MEMBERSHIP_STATUS: break;
    }
}

static void enter_epoch(kin_sim *w) {
    bool was_next = kin_membership_planned_by(w->membership) == w->next.question;
    const kin_sim_plan *p = was_next ? &w->next : &w->answered;
    kin_assert(kin_membership_planned_by(w->membership) == p->question);
    memcpy(w->planned, p->nodes, sizeof w->planned);
    w->n_planned = p->n;
    w->plan = p->hash;
    w->totals->n_switched += was_next;
}

static void keep_next(kin_sim *w) {
    uint32_t question = kin_membership_prepares(w->membership);
    if (!question || question == w->next.question) return;
    kin_assert(question == w->answered.question);
    w->next = w->answered;
    w->totals->n_prefetched++;
}

void kin_sim_head_step(kin_sim *w, kin_membership_event e) {
    uint32_t before = kin_membership_epoch(w->membership);
    const kin_membership_actions *actions = kin_membership_step(w->membership, w->now, &e);
    if (kin_membership_epoch(w->membership) != before) enter_epoch(w);
    keep_next(w);
    w->totals->n_steps++;
    if ((uint64_t)actions->n > w->totals->n_actions_max) w->totals->n_actions_max = (uint64_t)actions->n;
    kin_assert(kin_membership_epoch(w->membership) >= before);
    for (int i = 0; i < actions->n; i++) head_act(w, &actions->at[i]);
}

void kin_sim_answer_planner(kin_sim *w, uint32_t question) {
    if (question != w->question) return;
    if (w->n_asked < w->n_needed) {
        kin_sim_head_step(w, (kin_membership_event){
                                 .kind = KIN_MEMBERSHIP_NO_PLAN, .question = question, .reason = "the model needs more memory"});
        return;
    }
    kin_membership_stage stages[KIN_SIM_NODES];
    w->answered = (kin_sim_plan){.question = question, .n = w->n_asked};
    for (int i = 0; i < w->n_asked; i++) {
        int node = w->answered.nodes[i] = w->asked[(i + (int)w->plan_variant) % w->n_asked];
        stages[i] = (kin_membership_stage){.id.bytes = {(uint8_t)node}, .work = (uint64_t)(i + KIN_SIM_NODES * w->n_asked)};
    }
    w->answered.hash = 1 + kin_hash64(w->answered.nodes, (size_t)w->n_asked * sizeof w->answered.nodes[0], 0) / 2;
    kin_sim_head_step(w, (kin_membership_event){
                             .kind = KIN_MEMBERSHIP_PLANNED, .question = question, .stages = stages, .n_stages = w->n_asked});
}

void kin_sim_head_prefetched(kin_sim *w, uint32_t question) {
    const char *reason = kin_sim_below(w, 10) == 0 ? "a full disk" : NULL;
    kin_sim_head_step(w, (kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED,
                                                .link = KIN_MEMBERSHIP_OWN,
                                                .question = question,
                                                .is_here = !reason,
                                                .reason = reason});
}

void kin_sim_send_step(kin_sim *w, uint64_t step) {
    kin_sim_message m = {.word = KIN_SIM_STEP, .epoch = w->request_epoch, .request = w->request, .value = step};
    if (w->n_planned == 0) {
        kin_sim_push(
            w, (kin_sim_event){
                   .at = w->now + 5 * KIN_SIM_MS, .what = KIN_SIM_COMPUTED, .serial = w->nodes[KIN_SIM_HEAD].life, .message = m});
    } else {
        kin_sim_ring_send(w, KIN_SIM_HEAD, m);
    }
}

void kin_sim_begin_request(kin_sim *w) {
    kin_assert(w->request == 0);
    kin_sim_head_step(w, (kin_membership_event){.kind = KIN_MEMBERSHIP_BEGINS});
    w->request = ++w->n_requests;
    w->request_epoch = kin_membership_epoch(w->membership);
}

void kin_sim_end_request(kin_sim *w, bool is_aborted) {
    w->request = 0;
    w->totals->n_done++;
    kin_sim_head_step(
        w, (kin_membership_event){.kind = is_aborted ? KIN_MEMBERSHIP_ABORTED : KIN_MEMBERSHIP_ENDS, .epoch = w->request_epoch});
}

void kin_sim_handle_result(kin_sim *w, const kin_sim_message *m) {
    if (!kin_membership_accepts(w->membership, m->epoch) || m->request != w->request) return;
    if (w->steps.back) {
        w->steps.back(w->steps.user, m->value);
        return;
    }
    bool is_aborted = kin_sim_below(w, 100) == 0;
    if (m->value < 8 && !is_aborted && !kin_membership_yields(w->membership))
        kin_sim_send_step(w, m->value + 1);
    else
        kin_sim_end_request(w, is_aborted);
}

void kin_sim_head_tick(kin_sim *w) {
    bool is_forming = kin_membership_state_now(w->membership) >= KIN_MEMBERSHIP_PREPARING;
    const kin_sim_node *n = &w->nodes[KIN_SIM_HEAD];
    bool is_open = n->ring[KIN_SIM_NEXT] >= 0 || n->dials[KIN_SIM_NEXT] >= 0;
    if (is_forming && w->n_planned > 0 && !is_open) kin_sim_ring_connect(w, KIN_SIM_HEAD, KIN_SIM_NEXT, false);
    bool is_up = kin_membership_state_now(w->membership) == KIN_MEMBERSHIP_SERVING;
    bool may_begin = is_up && w->request == 0 && w->now < w->last_request_at && !w->steps.compute;
    if (may_begin && kin_sim_below(w, 3) == 0) {
        kin_sim_begin_request(w);
        kin_sim_send_step(w, 1);
    }
    kin_sim_head_step(w, (kin_membership_event){.kind = KIN_MEMBERSHIP_TICK});
}

void kin_sim_head_receive(kin_sim *w, int at, const kin_sim_message *m) {
    kin_sim_link *l = &w->links[at];
    kin_proto_progress progress = {KIN_PROTO_FETCHING, 1, 2, 0, 0};
    kin_membership_event e = {.link = l->serial, .epoch = m->epoch, .stage = "loading", .reason = m->text};
    char name[16];
    kin_membership_hello hello = {.id.bytes = {(uint8_t)m->node}, .run = m->value, .name = name, .features = 1};
    kin_proto_device facts = {.n_threads = 4, .model.bytes = {(uint8_t)m->value}};
    switch (m->word) {
    case KIN_SIM_HELLO:
        snprintf(name, sizeof name, "d%d", m->node / 2); // two devices each want the same name
        if (w->nodes[m->node].wrong_version) {           // the endpoint detects this
            kin_sim_send(w, at, 1, (kin_sim_message){.word = KIN_SIM_REFUSE, .text = "version: too old"});
            kin_sim_shut(w, at, 1);
            return;
        }
        e.kind = KIN_MEMBERSHIP_JOINS;
        e.hello = &hello;
        break;
    case KIN_SIM_FACTS:
        e.kind = KIN_MEMBERSHIP_FACTS;
        e.facts = &facts;
        break;
    case KIN_SIM_READY: e.kind = KIN_MEMBERSHIP_READY; break;
    case KIN_SIM_FAILED: e.kind = KIN_MEMBERSHIP_FAILED; break;
    case KIN_SIM_PREFETCH_ENDS:
        e.kind = KIN_MEMBERSHIP_PREFETCHED;
        e.question = m->request;
        e.is_here = m->value;
        e.progress = &progress;
        if (!m->text[0]) e.reason = NULL;
        break;
    case KIN_SIM_RING_OK: e.kind = m->value ? KIN_MEMBERSHIP_RING_OPENED : KIN_MEMBERSHIP_RING_CLOSED; break;
    default: return;
    }
    kin_sim_head_step(w, e);
}

void kin_sim_head_ring(kin_sim *w, kin_sim_side side, bool is_open, uint32_t epoch, const char *reason) {
    if (side == KIN_SIM_PREVIOUS) return; // the last member reports it
    kin_sim_head_step(w, (kin_membership_event){.kind = is_open ? KIN_MEMBERSHIP_RING_OPENED : KIN_MEMBERSHIP_RING_CLOSED,
                                                .link = KIN_MEMBERSHIP_OWN,
                                                .epoch = epoch,
                                                .reason = reason});
}
