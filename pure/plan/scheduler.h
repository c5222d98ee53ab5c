// Schedulers: all methods of making a plan, with one signature. Each is in its own file.
//
//   exact      the default: the best plan under the timeline model, proven (exact.c); if weights stream, plans near it are
//              simulated too and the fastest is taken (playoff.c)
//   halda      Algorithm 1 of the paper on its own objective (halda.c)
//   memsched   layers in proportion to memory (memsched.c), the paper's "without halda"
//   perfsched  layers in proportion to computing power, then moved to where memory is (perfsched.c)
//   fill-gpus  the fastest GPU is filled first, then the next (perfsched.c), the paper's "Fill-Fastest-GPUs-First"
//   dp-sa      the thesis: one range of layers per device, no streaming, orders by annealing (dp_sa.c)
//
// All of them leave out devices that kin_facts_screen rejects, return plans that kin_timeline_closed accepts, and set
// plan->tpot_s from it. The same facts and options give the same plan.
#pragma once

#include "pure/papers/halda_cost.h"
#include "pure/papers/ilp.h"
#include "pure/plan/facts.h"
#include "pure/plan/plan.h"

// How `dp-sa` searches for an order of the devices.
typedef enum kin_dp_orders {
    KIN_DP_BY_SIZE, // all orders of few devices, annealing for more, random ones beyond
    KIN_DP_ANNEALED,
    KIN_DP_RANDOM,
} kin_dp_orders;

typedef struct kin_plan_options {
    kin_device_set leave_out;        // never use these
    kin_device_set force_in;         // these must compute; only `exact` uses it
    double below_s;                  // `exact`: only plans faster than this; 0: any
    int n_rounds;                    // 0: the scheduler chooses. `perfsched`, `fill-gpus` and `dp-sa` have one round
    int max_nodes;                   // `exact`: number of device sets that are searched before it stops with a gap
    int max_orders;                  // `dp-sa`: number of random orders if there are too many for annealing
    uint64_t seed;                   // `dp-sa`
    kin_dp_orders dp_orders;         // `dp-sa`
    kin_ilp_solver *ilp;             // `halda`: the solver of its integer programs
    double slow_disk_bytes_s;        // `halda`: devices with a slower disk must not be overloaded
    kin_halda_terms_kind halda_kind; // its objective as published, or as in the released prima.cpp
} kin_plan_options;

kin_plan_options kin_plan_options_defaults(void);

// Fails with a sentence if no plan is possible.
typedef int kin_plan_scheduler_fn(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err);

typedef struct kin_plan_scheduler {
    const char *name;
    kin_plan_scheduler_fn *plan;
    const char *help;
    bool is_one_round;
} kin_plan_scheduler;

extern const kin_plan_scheduler kin_plan_schedulers[]; // the default first; ends with a NULL name
const kin_plan_scheduler *kin_plan_scheduler_find(const char *name);

// Makes a plan with exactly options->n_rounds rounds, or fails with a sentence.
int kin_plan_schedule(const kin_plan_scheduler *scheduler, const kin_facts *facts, const kin_plan_options *options,
                      kin_plan *plan, kin_err *err);

// Fails if the scheduler can never have that many rounds. 0: any.
int kin_plan_scheduler_check_rounds(const kin_plan_scheduler *scheduler, int n_rounds, kin_err *err);

// Reads the words of --halda. scheduler: the only one that is used; NULL: all are. Fails if `halda` is not used.
int kin_plan_options_read_halda(kin_plan_options *options, const char *words, const kin_plan_scheduler *scheduler, kin_err *err);

kin_plan_scheduler_fn kin_plan_exact, kin_plan_playoff, kin_plan_halda, kin_plan_memsched, kin_plan_perfsched, kin_plan_fill_gpus,
    kin_plan_dp_sa;

// ---- for the schedulers themselves

struct kin_choices; // choices.h

// The exact plan, from choices // [n_device] of usable devices that were made before. If no plan is below options->below_s it
// fails, and sets a bound.
int kin_plan_exact_of(const kin_facts *facts, const kin_plan_options *options, const struct kin_choices *const *choices,
                      kin_plan *plan, kin_err *err);

// Returns the usable devices without those left out.
int kin_plan_scheduler_devices(const kin_facts *facts, const kin_plan_options *options, kin_device_set *usable, kin_err *err);

// Moves layers off GPUs that cannot hold them.
void kin_plan_scheduler_fit_gpus(const kin_facts *facts, kin_plan *plan);

// Completes a plan whose shares and rounds are set: adds the ring and the predicted TPOT. order: the ring's members, the head
// first; NULL: use the cheapest ring through the workers.
int kin_plan_scheduler_finish(const kin_facts *facts, kin_device_set usable, const int *order, kin_plan *plan, kin_err *err);

// Divides n items in proportion to parts // [n_parts]; remaining items go to the largest remainders, the first of equal ones.
void kin_plan_scheduler_divide(int n, const double *parts, int n_parts, int *counts);
