#include "testkit/sim/faults.h"

#include <stdio.h>

enum { N_AIMED = 6 }; // most in one schedule

static const char *const names[] = {
    [KIN_SIM_KILL] = "a device dies",
    [KIN_SIM_FLAP] = "it dies again and again",
    [KIN_SIM_REPLICA] = "it dies with the one that has its copies",
    [KIN_SIM_TWO] = "another one dies within a second",
    [KIN_SIM_FREEZE] = "it freezes, and comes back",
    [KIN_SIM_CUT] = "a cut between two devices",
    [KIN_SIM_CUT_OFF] = "a cut between it and the head",
    [KIN_SIM_END_HEAD] = "the head dies, and starts again",
    [KIN_SIM_FULL_DISK] = "a disk is full for a while",
    [KIN_SIM_DAMAGE] = "pages are damaged",
    [KIN_SIM_ON_WRITE] = "it dies while it writes a page",
    [KIN_SIM_ON_COPY] = "it dies while its page is copied, or the one that copies it",
    [KIN_SIM_ON_BORDER] = "it dies when its hidden states are asked for",
    [KIN_SIM_ON_RECOMPUTE] = "it dies while it computes a lost device's layers",
    [KIN_SIM_ON_RETURN] = "it dies when a new ring has begun",
};

void kin_sim_faults_begin(kin_sim_faults *f, kin_sim *w, kin_sim_disks *disks, bool aims) {
    f->w = w;
    f->disks = disks;
    f->aims = aims;
    f->n_aimed = 0;
    f->last_hit = KIN_SIM_N_FAULT_KINDS;
}

static void plan_fault(kin_sim *w, kin_time at, int node, kin_sim_fault_kind kind) {
    if (at < w->calm_at) kin_sim_push(w, (kin_sim_event){.at = at, .what = KIN_SIM_FAULT, .node = node, .ticket = 1 + kind});
}

void kin_sim_aim(kin_sim_faults *f, kin_sim_fault_kind kind, int node, uint64_t one_in) {
    if (!f->aims || node == KIN_SIM_HEAD || f->n_aimed == N_AIMED || kin_sim_below(f->w, one_in) > 0) return;
    f->n_aimed++;
    plan_fault(f->w, f->w->now + kin_sim_below(f->w, 5) * KIN_SIM_MS, node, kind);
}

static void do_fault(const kin_sim_faults *f, kin_sim_fault_kind kind, int node) {
    kin_sim *w = f->w;
    int other = kin_sim_any_device(w);
    switch (kind) {
    case KIN_SIM_FLAP:
        kin_sim_crash(w, node, 250);
        for (kin_time i = 1; i < 4; i++) plan_fault(w, w->now + i * kin_sim_between_ms(w, 200, 900), node, KIN_SIM_KILL);
        break;
    case KIN_SIM_REPLICA:
        other = kin_sim_replica(f->disks, node);
        kin_sim_crash(w, node, 6000);
        kin_sim_crash(w, other, 6000);
        break;
    case KIN_SIM_TWO:
        kin_sim_crash(w, node, 6000);
        plan_fault(w, w->now + kin_sim_between_ms(w, 0, 1000), other, KIN_SIM_KILL);
        break;
    case KIN_SIM_FREEZE: kin_sim_freeze(w, node); break;
    case KIN_SIM_CUT: kin_sim_cut(w, node, other); break;
    case KIN_SIM_CUT_OFF: kin_sim_cut(w, node, KIN_SIM_HEAD); break;
    case KIN_SIM_FULL_DISK: f->disks->full_until[node] = kin_sim_a_while(w); break;
    case KIN_SIM_DAMAGE: kin_sim_damage_pages(f->disks, node, 4); break;
    default: kin_sim_crash(w, node, kin_sim_below(w, 2) ? 6000 : 250);
    }
}

void kin_sim_fault(kin_sim_faults *f, const kin_sim_event *e) {
    kin_sim *w = f->w;
    kin_sim_fault_kind kind =
        e->ticket ? (kin_sim_fault_kind)(e->ticket - 1) : (kin_sim_fault_kind)kin_sim_below(w, KIN_SIM_ON_WRITE);
    int node = e->ticket ? e->node : kind == KIN_SIM_END_HEAD ? KIN_SIM_HEAD : kin_sim_any_device(w);
    if (!w->nodes[node].runs || kin_sim_is_frozen(w, node)) return;
    KIN_SIM_REPORT(w, "%d: %s", node, names[kind]);
    if (w->request != 0) {
        f->kinds[kind].n_hits++;
        if (kind != KIN_SIM_FULL_DISK && kind != KIN_SIM_DAMAGE) f->last_hit = kind;
    }
    do_fault(f, kind, node);
}

void kin_sim_count_loss(kin_sim_faults *f) {
    if (f->last_hit < KIN_SIM_N_FAULT_KINDS) f->kinds[f->last_hit].n_losses++;
    f->last_hit = KIN_SIM_N_FAULT_KINDS;
}

void kin_sim_print_faults(const kin_sim_faults *f) {
    printf("  in a text  ring lost\n");
    for (int i = 0; i < KIN_SIM_N_FAULT_KINDS; i++)
        printf("%11llu%11llu  %s\n", (unsigned long long)f->kinds[i].n_hits, (unsigned long long)f->kinds[i].n_losses, names[i]);
}
