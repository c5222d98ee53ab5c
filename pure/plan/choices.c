#include "pure/plan/choices.h"

#include <math.h>
#include <stdlib.h>

// True if a never waits longer than b, for any number of rounds: with fewer layers no window has more of them.
static bool waits_no_longer(const kin_device_wait *a, const kin_device_wait *b) {
    if (a->layer_s == 0 && a->output_s == 0) return true;
    return a->n_cpu <= b->n_cpu && a->layer_s <= b->layer_s && a->output_s <= b->output_s && a->hidden_s >= b->hidden_s;
}

// True if a is never worse than b, for any number of rounds. With more layers on the GPU it may have more windows with copies.
static bool dominates(const kin_choices *choices, const kin_choice *a, const kin_choice *b) {
    double copies_s = a->n_gpu > b->n_gpu ? (a->n_gpu - b->n_gpu) * choices->rates.gpu_window_s : 0;
    return a->base_s + copies_s <= b->base_s && a->stall_s <= b->stall_s && waits_no_longer(&a->wait, &b->wait);
}

// Adds a choice to those from `begin` on, unless one of them dominates it; removes those that it dominates. Returns the new end.
static int add_choice(kin_choices *choices, int begin, int end, const kin_choice *choice) {
    int kept = begin;
    for (int i = begin; i < end; i++) {
        if (dominates(choices, &choices->all[i], choice)) return end;
    }
    for (int i = begin; i < end; i++) {
        if (!dominates(choices, choice, &choices->all[i])) choices->all[kept++] = choices->all[i];
    }
    choices->all[kept] = *choice;
    return kept + 1;
}

// Layers differ in size, and it is not yet decided which ones a device gets, so it must be able to hold the largest.
static bool surely_fits(const kin_device_rates *rates, const kin_load *load) {
    if (rates->layer_share_max <= 1 && rates->kv_share_max <= 1) return true;
    const kin_load largest = kin_load_largest(rates, load);
    return kin_device_time_of(rates, &largest).fits;
}

static int add_division(kin_choices *choices, int begin, int end, int n_layer, int n_gpu, int n_cpu_moe) {
    const kin_load load = kin_load_of(n_layer - n_gpu, n_gpu, n_cpu_moe);
    const kin_device_time t = kin_device_time_of(&choices->rates, &load);
    if (!t.fits || !isfinite(t.compute_s + t.experts_s + t.stall_s + t.wait.layer_s + t.wait.hidden_s) ||
        !surely_fits(&choices->rates, &load))
        return end;
    const kin_choice choice = {
        .n_gpu = n_gpu, .n_cpu_moe = n_cpu_moe, .base_s = t.compute_s + t.experts_s, .wait = t.wait, .stall_s = t.stall_s};
    return add_choice(choices, begin, end, &choice);
}

static int add_all(kin_choices *choices, int begin, int n_layer, int n_whole_max) {
    const bool divides = kin_device_can_divide(&choices->rates);
    int end = begin;
    for (int n_gpu = n_layer; n_gpu >= 0; n_gpu--) {
        for (int n_cpu_moe = n_gpu > n_whole_max ? n_gpu - n_whole_max : 0; n_cpu_moe <= (divides ? n_gpu : 0); n_cpu_moe++)
            end = add_division(choices, begin, end, n_layer, n_gpu, n_cpu_moe);
    }
    return end;
}

// Returns the most divisions of n layers.
static size_t count_divisions(const kin_choices *choices, size_t n) {
    return kin_device_can_divide(&choices->rates) ? (n + 1) * (n + 2) / 2 : n + 1;
}

int kin_choices_init(kin_choices *choices, const kin_facts *facts, int device, kin_err *err) {
    int n_layer = facts->model.n_layer;
    kin_device_rates_init(&choices->rates, facts, device, 1, facts->work.n_cached, 1);
    int n_whole_max = kin_device_gpu_layers_max(&choices->rates, n_layer);
    size_t most = 0;
    for (int n = 0; n <= n_layer; n++) most += count_divisions(choices, (size_t)n);
    choices->all = malloc(most * sizeof *choices->all);
    if (!choices->all) return kin_err_set(err, "plan: out of memory for %zu choices", most);
    choices->begin[0] = 0;
    for (int n = 0; n <= n_layer; n++) choices->begin[n + 1] = add_all(choices, choices->begin[n], n, n_whole_max);
    return 0;
}

void kin_choices_fini(kin_choices *choices) {
    free(choices->all);
    choices->all = NULL;
}
