#include "pure/papers/acceptance.h"

#include <math.h>

kin_acceptance_options kin_acceptance_options_published(void) {
    return (kin_acceptance_options){
        .sigma_s = 1, .gamma = 0.75, .gamma_block = 0.9, .t_mid_s = 60, .t_sharp_s = 12, .alpha = 0.8, .tau = 0.95, .lambda = 10};
}

double kin_acceptance_rho(const kin_acceptance_options *o, double since_change_s) {
    return 1 - 1 / (1 + exp(-(since_change_s - o->t_mid_s) / o->t_sharp_s));
}

double kin_acceptance_init_us(const kin_acceptance_options *o, double missing_bytes, double bytes_s) {
    double fetch_s = missing_bytes <= 0 ? 0 : bytes_s > 0 ? missing_bytes / bytes_s : INFINITY;
    return (o->sigma_s + fetch_s) * 1e6;
}

double kin_acceptance_penalty(const kin_acceptance_options *o, double init_us, bool is_up, double since_change_s) {
    if (!is_up) return pow(init_us, o->gamma_block);
    return pow(init_us, o->gamma) * kin_acceptance_rho(o, since_change_s);
}

kin_acceptance_cost kin_acceptance_cost_of(double exec_us, double penalty) {
    return (kin_acceptance_cost){exec_us, penalty, penalty};
}

kin_acceptance_cost kin_acceptance_add(kin_acceptance_cost a, kin_acceptance_cost b) {
    return (kin_acceptance_cost){a.exec_us + b.exec_us, a.sum + b.sum, fmax(a.max, b.max)};
}

double kin_acceptance_total(const kin_acceptance_options *o, const kin_acceptance_cost *cost) {
    double at_once = o->alpha > 0 ? o->alpha * cost->max : 0, in_turn = o->alpha < 1 ? (1 - o->alpha) * cost->sum : 0;
    return cost->exec_us + at_once + in_turn;
}

bool kin_acceptance_accepts(const kin_acceptance_options *o, const kin_acceptance_cost *candidate, double exec_us) {
    return kin_acceptance_total(o, candidate) < o->tau * exec_us;
}

double kin_acceptance_standby_penalty(const kin_acceptance_options *o, const kin_acceptance_standby *standby, double penalty) {
    if (!standby->works) return penalty;
    return standby->strict || standby->overlaps ? INFINITY : o->lambda * penalty;
}
