// The thesis's cost of an assignment (its chapter 5), and its least value by ways other than the scheduler's.
//
// The head comes first, each device has one range of layers that it keeps in memory, and hops lead to the head and back.
#pragma once

#include "pure/plan/plan.h"

enum { KIN_THESIS_BRUTE_DEVICES = 5, KIN_THESIS_BRUTE_LAYERS = 8, KIN_THESIS_MAX_WORKERS = 20 };

// Returns the cost of a plan with one round, in seconds; INFINITY if a range does not fit.
double kin_thesis_cost(const kin_facts *facts, const kin_plan *plan);

// Returns the least cost over all orders and all divisions, one after the other; INFINITY: there is none.
double kin_thesis_brute(const kin_facts *facts);

// Returns the same for up to KIN_THESIS_MAX_WORKERS workers, by dynamic programming over sets of workers.
double kin_thesis_optimum(const kin_facts *facts);
