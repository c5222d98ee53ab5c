#include "testkit/sim/cluster.h"

void kin_sim_ring_init(kin_sim *w, int node) {
    for (int i = 0; i < KIN_SIM_N_SIDES; i++) w->nodes[node].ring[i] = w->nodes[node].dials[i] = -1;
    for (int i = 0; i < KIN_SIM_RELAYS && node == KIN_SIM_HEAD; i++) w->relays[i].from = w->relays[i].to = 0;
}

static int side_of(const kin_sim *w, int at, int node) {
    return w->links[at].node[0] == node ? 0 : 1;
}

static void shut(kin_sim *w, int node, int *at) {
    if (*at >= 0) kin_sim_shut(w, *at, side_of(w, *at, node));
    *at = -1;
}

static void report_link(kin_sim *w, int node, kin_sim_side side, bool is_open, uint32_t epoch, const char *reason) {
    if (node == KIN_SIM_HEAD)
        kin_sim_head_ring(w, side, is_open, epoch, reason);
    else
        kin_sim_device_ring(w, node, side, is_open, epoch, reason);
}

static uint32_t epoch_of(const kin_sim *w, int node) {
    uint32_t epoch = node == KIN_SIM_HEAD ? kin_membership_epoch(w->membership) : kin_member_epoch(w->nodes[node].member);
    return node != KIN_SIM_HEAD || kin_membership_accepts(w->membership, epoch) ? epoch : 0;
}

// ---- a node's actions

void kin_sim_ring_connect(kin_sim *w, int node, kin_sim_side side, bool by_head) {
    kin_sim_node *n = &w->nodes[node];
    int to = by_head ? KIN_SIM_HEAD : n->neighbours[side];
    shut(w, node, &n->dials[side]);
    n->dials[side] = kin_sim_connect(
        w, node, to,
        (kin_sim_message){
            .word = KIN_SIM_RING, .epoch = epoch_of(w, node), .value = side == KIN_SIM_PREVIOUS, .node = n->neighbours[side]});
}

void kin_sim_ring_close(kin_sim *w, int node) {
    for (int i = 0; i < KIN_SIM_N_SIDES; i++) {
        shut(w, node, &w->nodes[node].ring[i]);
        shut(w, node, &w->nodes[node].dials[i]);
    }
    for (int i = 0; i < KIN_SIM_RELAYS && node == KIN_SIM_HEAD; i++) {
        if (w->relays[i].from == w->relays[i].to) continue;
        for (int end = 0; end < 2; end++) shut(w, node, &w->relays[i].links[end]);
        w->relays[i].from = w->relays[i].to = 0;
    }
}

void kin_sim_ring_send(kin_sim *w, int node, kin_sim_message m) {
    int at = w->nodes[node].ring[KIN_SIM_NEXT];
    if (at >= 0) kin_sim_send(w, at, side_of(w, at, node), m);
}

// ---- hops through the head

static int find_relay(kin_sim *w, int from, int to) {
    int empty = -1;
    for (int i = 0; i < KIN_SIM_RELAYS; i++) {
        if (w->relays[i].from == from && w->relays[i].to == to) return i;
        if (w->relays[i].from == w->relays[i].to) empty = i;
    }
    kin_assert(empty >= 0);
    w->relays[empty].from = from;
    w->relays[empty].to = to;
    w->relays[empty].links[0] = w->relays[empty].links[1] = -1;
    return empty;
}

static void end_relay(kin_sim *w, int i) {
    for (int end = 0; end < 2; end++) shut(w, KIN_SIM_HEAD, &w->relays[i].links[end]);
    w->relays[i].from = w->relays[i].to = 0;
}

static void add_relay(kin_sim *w, int at, const kin_sim_message *m) {
    int caller = w->links[at].node[0], end = m->value ? 1 : 0, from = end ? m->node : caller, to = end ? caller : m->node;
    int i = find_relay(w, from, to);
    if (w->relays[i].links[end] >= 0) {
        end_relay(w, i);
        i = find_relay(w, from, to);
    }
    w->relays[i].links[end] = at;
    if (w->relays[i].links[!end] < 0) return;
    w->totals->n_relayed++;
    for (end = 1; end >= 0; end--)
        kin_sim_send(w, w->relays[i].links[end], 1, (kin_sim_message){.word = KIN_SIM_RING_OK, .epoch = m->epoch});
}

// True if the link is one end of such a hop.
static bool is_of_relay(kin_sim *w, int at, int *i_relay, int *end) {
    for (int i = 0; i < KIN_SIM_RELAYS; i++) {
        if (w->relays[i].from == w->relays[i].to) continue;
        for (int k = 0; k < 2; k++) {
            if (w->relays[i].links[k] != at) continue;
            *i_relay = i;
            *end = k;
            return true;
        }
    }
    return false;
}

// ---- received messages

static void handle_ring(kin_sim *w, int node, int at, const kin_sim_message *m) {
    kin_sim_node *n = &w->nodes[node];
    kin_sim_side side = m->value ? KIN_SIM_NEXT : KIN_SIM_PREVIOUS;
    bool is_in = m->epoch != 0 && epoch_of(w, node) == m->epoch;
    if (is_in && m->node != node && node == KIN_SIM_HEAD) {
        add_relay(w, at, m);
        return;
    }
    bool is_taken = is_in && m->node == node && w->links[at].node[0] == n->neighbours[side];
    if (!is_taken || (side == KIN_SIM_NEXT && n->ring[side] >= 0)) {
        kin_sim_shut(w, at, 1);
        return;
    }
    w->totals->n_back += m->value;
    if (side == KIN_SIM_NEXT) shut(w, node, &n->dials[side]);
    kin_sim_send(w, at, 1, (kin_sim_message){.word = KIN_SIM_RING_OK, .epoch = m->epoch});
    shut(w, node, &n->ring[side]);
    n->ring[side] = at;
    report_link(w, node, side, true, m->epoch, "");
}

static void handle_answer(kin_sim *w, int node, int at) {
    kin_sim_node *n = &w->nodes[node];
    for (int side = 0; side < KIN_SIM_N_SIDES; side++) {
        if (n->dials[side] != at) continue;
        n->dials[side] = -1;
        shut(w, node, &n->ring[side]);
        n->ring[side] = at;
        report_link(w, node, (kin_sim_side)side, true, w->links[at].epoch, "");
        return;
    }
}

void kin_sim_ring_receive(kin_sim *w, int at, int side, const kin_sim_message *m) {
    int node = w->links[at].node[side], i, end;
    if (m->word == KIN_SIM_RING) handle_ring(w, node, at, m);
    if (m->word == KIN_SIM_RING_OK) handle_answer(w, node, at);
    if (m->word != KIN_SIM_STEP) return;
    if (node == KIN_SIM_HEAD && is_of_relay(w, at, &i, &end)) {
        kin_assert(end == 0);
        if (w->relays[i].links[1] >= 0) kin_sim_send(w, w->relays[i].links[1], 1, *m);
    } else if (at == w->nodes[node].ring[KIN_SIM_PREVIOUS]) {
        node == KIN_SIM_HEAD ? kin_sim_handle_result(w, m) : kin_sim_handle_step(w, node, m);
    }
}

void kin_sim_ring_closed(kin_sim *w, int at, int side, const char *reason) {
    int node = w->links[at].node[side], i, end;
    kin_sim_node *n = &w->nodes[node];
    if (node == KIN_SIM_HEAD && is_of_relay(w, at, &i, &end)) {
        w->relays[i].links[end] = -1;
        end_relay(w, i);
        return;
    }
    for (int k = 0; k < KIN_SIM_N_SIDES; k++) {
        bool was_used = n->ring[k] == at, was_dial = n->dials[k] == at;
        if (was_used) n->ring[k] = -1;
        if (was_dial) n->dials[k] = -1;
        if (was_used || (was_dial && n->ring[k] < 0)) {
            report_link(w, node, (kin_sim_side)k, false, w->links[at].epoch, reason);
            return;
        }
    }
}
