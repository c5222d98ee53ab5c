// Acceptance as published: when the thesis on dynamic graph partitioning lets another plan take the place of the one in force
// (chapter 5.2.2 to 5.2.5). Its rule weighs what a token takes against what deploying the plan costs, less and less as time
// passes.
//
//   paper      here                 unit
//   Ĉ_init     init_us              us: σ + missing weights / bandwidth
//   C_init     penalty              none: Ĉ_init^γ ρ(t) while a model serves, Ĉ_init^γ_block while none does
//   ρ(t)       rho                  none: 1 - 1 / (1 + exp(-(t - t_mid) / t_sharp))
//   C          kin_acceptance_cost  <execution, sum of penalties, largest penalty>
//   C_total    total                c_e + α c_m + (1 - α) c_s
//   τ          tau                  candidate < τ · C_exec of the plan in force
//   λ          lambda               factor on the penalty of a device that works, for spares
//
// kin's own rule is kin_plan_is_worth_changing (pure/plan/plan.h): it counts no deployment, for that happens beside the ring.
// Pure functions: any thread.
#pragma once

#include <stdbool.h>

typedef struct kin_acceptance_options {
    double sigma_s;            // σ, to make a session
    double gamma, gamma_block; // exponents
    double t_mid_s, t_sharp_s; // of ρ
    double alpha;              // 1: all fetch at once at full rate; 0: one after the other
    double tau;
    double lambda;
} kin_acceptance_options;

kin_acceptance_options kin_acceptance_options_published(void); // 1 s, 0.75, 0.9, 60 s, 12 s, 0.8, 0.95, 10

double kin_acceptance_rho(const kin_acceptance_options *o, double since_change_s);

// bytes_s: of the device's link to who has the weights; not positive: infinite unless nothing is missing.
double kin_acceptance_init_us(const kin_acceptance_options *o, double missing_bytes, double bytes_s);

// is_up: a model serves, since so long in this plan.
double kin_acceptance_penalty(const kin_acceptance_options *o, double init_us, bool is_up, double since_change_s);

typedef struct kin_acceptance_cost {
    double exec_us, sum, max;
} kin_acceptance_cost;

// Of one device; zeros are no device.
kin_acceptance_cost kin_acceptance_cost_of(double exec_us, double penalty);
kin_acceptance_cost kin_acceptance_add(kin_acceptance_cost a, kin_acceptance_cost b);
double kin_acceptance_total(const kin_acceptance_options *o, const kin_acceptance_cost *cost);

// Whether the candidate takes the place of a plan whose token takes exec_us.
bool kin_acceptance_takes(const kin_acceptance_options *o, const kin_acceptance_cost *candidate, double exec_us);

// The penalty of a device in a spare plan (C_init^FT): INFINITY where it must not be used. First `strict`, which uses nobody that
// works; where that finds nothing, without.
typedef struct kin_acceptance_spare {
    bool strict;
    bool works;    // in the plan in force
    bool overlaps; // and the spare would give it layers that it has already
} kin_acceptance_spare;

double kin_acceptance_spare_penalty(const kin_acceptance_options *o, const kin_acceptance_spare *spare, double penalty);
