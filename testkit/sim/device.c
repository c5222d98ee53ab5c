#include <stdio.h>

#include "pure/proto/label.h"
#include "testkit/sim/cluster.h"

static void device_send(kin_sim *w, int node, kin_sim_message m) {
    int at = w->nodes[node].control;
    if (at >= 0) kin_sim_send(w, at, 0, m);
}

static void search(kin_sim *w, int node) {
    kin_time cut = w->cut_until[node][KIN_SIM_HEAD];
    bool is_heard = w->nodes[KIN_SIM_HEAD].runs && !kin_sim_is_frozen(w, KIN_SIM_HEAD) && cut <= w->now &&
                    (kin_sim_is_calm(w) || kin_sim_below(w, 4) != 0);
    if (!is_heard) return;
    kin_sim_push(
        w, (kin_sim_event){
               .at = w->now + kin_sim_between_ms(w, 1, 20), .what = KIN_SIM_FOUND, .node = node, .serial = w->nodes[node].life});
}

static void prepare(kin_sim *w, int node, uint32_t ticket) {
    kin_sim_node *d = &w->nodes[node];
    kin_time span = kin_sim_between_ms(w, 10, kin_sim_below(w, 4) ? 200 : 3000);
    d->ticket = ticket;
    d->preparing = d->wanted;
    d->held = 0;
    kin_sim_push(
        w, (kin_sim_event){.at = w->now + span, .what = KIN_SIM_PREPARED, .node = node, .serial = d->life, .ticket = ticket});
}

static void device_act(kin_sim *w, int node, const kin_member_action *a) {
    kin_sim_node *d = &w->nodes[node];
    kin_sim_message m = {.epoch = a->epoch};
    switch (a->kind) {
    case KIN_MEMBER_SEARCH: search(w, node); break;
    case KIN_MEMBER_CONNECT:
        d->control =
            kin_sim_connect(w, node, KIN_SIM_HEAD, (kin_sim_message){.word = KIN_SIM_HELLO, .node = node, .value = d->life});
        break;
    case KIN_MEMBER_DROP:
        kin_sim_shut(w, d->control, 0);
        d->control = -1;
        break;
    case KIN_MEMBER_SEND_FACTS:
        device_send(
            w, node,
            (kin_sim_message){.word = KIN_SIM_FACTS, .value = d->wrong_model && !kin_sim_is_calm(w) ? 2 : kin_sim_below(w, 2)});
        break;
    case KIN_MEMBER_PREPARE: prepare(w, node, a->ticket); break;
    case KIN_MEMBER_SEND_READY:
        kin_assert(d->held == d->wanted); // ready for this plan, not for another one
        m.word = KIN_SIM_READY;
        device_send(w, node, m);
        break;
    case KIN_MEMBER_SEND_FAILED:
        m.word = KIN_SIM_FAILED;
        kin_label_set(m.text, sizeof m.text - 1, a->text);
        device_send(w, node, m);
        break;
    case KIN_MEMBER_CONNECT_NEXT: kin_sim_ring_connect(w, node, KIN_SIM_NEXT, a->by_head); break;
    case KIN_MEMBER_CONNECT_PREVIOUS: kin_sim_ring_connect(w, node, KIN_SIM_PREVIOUS, a->by_head); break;
    case KIN_MEMBER_CLOSE_RING: kin_sim_ring_close(w, node); break;
    case KIN_MEMBER_SEND_RING:
        m.word = KIN_SIM_RING_OK;
        m.value = a->is_open;
        kin_label_set(m.text, sizeof m.text - 1, a->text);
        device_send(w, node, m);
        break;
    case KIN_MEMBER_GIVE_UP: kin_assert(d->wrong_version); break;
    case KIN_MEMBER_LOG: KIN_SIM_REPORT(w, "  %d: %s", node, a->text); break;
    default: break;
    }
}

void kin_sim_device_step(kin_sim *w, int node, kin_member_event e) {
    const kin_member_actions *actions = kin_member_step(w->nodes[node].member, w->now, &e);
    w->totals->n_steps++;
    for (int i = 0; i < actions->n; i++) device_act(w, node, &actions->at[i]);
}

static bool is_apart(const kin_sim *w, int a, int b) {
    return w->walls[a][b] && w->walls[b][a];
}

static void handle_plan(kin_sim *w, int node, const kin_sim_message *m) {
    kin_sim_node *d = &w->nodes[node];
    uint32_t before = kin_member_epoch(d->member);
    uint64_t work = 1 + (m->value >> 8 & 3);
    int next = d->neighbours[KIN_SIM_NEXT], previous = d->neighbours[KIN_SIM_PREVIOUS], wanted = d->wanted;
    bool is_known = m->value >> 10 & 1; // from earlier measurements
    kin_member_event e = {.kind = KIN_MEMBER_PLAN, .epoch = m->epoch, .work = work};
    e.next_by_head = is_known && is_apart(w, node, m->node);
    e.previous_by_head = is_known && is_apart(w, node, m->previous);
    d->neighbours[KIN_SIM_NEXT] = m->node;
    d->neighbours[KIN_SIM_PREVIOUS] = m->previous;
    d->wanted = work;
    kin_sim_device_step(w, node, e);
    uint32_t after = kin_member_epoch(d->member);
    if (after == before) { // not accepted
        d->neighbours[KIN_SIM_NEXT] = next;
        d->neighbours[KIN_SIM_PREVIOUS] = previous;
        d->wanted = wanted;
        return;
    }
    kin_assert(after > d->epoch_seen); // epochs never go back, not even when the head restarts
    d->epoch_seen = after;
    d->plan = m->value;
}

// The same ticket again only changes the speed.
static void handle_prefetch(kin_sim *w, int node, uint32_t ticket) {
    kin_sim_node *d = &w->nodes[node];
    kin_time span = kin_sim_between_ms(w, 0, kin_sim_below(w, 4) ? 200 : 3000);
    bool is_deaf = !kin_sim_is_calm(w) && kin_sim_below(w, 30) == 0;
    if (d->order == ticket) return;
    d->order = ticket;
    if (is_deaf) return;
    kin_sim_push(
        w, (kin_sim_event){.at = w->now + span, .what = KIN_SIM_PREFETCHED, .node = node, .serial = d->life, .ticket = ticket});
}

void kin_sim_prefetched(kin_sim *w, int node, uint32_t ticket) {
    kin_sim_message m = {.word = KIN_SIM_PREFETCH_ENDS, .request = ticket};
    if (node == KIN_SIM_HEAD) {
        kin_sim_head_prefetched(w, ticket);
        return;
    }
    if (w->nodes[node].order != ticket) return;
    bool fails = !kin_sim_is_calm(w) && kin_sim_below(w, 15) == 0;
    m.value = !fails;
    if (fails) snprintf(m.text, sizeof m.text, "a full disk");
    device_send(w, node, m);
}

void kin_sim_device_receive(kin_sim *w, int node, const kin_sim_message *m) {
    kin_member_event e = {.epoch = m->epoch, .name = "head", .reason = m->text};
    switch (m->word) {
    case KIN_SIM_ACCEPT:
        e.kind = KIN_MEMBER_ACCEPTED;
        w->nodes[node].order = 0; // another head has its own numbers
        kin_sim_device_step(w, node, e);
        break;
    case KIN_SIM_REFUSE:
        e.kind = KIN_MEMBER_REFUSED;
        kin_sim_device_step(w, node, e);
        break;
    case KIN_SIM_PLAN: handle_plan(w, node, m); break;
    case KIN_SIM_PREFETCH: handle_prefetch(w, node, m->request); break;
    case KIN_SIM_END:
        e.kind = KIN_MEMBER_END;
        kin_sim_device_step(w, node, e);
        break;
    default: break;
    }
}

void kin_sim_device_ring(kin_sim *w, int node, kin_sim_side side, bool is_open, uint32_t epoch, const char *reason) {
    static const kin_member_event_kind kinds[KIN_SIM_N_SIDES][2] = {
        [KIN_SIM_NEXT] = {KIN_MEMBER_NEXT_CLOSED, KIN_MEMBER_NEXT_OPENED},
        [KIN_SIM_PREVIOUS] = {KIN_MEMBER_PREVIOUS_CLOSED, KIN_MEMBER_PREVIOUS_OPENED},
    };
    kin_sim_device_step(w, node, (kin_member_event){.kind = kinds[side][is_open], .epoch = epoch, .reason = reason});
}

void kin_sim_handle_step(kin_sim *w, int node, const kin_sim_message *m) {
    kin_sim_node *d = &w->nodes[node];
    if (!kin_member_accepts(d->member, m->epoch)) return;
    kin_assert(d->plan == w->plan_of[m->epoch]);
    d->busy_until = (d->busy_until > w->now ? d->busy_until : w->now) + kin_sim_between_ms(w, 1, 12);
    kin_sim_push(w,
                 (kin_sim_event){.at = d->busy_until, .what = KIN_SIM_COMPUTED, .node = node, .serial = d->life, .message = *m});
}

void kin_sim_computed(kin_sim *w, int node, const kin_sim_message *m) {
    kin_sim_node *d = &w->nodes[node];
    if (node == KIN_SIM_HEAD) {
        kin_sim_handle_result(w, m);
    } else if (!kin_sim_is_calm(w) && kin_sim_below(w, 2000) == 0) {
        d->failed_epoch = m->epoch;
        kin_sim_device_step(
            w, node,
            (kin_member_event){
                .kind = KIN_MEMBER_COMPUTE_FAILED, .epoch = m->epoch, .stage = "computing", .reason = "a disk error"});
    } else if (kin_member_accepts(d->member, m->epoch) && m->epoch != d->failed_epoch) {
        if (w->steps.compute) w->steps.compute(w->steps.user, node, m->value);
        kin_sim_ring_send(w, node, *m);
    }
}

void kin_sim_prepared(kin_sim *w, int node, uint32_t ticket) {
    kin_sim_node *d = &w->nodes[node];
    bool fails = !kin_sim_is_calm(w) && kin_sim_below(w, 15) == 0;
    if (ticket == d->ticket) d->held = fails ? 0 : d->preparing;
    kin_sim_device_step(w, node,
                        (kin_member_event){.kind = fails ? KIN_MEMBER_PREPARE_FAILED : KIN_MEMBER_PREPARED,
                                           .ticket = ticket,
                                           .stage = "loading",
                                           .reason = "out of memory"});
}
