// Schedulers: all the ways to make a plan, with one signature. Each is in a file of its own.
//
//   exact      the default: the best plan under the timeline model, proven (exact.c); where weights stream, plans near it are
//              simulated too and the fastest is taken (playoff.c)
//   halda      Algorithm 1 of the paper on its own objective (halda.c)
//   memsched   layers in proportion to memory (memsched.c), what the paper calls "without halda"
//   perfsched  layers in proportion to computing power, then moved to where memory is (perfsched.c)
//   dp-sa      the thesis: one range of layers per device, no streaming, orders by annealing (dp_sa.c)
//
// All of them leave out devices that kin_facts_screen refuses, give plans that kin_timeline_closed accepts, and set plan->tpot_s
// by it. The same facts and options give the same plan.
#pragma once

#include "pure/plan/facts.h"
#include "pure/plan/halda_cost.h"
#include "pure/plan/ilp.h"
#include "pure/plan/plan.h"

typedef struct kin_plan_options {
    kin_device_set leave_out; // never use these
    kin_device_set force_in;  // these must compute; only `exact` uses it
    double below_s;           // `exact`: only plans that take less; 0: any
    int n_rounds;             // 0: the scheduler chooses; a given number is used by `exact`, `memsched` and `perfsched` only
    int max_nodes;            // `exact`: sets of devices that are searched before it stops with a gap
    int max_orders;           // `dp-sa`: random orders when there are too many for annealing
    uint64_t seed;            // `dp-sa`
    kin_ilp_solver *ilp;      // `halda`: what solves its programs
    double slow_disk_bytes_s; // `halda`: a slower disk must not be overloaded
    kin_halda_terms_kind halda_kind; // its objective as published, or as prima.cpp has it
} kin_plan_options;

kin_plan_options kin_plan_options_defaults(void);

// Fails with a sentence if no plan can be.
typedef int kin_plan_scheduler_fn(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err);

typedef struct kin_plan_scheduler {
    const char *name;
    kin_plan_scheduler_fn *plan;
    const char *help;
} kin_plan_scheduler;

extern const kin_plan_scheduler kin_plan_schedulers[]; // the default first; ends with a NULL name
const kin_plan_scheduler *kin_plan_scheduler_find(const char *name);

kin_plan_scheduler_fn kin_plan_exact, kin_plan_playoff, kin_plan_halda, kin_plan_memsched, kin_plan_perfsched, kin_plan_dp_sa;

// ---- for the schedulers themselves

struct kin_choices; // choices.h

// The exact plan with choices // [n_device] of usable devices that were made before. Fails, with a bound, where none is below
// options->below_s.
int kin_plan_exact_of(const kin_facts *facts, const kin_plan_options *options, const struct kin_choices *const *choices,
                      kin_plan *plan, kin_err *err);

// The usable devices less those left out.
int kin_plan_scheduler_devices(const kin_facts *facts, const kin_plan_options *options, kin_device_set *usable, kin_err *err);

// Takes layers off GPUs that cannot hold as many.
void kin_plan_scheduler_fit_gpus(const kin_facts *facts, kin_plan *plan);

// Completes a plan whose shares and rounds are set: the ring, and the predicted TPOT. order: the ring's members, the head first;
// NULL: the cheapest ring through the workers.
int kin_plan_scheduler_finish(const kin_facts *facts, kin_device_set usable, const int *order, kin_plan *plan, kin_err *err);

// n things in proportion to parts // [n_parts]; rests go to the largest remainders, at equal ones to the first.
void kin_plan_scheduler_divide(int n, const double *parts, int n_parts, int *counts);
