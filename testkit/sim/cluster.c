#include "testkit/sim/cluster.h"

#include <string.h>

enum { TICK_MS = 100, PING_MS = 300, SILENCE_MS = 1500, HANDSHAKE_MS = 3000, RING_HANDSHAKE_MS = 2000, RING_ANSWER_MS = 6000 };

// ---- random numbers and time

uint64_t kin_sim_below(kin_sim *w, uint64_t end) {
    return kin_rng_u64(&w->rng) % end;
}

kin_time kin_sim_between_ms(kin_sim *w, uint64_t low, uint64_t high) {
    return (low + kin_sim_below(w, high - low + 1)) * KIN_SIM_MS;
}

bool kin_sim_is_calm(const kin_sim *w) {
    return w->now >= w->calm_at;
}

static bool is_sooner(const kin_sim_event *a, const kin_sim_event *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void kin_sim_push(kin_sim *w, kin_sim_event e) {
    kin_assert(w->n_queue < KIN_SIM_QUEUE);
    if (e.order == 0) e.order = ++w->n_orders; // a blocked message keeps its place among those of the same time
    int i = w->n_queue++;
    for (; i > 0 && is_sooner(&e, &w->queue[(i - 1) / 2]); i = (i - 1) / 2) w->queue[i] = w->queue[(i - 1) / 2];
    w->queue[i] = e;
}

kin_sim_event kin_sim_pop(kin_sim *w) {
    kin_sim_event first = w->queue[0], last = w->queue[--w->n_queue];
    int i = 0;
    for (int child = 1; child < w->n_queue; child = 2 * i + 1) {
        if (child + 1 < w->n_queue && is_sooner(&w->queue[child + 1], &w->queue[child])) child++;
        if (!is_sooner(&w->queue[child], &last)) break;
        w->queue[i] = w->queue[child];
        i = child;
    }
    w->queue[i] = last;
    return first;
}

// ---- links

bool kin_sim_is_frozen(const kin_sim *w, int node) {
    return w->nodes[node].frozen_until > w->now;
}

void kin_sim_send(kin_sim *w, int at, int side, kin_sim_message m) {
    kin_sim_link *l = &w->links[at];
    bool is_lost = kin_sim_below(w, 40) == 0; // lost once, and sent again
    kin_time delay = is_lost ? kin_sim_between_ms(w, 50, 400) : kin_sim_between_ms(w, 0, 15);
    kin_time when = w->now + delay;
    if (when < l->delivered_at[!side]) when = l->delivered_at[!side];
    l->delivered_at[!side] = when;
    kin_sim_push(
        w, (kin_sim_event){.at = when, .what = KIN_SIM_DELIVER, .link = at, .side = !side, .serial = l->serial, .message = m});
}

int kin_sim_connect(kin_sim *w, int from, int to, kin_sim_message hello) {
    for (int i = 0; i < KIN_SIM_LINKS; i++) {
        kin_sim_link *l = &w->links[i];
        if (l->open[0] || l->open[1]) continue;
        *l = (kin_sim_link){.serial = ++w->n_serials, .node = {from, to}, .made_at = w->now, .heard_at = {w->now, w->now}};
        l->is_ring = hello.word == KIN_SIM_RING;
        l->epoch = hello.epoch;
        l->open[0] = true;
        kin_sim_wall wall = l->is_ring ? w->walls[from][to] : KIN_SIM_NO_WALL;
        if (wall == KIN_SIM_NO_WALL) kin_sim_send(w, i, 0, hello);
        if (wall == KIN_SIM_REFUSES) kin_sim_send(w, i, 1, (kin_sim_message){.word = KIN_SIM_RESET});
        return i;
    }
    kin_assert(!"links enough");
    return -1;
}

void kin_sim_shut(kin_sim *w, int at, int side) {
    if (at < 0 || !w->links[at].open[side]) return;
    w->links[at].open[side] = false;
    kin_sim_send(w, at, side, (kin_sim_message){.word = KIN_SIM_RESET});
}

int kin_sim_link_at(const kin_sim *w, uint32_t serial) {
    for (int i = 0; i < KIN_SIM_LINKS; i++) {
        if (w->links[i].serial == serial) return i;
    }
    return -1;
}

void kin_sim_report_closed(kin_sim *w, int at, int side, const char *reason) {
    kin_sim_link *l = &w->links[at];
    int node = l->node[side];
    if (l->is_ring) {
        kin_sim_ring_closed(w, at, side, reason);
    } else if (node == KIN_SIM_HEAD) {
        kin_sim_head_step(w, (kin_membership_event){.kind = KIN_MEMBERSHIP_LOST, .link = l->serial, .reason = reason});
    } else if (at == w->nodes[node].control) {
        w->nodes[node].control = -1;
        kin_sim_device_step(w, node, (kin_member_event){.kind = KIN_MEMBER_LOST, .reason = reason});
    }
}

// ---- processes

void kin_sim_start(kin_sim *w, int node) {
    kin_sim_node *n = &w->nodes[node];
    n->runs = true;
    n->life++;
    n->frozen_until = 0;
    n->control = -1;
    kin_sim_ring_init(w, node);
    n->held = 0;
    n->busy_until = 0;
    KIN_SIM_REPORT(w, "%d starts", node);
    kin_sim_push(w, (kin_sim_event){
                        .at = w->now + kin_sim_between_ms(w, 0, TICK_MS), .what = KIN_SIM_TICK, .node = node, .serial = n->life});
    if (node != KIN_SIM_HEAD) {
        kin_member_options options = kin_member_options_default();
        options.seed = kin_rng_u64(&w->rng);
        options.refused_ns = 5000 * KIN_SIM_MS;
        if (node % 3 == 0) snprintf(options.address, sizeof options.address, "head"); // given by the user
        n->member = kin_member_new(&options, w->now);
        return;
    }
    kin_membership_options options = kin_membership_options_default();
    options.id = (kin_proto_id){{255}};
    options.features = 1;
    options.model = (kin_proto_hash){{1}};
    options.epoch_first = 1 + (uint32_t)(w->now / (250 * KIN_SIM_MS));
    options.rest_max_ns = 4000 * KIN_SIM_MS;
    options.prefetch_wait_ns = 2500 * KIN_SIM_MS;
    w->membership = kin_membership_new(&options, w->now);
    w->n_planned = 0;
    w->answered = w->next = (kin_sim_plan){0};
}

void kin_sim_stop(kin_sim *w, int node, bool quietly) {
    kin_sim_node *n = &w->nodes[node];
    KIN_SIM_REPORT(w, "%d dies%s", node, quietly ? " quietly" : "");
    for (int i = 0; i < KIN_SIM_LINKS; i++) {
        for (int side = 0; side < 2; side++) {
            if (w->links[i].node[side] != node || !w->links[i].open[side]) continue;
            if (quietly)
                w->links[i].open[side] = false;
            else
                kin_sim_shut(w, i, side);
        }
    }
    n->runs = false;
    if (node == KIN_SIM_HEAD) {
        kin_membership_free(w->membership);
        w->membership = NULL;
        w->request = 0;
    } else {
        kin_member_free(n->member);
        n->member = NULL;
    }
}

bool kin_sim_lives(const kin_sim *w, int node, uint32_t life) {
    return w->nodes[node].runs && w->nodes[node].life == life;
}

bool kin_sim_reaches(const kin_sim *w, int from, int to) {
    return w->nodes[from].runs && !kin_sim_is_frozen(w, from) && w->cut_until[from][to] <= w->now;
}

int kin_sim_any_device(kin_sim *w) {
    return 1 + (int)kin_sim_below(w, (uint64_t)w->n_nodes - 1);
}

// ---- faults

static kin_time until_calm(const kin_sim *w, kin_time at) {
    return at < w->calm_at ? at : w->calm_at;
}

kin_time kin_sim_a_while(kin_sim *w) {
    kin_time span = kin_sim_below(w, 2) ? kin_sim_between_ms(w, 50, SILENCE_MS - 100) : kin_sim_between_ms(w, 2000, 6000);
    return until_calm(w, w->now + span);
}

void kin_sim_crash(kin_sim *w, int node, uint64_t most_ms) {
    if (!w->nodes[node].runs) return;
    kin_sim_stop(w, node, kin_sim_below(w, 2) == 0);
    kin_time at = until_calm(w, w->now + kin_sim_between_ms(w, 20, most_ms));
    kin_sim_push(w, (kin_sim_event){.at = at, .what = KIN_SIM_RESTART, .node = node});
}

void kin_sim_freeze(kin_sim *w, int node) {
    w->nodes[node].frozen_until = kin_sim_a_while(w);
}

void kin_sim_cut(kin_sim *w, int a, int b) {
    if (a != b) w->cut_until[a][b] = w->cut_until[b][a] = kin_sim_a_while(w);
}

// ---- time passes

static void check_links(kin_sim *w, int node) {
    for (int i = 0; i < KIN_SIM_LINKS; i++) {
        kin_sim_link *l = &w->links[i];
        for (int side = 0; side < 2; side++) {
            if (!l->open[side] || l->node[side] != node) continue;
            bool is_silent = l->is_up && w->now - l->heard_at[side] >= SILENCE_MS * KIN_SIM_MS;
            bool is_dial = w->nodes[node].dials[0] == i || w->nodes[node].dials[1] == i;
            kin_time limit = (l->is_ring ? RING_HANDSHAKE_MS : HANDSHAKE_MS) * KIN_SIM_MS;
            bool is_late =
                (!l->is_up && w->now - l->made_at >= limit) || (is_dial && w->now - l->made_at >= RING_ANSWER_MS * KIN_SIM_MS);
            if (is_silent || is_late) {
                kin_sim_shut(w, i, side);
                kin_sim_report_closed(w, i, side, is_silent ? "nothing was heard for 1500 ms" : "no answer");
            } else if (l->is_up && w->nodes[node].n_ticks % (PING_MS / TICK_MS) == 0) {
                kin_sim_send(w, i, side, (kin_sim_message){.word = KIN_SIM_PING});
            }
            if (!w->nodes[node].runs) return;
        }
    }
}

static void tick(kin_sim *w, int node) {
    kin_sim_node *n = &w->nodes[node];
    kin_sim_push(w, (kin_sim_event){.at = w->now + TICK_MS * KIN_SIM_MS, .what = KIN_SIM_TICK, .node = node, .serial = n->life});
    n->n_ticks++;
    check_links(w, node);
    if (node == KIN_SIM_HEAD)
        kin_sim_head_tick(w);
    else
        kin_sim_device_step(w, node, (kin_member_event){.kind = KIN_MEMBER_TICK});
}

static void deliver(kin_sim *w, const kin_sim_event *e) {
    kin_sim_link *l = &w->links[e->link];
    if (l->serial != e->serial) return;
    int node = l->node[e->side], from = l->node[!e->side];
    kin_time free_at = w->cut_until[from][node];
    if (w->nodes[node].runs && w->nodes[node].frozen_until > free_at) free_at = w->nodes[node].frozen_until;
    if (free_at > w->now) {
        kin_sim_event again = *e;
        again.at = free_at;
        if (l->delivered_at[e->side] < free_at) l->delivered_at[e->side] = free_at;
        kin_sim_push(w, again);
        return;
    }
    const kin_sim_message *m = &e->message;
    if (e->side == 1 && (m->word == KIN_SIM_HELLO || m->word == KIN_SIM_RING) && !l->open[1]) { // the connection begins
        l->open[1] = w->nodes[node].runs;
        l->heard_at[1] = w->now;
        l->is_up = true;
        if (!l->open[1]) kin_sim_send(w, e->link, 1, (kin_sim_message){.word = KIN_SIM_RESET});
    }
    if (!l->open[e->side]) return;
    l->heard_at[e->side] = w->now;
    if (m->word == KIN_SIM_RESET) {
        l->open[e->side] = false;
        kin_sim_report_closed(w, e->link, e->side, "closed by the other side");
    } else if (l->is_ring) {
        kin_sim_ring_receive(w, e->link, e->side, m);
    } else if (node == KIN_SIM_HEAD) {
        kin_sim_head_receive(w, e->link, m);
    } else {
        kin_sim_device_receive(w, node, m);
    }
}

// ---- the course of events

void kin_sim_happen(kin_sim *w, const kin_sim_event *e) {
    kin_assert(e->at >= w->now);
    w->now = e->at;
    if (e->what == KIN_SIM_DELIVER) deliver(w, e);
    if (e->what == KIN_SIM_RESTART) kin_sim_start(w, e->node);
    kin_sim_node *n = &w->nodes[e->node];
    bool is_of_process = e->what >= KIN_SIM_TICK && e->what <= KIN_SIM_FOUND;
    if (!is_of_process || !n->runs || n->life != e->serial) return;
    if (kin_sim_is_frozen(w, e->node)) {
        kin_sim_event again = *e;
        again.at = n->frozen_until;
        kin_sim_push(w, again);
        return;
    }
    kin_member_event found = {.kind = KIN_MEMBER_FOUND, .name = "head", .address = "10.0.0.1", .port = 7577};
    if (e->what == KIN_SIM_TICK) tick(w, e->node);
    if (e->what == KIN_SIM_ANSWER) kin_sim_answer_planner(w, e->ticket);
    if (e->what == KIN_SIM_PREPARED) kin_sim_prepared(w, e->node, e->ticket);
    if (e->what == KIN_SIM_PREFETCHED) kin_sim_prefetched(w, e->node, e->ticket);
    if (e->what == KIN_SIM_COMPUTED) kin_sim_computed(w, e->node, &e->message);
    if (e->what == KIN_SIM_FOUND) kin_sim_device_step(w, e->node, found);
}
