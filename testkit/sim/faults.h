// Faults in a simulated cluster (testkit/sim/cluster.h) with disks, from its random numbers: at any time, or aimed at a device in
// the middle of an operation.
//
// Plain data. Owner: a test.
#pragma once

#include "testkit/sim/disks.h"

// kin_sim_fault chooses among these; those from ON_WRITE on are aimed.
typedef enum kin_sim_fault_kind {
    KIN_SIM_KILL,
    KIN_SIM_FLAP,
    KIN_SIM_REPLICA,
    KIN_SIM_TWO,
    KIN_SIM_FREEZE,
    KIN_SIM_CUT,
    KIN_SIM_CUT_OFF,
    KIN_SIM_END_HEAD,
    KIN_SIM_FULL_DISK,
    KIN_SIM_DAMAGE,
    KIN_SIM_ON_WRITE,
    KIN_SIM_ON_COPY,
    KIN_SIM_ON_BORDER,
    KIN_SIM_ON_RECOMPUTE,
    KIN_SIM_ON_RETURN,
    KIN_SIM_N_FAULT_KINDS
} kin_sim_fault_kind;

typedef struct kin_sim_faults {
    kin_sim *w;
    kin_sim_disks *disks;
    bool aims;
    int n_aimed;
    kin_sim_fault_kind last_hit; // KIN_SIM_N_FAULT_KINDS: none since the ring was last lost
    struct {
        uint64_t n_hits, n_losses; // hits while a request ran; losses of the ring that followed
    } kinds[KIN_SIM_N_FAULT_KINDS];
} kin_sim_faults;

// Starts another schedule; the counts stay.
void kin_sim_faults_begin(kin_sim_faults *f, kin_sim *w, kin_sim_disks *disks, bool aims);

// Makes a device die in the middle of its current operation, with a chance of 1 / one_in; never the head.
void kin_sim_aim(kin_sim_faults *f, kin_sim_fault_kind kind, int node, uint64_t one_in);

// Handles the event KIN_SIM_FAULT, aimed at its node, or at any.
void kin_sim_fault(kin_sim_faults *f, const kin_sim_event *e);

// Records that the ring was lost because of the last fault.
void kin_sim_count_loss(kin_sim_faults *f);

void kin_sim_print_faults(const kin_sim_faults *f);
