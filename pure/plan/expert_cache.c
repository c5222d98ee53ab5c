#include "pure/plan/expert_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Chosen by bench/experts: see docs/EXPERTS.md.
static const float HALF_FAST = 32, HALF_SLOW = 1024; // tokens
static const float SLOW_WEIGHT = 0.05f;

typedef struct expert {
    float fast, slow;
    uint64_t last; // number of the last step that used it
    bool held;
    bool needed;   // by the last step
    bool expected; // by the next step of its layer
} expert;

struct kin_expert_cache {
    int n_layer, n_expert;
    uint64_t *bytes; // [n_layer]
    uint64_t budget, held;
    kin_expert_policy policy;
    expert *experts; // [n_layer * n_expert]
    uint64_t n_steps;
    int il_needed; // the layer of the last step; -1: none
    int32_t *used; // [n_expert] scratch
    kin_expert_changes changes;
};

static size_t n_all(const kin_expert_cache *c) {
    return (size_t)c->n_layer * (size_t)c->n_expert;
}

int kin_expert_cache_open(kin_expert_cache **out, const kin_expert_cache_options *o, kin_err *err) {
    kin_expert_cache *c = *out = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->n_layer = o->n_layer;
    c->n_expert = o->n_expert;
    c->budget = o->budget;
    c->policy = o->policy;
    c->il_needed = -1;
    c->bytes = malloc((size_t)o->n_layer * sizeof *c->bytes);
    c->experts = calloc(n_all(c), sizeof *c->experts);
    c->changes.evicted = malloc(n_all(c) * sizeof *c->changes.evicted);
    c->changes.missing = malloc((size_t)o->n_expert * sizeof *c->changes.missing);
    c->used = malloc((size_t)o->n_expert * sizeof *c->used);
    if (!c->bytes || !c->experts || !c->changes.evicted || !c->changes.missing || !c->used) {
        kin_expert_cache_close(c);
        *out = NULL;
        return kin_err_set(err, "out of memory");
    }
    memcpy(c->bytes, o->bytes, (size_t)o->n_layer * sizeof *c->bytes);
    return 0;
}

void kin_expert_cache_close(kin_expert_cache *c) {
    if (!c) return;
    free(c->bytes);
    free(c->experts);
    free(c->changes.evicted);
    free(c->changes.missing);
    free(c->used);
    free(c);
}

static double worth(kin_expert_policy policy, const expert *e) {
    switch (policy) {
    case KIN_EXPERTS_LRU: return (double)e->last;
    case KIN_EXPERTS_LFU: return e->slow;
    default: return e->fast + SLOW_WEIGHT * e->slow;
    }
}

// Returns the expert that leaves next; -1: all are needed.
static int64_t find_least(const kin_expert_cache *c) {
    int64_t least = -1;
    double least_worth = INFINITY;
    for (size_t i = 0; i < n_all(c); i++) {
        const expert *e = &c->experts[i];
        if (!e->held || e->needed || e->expected) continue;
        const double w = worth(c->policy, e);
        if (w < least_worth) least = (int64_t)i, least_worth = w;
    }
    return least;
}

static void evict(kin_expert_cache *c, size_t i) {
    c->experts[i].held = c->experts[i].expected = false;
    c->held -= c->bytes[i / (size_t)c->n_expert];
    c->changes.evicted[c->changes.n_evicted++] = (int32_t)i;
}

static void make_room(kin_expert_cache *c, uint64_t bytes) {
    while (c->held + bytes > c->budget) {
        const int64_t i = find_least(c);
        if (i < 0) return;
        evict(c, (size_t)i);
    }
}

// The uses count as if they were spread evenly over the step's tokens.
static float decayed_uses(float keeps, float kept, int32_t uses, int n_tokens) {
    return (float)uses * (1 - kept) / ((1 - keeps) * (float)n_tokens);
}

static void count_uses(kin_expert_cache *c, expert *experts, const int32_t *uses, int n_tokens) {
    const float fast = exp2f(-1 / HALF_FAST), slow = exp2f(-1 / HALF_SLOW);
    const float fast_kept = powf(fast, (float)n_tokens), slow_kept = powf(slow, (float)n_tokens);
    c->n_steps++;
    for (int i = 0; i < c->n_expert; i++) {
        expert *e = &experts[i];
        e->fast = e->fast * fast_kept + decayed_uses(fast, fast_kept, uses[i], n_tokens);
        e->slow = e->slow * slow_kept + decayed_uses(slow, slow_kept, uses[i], n_tokens);
        if (uses[i] > 0) e->last = c->n_steps;
    }
}

// Groups of the last step that it has not reached are not needed any more, either.
static void end_need(kin_expert_cache *c) {
    expert *experts = &c->experts[(size_t)(c->il_needed < 0 ? 0 : c->il_needed) * (size_t)c->n_expert];
    for (int i = 0; i < c->n_expert && c->il_needed >= 0; i++) experts[i].needed = experts[i].expected = false;
    c->il_needed = -1;
}

void kin_expert_cache_count(kin_expert_cache *c, int il, const int32_t *uses, int n_tokens) {
    expert *experts = &c->experts[(size_t)il * (size_t)c->n_expert];
    kin_assert(il >= 0 && il < c->n_layer && c->bytes[il] > 0);
    end_need(c);
    count_uses(c, experts, uses, n_tokens);
    for (int i = 0; i < c->n_expert; i++) experts[i].expected = false;
    c->il_needed = il;
}

const kin_expert_changes *kin_expert_cache_need(kin_expert_cache *c, const int32_t *experts, int n) {
    const int il = c->il_needed;
    const size_t first = (size_t)il * (size_t)c->n_expert;
    kin_assert(il >= 0 && n <= c->n_expert);
    c->changes.n_evicted = c->changes.n_missing = 0;
    for (int i = 0; i < c->n_expert; i++) c->experts[first + (size_t)i].needed = false;
    for (int i = 0; i < n; i++) {
        expert *e = &c->experts[first + (size_t)experts[i]];
        e->needed = true;
        e->expected = false;
        if (!e->held) c->changes.missing[c->changes.n_missing++] = (int32_t)first + experts[i];
    }
    make_room(c, c->changes.n_missing * c->bytes[il]);
    for (size_t i = 0; i < c->changes.n_missing; i++) c->experts[c->changes.missing[i]].held = true;
    c->held += c->changes.n_missing * c->bytes[il];
    return &c->changes;
}

const kin_expert_changes *kin_expert_cache_use(kin_expert_cache *c, int il, const int32_t *uses, int n_tokens) {
    int n = 0;
    kin_expert_cache_count(c, il, uses, n_tokens);
    for (int i = 0; i < c->n_expert; i++)
        if (uses[i] > 0) c->used[n++] = i;
    return kin_expert_cache_need(c, c->used, n);
}

const kin_expert_changes *kin_expert_cache_expect(kin_expert_cache *c, int il, const int32_t *experts, int n) {
    const size_t first = (size_t)il * (size_t)c->n_expert;
    kin_assert(n <= c->n_expert);
    c->changes.n_evicted = c->changes.n_missing = 0;
    for (int i = 0; i < n; i++) c->experts[first + (size_t)experts[i]].expected = true;
    for (int i = 0; i < n; i++) {
        expert *e = &c->experts[first + (size_t)experts[i]];
        if (e->held) continue;
        make_room(c, c->bytes[il]);
        if (c->held + c->bytes[il] > c->budget) break;
        e->held = true;
        c->held += c->bytes[il];
        c->changes.missing[c->changes.n_missing++] = (int32_t)first + experts[i];
    }
    return &c->changes;
}

void kin_expert_cache_remove(kin_expert_cache *c, int32_t number) {
    expert *e = &c->experts[number];
    kin_assert(e->held && !e->needed);
    e->held = e->expected = false;
    c->held -= c->bytes[number / c->n_expert];
}

const kin_expert_changes *kin_expert_cache_set_budget(kin_expert_cache *c, uint64_t budget) {
    c->changes.n_evicted = c->changes.n_missing = 0;
    c->budget = budget;
    for (size_t i = 0; i < n_all(c); i++) c->experts[i].expected = false; // a step may have ended before it came to their layer
    make_room(c, 0);
    return &c->changes;
}

const kin_expert_changes *kin_expert_cache_forget(kin_expert_cache *c, int il) {
    const size_t first = (size_t)il * (size_t)c->n_expert;
    c->changes.n_evicted = c->changes.n_missing = 0;
    if (c->il_needed == il) end_need(c);
    for (size_t i = first; i < first + (size_t)c->n_expert; i++)
        if (c->experts[i].held) evict(c, i);
    return &c->changes;
}

// ---- counts of earlier runs

void kin_expert_cache_set_counts(kin_expert_cache *c, const float *counts) {
    for (size_t i = 0; i < n_all(c); i++)
        if (c->bytes[i / (size_t)c->n_expert] > 0) c->experts[i].slow = counts[i];
}

void kin_expert_cache_get_counts(const kin_expert_cache *c, float *counts) {
    for (size_t i = 0; i < n_all(c); i++)
        if (c->bytes[i / (size_t)c->n_expert] > 0) counts[i] = c->experts[i].slow;
}

// Returns the most worthy expert that there is room for; -1: none.
static int64_t find_most(const kin_expert_cache *c) {
    int64_t most = -1;
    double most_worth = 0;
    for (size_t i = 0; i < n_all(c); i++) {
        const uint64_t bytes = c->bytes[i / (size_t)c->n_expert];
        if (c->experts[i].held || bytes == 0 || c->held + bytes > c->budget) continue;
        const double w = worth(c->policy, &c->experts[i]);
        if (w > most_worth) most = (int64_t)i, most_worth = w;
    }
    return most;
}

const kin_expert_changes *kin_expert_cache_fill(kin_expert_cache *c, size_t n) {
    kin_assert(n <= (size_t)c->n_expert);
    c->changes.n_evicted = c->changes.n_missing = 0;
    while (c->changes.n_missing < n) {
        const int64_t i = find_most(c);
        if (i < 0) break;
        c->experts[i].held = true;
        c->held += c->bytes[i / c->n_expert];
        c->changes.missing[c->changes.n_missing++] = (int32_t)i;
    }
    return &c->changes;
}

bool kin_expert_cache_has(const kin_expert_cache *c, int32_t number) {
    return c->experts[number].held;
}

uint64_t kin_expert_cache_held(const kin_expert_cache *c) {
    return c->held;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t kin_expert_cache_divide(uint64_t budget, uint64_t other, uint64_t ring, uint64_t layer, uint64_t token) {
    const uint64_t rest = budget > other ? budget - other : 0, wanted = smaller(layer, budget / 2),
                   most = budget > ring ? budget - ring : 0, experts = rest > wanted ? rest : smaller(wanted, most);
    return experts > token ? experts : token;
}
