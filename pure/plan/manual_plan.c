#include "pure/plan/manual_plan.h"

#include <string.h>

// Divides `sum` layers in proportion to weights, by largest remainders.
static void share_out(const uint64_t *weights, int n, int sum, kin_round_share *shares) {
    double total = 0, rest[KIN_ROUNDS_MAX_MEMBERS];
    int given = 0;
    for (int i = 0; i < n; i++) total += (double)weights[i];
    for (int i = 0; i < n; i++) {
        double exact = (double)sum * (double)weights[i] / total;
        shares[i] = (kin_round_share){.n_layers = (int)exact};
        rest[i] = exact - (int)exact;
        given += shares[i].n_layers;
    }
    for (; given < sum; given++) {
        int best = 0;
        for (int i = 1; i < n; i++) best = rest[i] > rest[best] ? i : best;
        shares[best].n_layers++;
        rest[best] -= 1;
    }
}

static int in_proportion(const uint64_t *weights, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err) {
    kin_assert(n > 0 && n <= KIN_ROUNDS_MAX_MEMBERS);
    if (n_rounds < 1 || n_rounds > n_layer) return kin_err_set(err, "%d rounds for %d layers", n_rounds, n_layer);
    kin_round_share shares[KIN_ROUNDS_MAX_MEMBERS];
    share_out(weights, n, (n_layer + n_rounds - 1) / n_rounds, shares);
    *out = (kin_ring_plan){0};
    for (int i = 0; i < n; i++) {
        if (shares[i].n_layers == 0 && i < n - 1) continue; // a useless hop, except for the head, which embeds and samples
        out->shares[out->n_members] = shares[i];
        out->candidate[out->n_members++] = i;
    }
    return 0;
}

int kin_plan_even(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err) {
    uint64_t weights[KIN_ROUNDS_MAX_MEMBERS];
    (void)candidates;
    for (int i = 0; i < n; i++) weights[i] = 1;
    return in_proportion(weights, n, n_layer, n_rounds, out, err);
}

int kin_plan_by_memory(const kin_candidate *candidates, int n, int n_layer, int n_rounds, kin_ring_plan *out, kin_err *err) {
    uint64_t weights[KIN_ROUNDS_MAX_MEMBERS];
    for (int i = 0; i < n; i++) weights[i] = candidates[i].memory ? candidates[i].memory : 1;
    return in_proportion(weights, n, n_layer, n_rounds, out, err);
}

void kin_ring_plan_share_windows(const kin_ring_plan *plan, kin_member_windows *windows) {
    for (int i = 0; i < plan->n_members; i++) {
        if (plan->groups[i].rank > 0) windows[i] = windows[i - plan->groups[i].rank];
    }
}

// Inserts a member in ring order: by name, the head last.
static void add_by_name(const kin_candidate *candidates, int i, kin_ring_plan *out) {
    int at = out->n_members++;
    for (; at > 0 && strcmp(candidates[out->candidate[at - 1]].name, candidates[i].name) > 0; at--)
        out->candidate[at] = out->candidate[at - 1];
    out->candidate[at] = i;
}

int kin_plan_one_group(const kin_candidate *candidates, int n, int n_most, int n_layer, kin_ring_plan *out, kin_err *err) {
    kin_assert(n > 0);
    if (n > KIN_ROUNDS_MAX_MEMBERS) return kin_err_set(err, "%d devices in a group", n);
    int n_ranks = n_most >= 2 && n > n_most ? n_most : n;
    *out = (kin_ring_plan){0};
    for (int had_layers = 1; had_layers >= 0; had_layers--) {
        for (int i = 0; i < n - 1 && out->n_members < n_ranks - 1; i++) {
            if (candidates[i].has_layers == had_layers) add_by_name(candidates, i, out);
        }
    }
    out->candidate[out->n_members++] = n - 1;
    out->shares[0].n_layers = n_layer;
    for (int i = 0; i < n_ranks && n_ranks > 1; i++) out->groups[i] = (kin_ring_group){i, n_ranks, 1};
    return 0;
}

// If a device has the head's name, the head, which is last, is found first.
static int find_candidate(const kin_candidate *candidates, int n, const char *name) {
    for (int i = n - 1; i >= 0; i--) {
        if (strcmp(candidates[i].name, name) == 0) return i;
    }
    return -1;
}

static void append(kin_ring_plan *out, int candidate, const kin_manual_plan_entry *e) {
    int i = out->n_members++;
    out->candidate[i] = candidate;
    out->shares[i] = (kin_round_share){e->n_layers, e->n_gpu_layers};
    out->memory[i] = e->memory;
    out->groups[i] = (kin_ring_group){e->group, 0, e->weight}; // number_ranks replaces the group's number by the rank
}

// Turns consecutive members with the same group number into ranks; the first one gets the layers.
static int number_ranks(kin_ring_plan *out, kin_err *err) {
    bool seen[KIN_ROUNDS_MAX_MEMBERS + 1] = {false};
    for (int i = 0, n; i < out->n_members; i += n) {
        int group = out->groups[i].rank, n_layers = 0;
        for (n = 1; group && i + n < out->n_members && out->groups[i + n].rank == group;) n++;
        if (group && (seen[group] || n < 2))
            return kin_err_set(err, "the devices of a group must follow each other; a group with the head comes last");
        seen[group] = true;
        for (int k = 0; k < n; k++) {
            kin_ring_group *g = &out->groups[i + k];
            *g = (kin_ring_group){group ? k : 0, group ? n : 0, g->weight};
            if (!group) continue;
            n_layers += out->shares[i + k].n_layers;
            out->shares[i + k] = (kin_round_share){0};
        }
        if (group) out->shares[i].n_layers = n_layers;
    }
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
    kin_round_share shares[KIN_ROUNDS_MAX_MEMBERS];
    kin_member_windows windows[KIN_ROUNDS_MAX_MEMBERS];
    for (int i = 0; i < plan->n_entries; i++)
        shares[i] = (kin_round_share){plan->entries[i].n_layers, plan->entries[i].n_gpu_layers};
    return kin_rounds_lay_out(shares, plan->n_entries, n_layer, windows, err) < 0 ? KIN_FAIL : 0;
}

int kin_manual_plan_apply(const kin_manual_plan *plan, const kin_candidate *candidates, int n, kin_ring_plan *out, kin_err *err) {
    kin_manual_plan_entry head = {.n_layers = 0}; // without an entry it has no layers
    *out = (kin_ring_plan){0};
    for (int i = 0; i < plan->n_entries; i++) {
        const kin_manual_plan_entry *e = &plan->entries[i];
        int candidate = find_candidate(candidates, n, e->name);
        if (candidate < 0) return kin_err_set(err, "device '%s' of the plan is not here", e->name);
        if (candidate == n - 1)
            head = *e;
        else
            append(out, candidate, e);
    }
    append(out, n - 1, &head);
    return number_ranks(out, err);
}
