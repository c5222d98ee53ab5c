#include "pure/plan/manual_plan.h"

#include <string.h>

#include "pure/plan/scheduler.h"

// Divides a round in proportion to weights // [n]. Equal remainders go to the first in the ring, so the head, which computes
// last, comes last.
static int in_proportion(const double *weights, int n, int n_layer, int n_rounds, kin_plan *out, kin_err *err) {
    double parts[KIN_FACTS_MAX_DEVICES];
    int counts[KIN_FACTS_MAX_DEVICES];
    kin_assert(n > 0 && n <= KIN_FACTS_MAX_DEVICES);
    if (n_rounds < 1 || n_rounds > n_layer) return kin_err_set(err, "%d rounds for %d layers", n_rounds, n_layer);
    for (int i = 1; i < n; i++) parts[i - 1] = weights[i];
    parts[n - 1] = weights[0];
    kin_plan_scheduler_divide((n_layer + n_rounds - 1) / n_rounds, parts, n, counts);
    *out = (kin_plan){.n_stops = 1};
    out->windows[0].n_layer = counts[n - 1];
    for (int i = 1; i < n; i++) {
        if (counts[i - 1] == 0) continue; // it would be a useless hop
        out->windows[i].n_layer = counts[i - 1];
        out->stops[out->n_stops++].device = i;
    }
    return kin_plan_fill_rounds(out, n_layer, err);
}

int kin_plan_even(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_plan *out, kin_err *err) {
    double weights[KIN_FACTS_MAX_DEVICES];
    (void)candidates;
    for (int i = 0; i < n; i++) weights[i] = 1;
    return in_proportion(weights, n, n_layer, n_rounds, out, err);
}

int kin_plan_by_memory(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_plan *out, kin_err *err) {
    double weights[KIN_FACTS_MAX_DEVICES];
    for (int i = 0; i < n; i++) weights[i] = candidates[i].memory ? (double)candidates[i].memory : 1;
    return in_proportion(weights, n, n_layer, n_rounds, out, err);
}

// Inserts a device by its name.
static void add_by_name(const kin_candidate *candidates, int i, kin_group *g) {
    int at = g->n++;
    for (; at > 0 && strcmp(candidates[g->devices[at - 1]].name, candidates[i].name) > 0; at--)
        g->devices[at] = g->devices[at - 1];
    g->devices[at] = i;
}

void kin_plan_one_group(const kin_candidate *candidates, int n, int n_most, int n_layer, kin_plan *out) {
    kin_assert(n > 0 && n <= KIN_FACTS_MAX_DEVICES);
    if (n_most < 2 || n_most > KIN_GROUP_MAX) n_most = KIN_GROUP_MAX;
    *out = (kin_plan){.n_rounds = 1, .n_stops = 1, .shares = {{n_layer, 0, 0}}};
    if (n == 1) return;
    kin_group *g = &out->groups.groups[out->groups.n++];
    for (int had_layers = 1; had_layers >= 0; had_layers--) {
        for (int i = 1; i < n && g->n < n_most - 1; i++) {
            if (candidates[i].has_layers == had_layers) add_by_name(candidates, i, g);
        }
    }
    g->devices[g->n++] = 0;
    for (int rank = 0; rank < g->n; rank++) g->weights[rank] = 1;
}

// ---- plans written by a person

// If a device has the head's name, the head, which is number 0, is found first.
static int find_candidate(const kin_candidate *candidates, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (strcmp(candidates[i].name, name) == 0) return i;
    }
    return -1;
}

// Appends a stop: one device, or the n devices of a group, which the last of them stands for.
static int append(const kin_manual_plan_entry *const *entries, const int *devices, int n, bool *seen, kin_plan *out,
                  kin_err *err) {
    int last = devices[n - 1], group = entries[0]->group;
    if (group && (seen[group] || n < 2))
        return kin_err_set(err, "the devices of a group must follow each other; a group with the head comes last");
    if (n > KIN_GROUP_MAX) return kin_err_set(err, "a group of %d devices: at most %d are allowed", n, KIN_GROUP_MAX);
    seen[group] = true;
    kin_group *g = group ? &out->groups.groups[out->groups.n++] : NULL;
    for (int i = 0; i < n; i++) {
        out->windows[last].n_layer += entries[i]->n_layers;
        out->memory[devices[i]] = entries[i]->memory;
        if (!g) continue;
        g->devices[g->n] = devices[i];
        g->weights[g->n++] = entries[i]->weight;
    }
    if (!g) out->windows[last].n_layer_gpu = entries[0]->n_gpu_layers;
    if (!g) out->windows[last].n_cpu_moe = entries[0]->n_cpu_moe;
    if (last != 0) out->stops[out->n_stops++].device = last;
    return 0;
}

int kin_manual_plan_check(const kin_manual_plan *plan, kin_err *err) {
    for (int i = 0; i < plan->n_entries; i++) {
        const char *name = plan->entries[i].name;
        for (int k = 0; k < i; k++) {
            if (strcmp(plan->entries[k].name, name) == 0) return kin_err_set(err, "the plan names device '%s' twice", name);
        }
    }
    return 0;
}

int kin_manual_plan_check_layers(const kin_manual_plan *plan, int n_layer, kin_err *err) {
    kin_plan ring = {.n_stops = plan->n_entries};
    for (int i = 0; i < plan->n_entries; i++) {
        ring.stops[i].device = i;
        ring.windows[i] = (kin_layer_share){plan->entries[i].n_layers, plan->entries[i].n_gpu_layers, plan->entries[i].n_cpu_moe};
    }
    return kin_plan_fill_rounds(&ring, n_layer, err);
}

int kin_manual_plan_apply(const kin_manual_plan *plan, const kin_candidate *candidates, int n, int n_layer, kin_plan *out,
                          kin_err *err) {
    const kin_manual_plan_entry none = {.n_layers = 0}, *head = &none; // without an entry it has no layers
    const kin_manual_plan_entry *entries[KIN_FACTS_MAX_DEVICES + 1];
    int devices[KIN_FACTS_MAX_DEVICES + 1], n_members = 0;
    bool seen[KIN_FACTS_MAX_DEVICES + 1] = {false};
    *out = (kin_plan){.n_stops = 1};
    for (int i = 0; i < plan->n_entries; i++) {
        int device = find_candidate(candidates, n, plan->entries[i].name);
        if (device < 0) return kin_err_set(err, "device '%s' of the plan has not joined", plan->entries[i].name);
        if (device == 0) {
            head = &plan->entries[i];
        } else {
            entries[n_members] = &plan->entries[i];
            devices[n_members++] = device;
        }
    }
    entries[n_members] = head;
    devices[n_members++] = 0;
    for (int i = 0, k; i < n_members; i += k) {
        for (k = 1; entries[i]->group && i + k < n_members && entries[i + k]->group == entries[i]->group;) k++;
        if (append(entries + i, devices + i, k, seen, out, err) != 0) return KIN_FAIL;
    }
    return kin_plan_fill_rounds(out, n_layer, err);
}
