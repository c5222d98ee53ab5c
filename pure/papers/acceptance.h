// Acceptance as published: decides when another plan replaces the one in force, by the thesis on dynamic graph partitioning
// (chapter 5.2.2 to 5.2.5). Its rule weighs the time of a token against the cost of deploying the plan, which counts less and
// less as time passes.
//
//   paper      here                 unit
//   Ĉ_init     init_us              us: σ + missing weights / bandwidth
//   C_init     penalty              none: Ĉ_init^γ ρ(t) while a model is served, Ĉ_init^γ_block otherwise
//   ρ(t)       rho                  none: 1 - 1 / (1 + exp(-(t - t_mid) / t_sharp))
//   C          kin_acceptance_cost  <execution, sum of penalties, largest penalty>
//   C_total    total                c_e + α c_m + (1 - α) c_s
//   τ          tau                  candidate < τ · C_exec of the plan in force
//   λ          lambda               factor on the penalty of a device that already works, for standby plans
//
// kin's own rule is kin_plan_is_worth_changing (pure/plan/plan.h): it ignores deployment, which happens while the ring runs.
// Pure functions: any thread.
#pragma once

#include <stdbool.h>

typedef struct kin_acceptance_options {
    double sigma_s;            // σ, time to create a session
    double gamma, gamma_block; // exponents
    double t_mid_s, t_sharp_s; // of ρ
    double alpha;              // 1: all devices fetch at the same time at full rate; 0: one after the other
    double tau;
    double lambda;
} kin_acceptance_options;

kin_acceptance_options kin_acceptance_options_published(void); // 1 s, 0.75, 0.9, 60 s, 12 s, 0.8, 0.95, 10

double kin_acceptance_rho(const kin_acceptance_options *o, double since_change_s);

// bytes_s: rate of the device's link to the owner of the weights. If it is not positive, the result is infinite unless nothing is
// missing.
double kin_acceptance_init_us(const kin_acceptance_options *o, double missing_bytes, double bytes_s);

// is_up: a model is being served; since_change_s: how long this plan has been in force.
double kin_acceptance_penalty(const kin_acceptance_options *o, double init_us, bool is_up, double since_change_s);

typedef struct kin_acceptance_cost {
    double exec_us, sum, max;
} kin_acceptance_cost;

// Returns the cost of one device; a cost of zeros stands for no device.
kin_acceptance_cost kin_acceptance_cost_of(double exec_us, double penalty);
kin_acceptance_cost kin_acceptance_add(kin_acceptance_cost a, kin_acceptance_cost b);
double kin_acceptance_total(const kin_acceptance_options *o, const kin_acceptance_cost *cost);

// True if the candidate replaces a plan whose token takes exec_us.
bool kin_acceptance_accepts(const kin_acceptance_options *o, const kin_acceptance_cost *candidate, double exec_us);

// For the penalty of a device in a standby plan (C_init^FT): INFINITY if the device must not be used. First plan with `strict`,
// which excludes devices that work; if that finds no plan, without it.
typedef struct kin_acceptance_standby {
    bool strict;
    bool works;    // it computes in the plan in force
    bool overlaps; // and the standby plan would give it layers that it has already
} kin_acceptance_standby;

double kin_acceptance_standby_penalty(const kin_acceptance_options *o, const kin_acceptance_standby *standby, double penalty);
