#include "testkit/expert_trace.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

const char *const kin_trace_names[KIN_TRACE_N_KINDS] = {"skewed", "local", "both", "flat"};

enum {
    TOPIC_SHARE = 5,   // a text uses a fifth of a layer's experts for a while
    TOPIC_TOKENS = 12, // after so many tokens one of these is replaced by another one
};
static const double TOPIC_CHANCE = 0.85; // that a choice is one of these
static const double SKEW = 0.9;          // exponent of Zipf's law

// ---- generating

typedef struct source {
    kin_rng rng;
    kin_trace_kind kind;
    int n_layer, n_expert, n_topic;
    double *chance; // [n_layer][n_expert] cumulated: how much each expert is preferred
    int32_t *topic; // [n_layer][n_topic]
} source;

static int random_below(source *s, int n) {
    return (int)(kin_rng_unit(&s->rng) * n);
}

// Gives the ranks of Zipf's law to a layer's experts in random order.
static void prefer(source *s, double *chance) {
    const bool skewed = s->kind == KIN_TRACE_SKEWED || s->kind == KIN_TRACE_BOTH;
    double sum = 0;
    for (int i = 0; i < s->n_expert; i++) chance[i] = skewed ? pow(i + 1, -SKEW) : 1;
    for (int i = s->n_expert - 1; i > 0; i--) {
        const int k = random_below(s, i + 1);
        const double other = chance[k];
        chance[k] = chance[i];
        chance[i] = other;
    }
    for (int i = 0; i < s->n_expert; i++) chance[i] = sum += chance[i];
}

static int32_t draw(source *s, int il) {
    const double *chance = &s->chance[(size_t)il * (size_t)s->n_expert], at = kin_rng_unit(&s->rng) * chance[s->n_expert - 1];
    int32_t i = 0;
    while (i < s->n_expert - 1 && chance[i] <= at) i++;
    return i;
}

static bool has(const int32_t *chosen, int n, int32_t expert) {
    for (int i = 0; i < n; i++)
        if (chosen[i] == expert) return true;
    return false;
}

static void choose(source *s, int il, int32_t *chosen, int n_used) {
    const bool local = s->kind == KIN_TRACE_LOCAL || s->kind == KIN_TRACE_BOTH;
    int32_t *topic = &s->topic[(size_t)il * (size_t)s->n_topic];
    if (random_below(s, TOPIC_TOKENS) == 0) topic[random_below(s, s->n_topic)] = draw(s, il);
    for (int n = 0; n < n_used;) {
        const bool of_topic = local && kin_rng_unit(&s->rng) < TOPIC_CHANCE;
        const int32_t expert = of_topic ? topic[random_below(s, s->n_topic)] : draw(s, il);
        if (!has(chosen, n, expert)) chosen[n++] = expert;
    }
}

static void fill(source *s, kin_expert_trace *t) {
    for (int il = 0; il < s->n_layer; il++) prefer(s, &s->chance[(size_t)il * (size_t)s->n_expert]);
    for (int i = 0; i < s->n_layer * s->n_topic; i++) s->topic[i] = draw(s, i / s->n_topic);
    int32_t *at = t->chosen;
    for (int i = 0; i < t->n_tokens * t->n_layer; i++, at += t->n_used) choose(s, i % t->n_layer, at, t->n_used);
}

int kin_expert_trace_make(kin_expert_trace *t, kin_trace_kind kind, uint64_t seed, kin_err *err) {
    source s = {.kind = kind, .n_layer = t->n_layer, .n_expert = t->n_expert, .n_topic = t->n_expert / TOPIC_SHARE + 1};
    kin_rng_seed(&s.rng, seed);
    t->chosen = malloc((size_t)t->n_tokens * (size_t)t->n_layer * (size_t)t->n_used * sizeof *t->chosen);
    s.chance = malloc((size_t)s.n_layer * (size_t)s.n_expert * sizeof *s.chance);
    s.topic = malloc((size_t)s.n_layer * (size_t)s.n_topic * sizeof *s.topic);
    const bool ok = t->chosen && s.chance && s.topic;
    if (ok) fill(&s, t);
    free(s.chance);
    free(s.topic);
    return ok ? 0 : kin_err_set(err, "out of memory");
}

void kin_expert_trace_free(kin_expert_trace *t) {
    free(t->chosen);
    t->chosen = NULL;
}

// ---- replaying

static const int32_t *chosen_at(const kin_expert_trace *t, int i_token, int il) {
    return &t->chosen[((size_t)i_token * (size_t)t->n_layer + (size_t)il) * (size_t)t->n_used];
}

static double hit_share(const kin_expert_trace *t, int n_tokens, uint64_t n_missed) {
    return 1 - (double)n_missed / ((double)n_tokens * t->n_layer * t->n_used);
}

// A cache of experts that all have one byte.
static int open_cache(kin_expert_cache **cache, const kin_expert_trace *t, kin_expert_policy policy, int64_t n_slots,
                      kin_err *err) {
    uint64_t *bytes = malloc((size_t)t->n_layer * sizeof *bytes);
    *cache = NULL;
    if (!bytes) return kin_err_set(err, "out of memory");
    for (int i = 0; i < t->n_layer; i++) bytes[i] = 1;
    const kin_expert_cache_options o = {t->n_layer, t->n_expert, bytes, (uint64_t)n_slots, policy};
    int rc = kin_expert_cache_open(cache, &o, err);
    free(bytes);
    return rc;
}

// Replays the tokens [begin, end); uses // [n_expert] scratch. Returns how many experts were missing.
static uint64_t replay(const kin_expert_trace *t, kin_expert_cache *cache, int begin, int end, int32_t *uses) {
    uint64_t n_missed = 0;
    for (int i = begin * t->n_layer; i < end * t->n_layer; i++) {
        const int32_t *chosen = chosen_at(t, i / t->n_layer, i % t->n_layer);
        memset(uses, 0, (size_t)t->n_expert * sizeof *uses);
        for (int k = 0; k < t->n_used; k++) uses[chosen[k]]++;
        n_missed += kin_expert_cache_use(cache, i % t->n_layer, uses, 1)->n_missing;
    }
    return n_missed;
}

int kin_expert_trace_replay(const kin_expert_trace *t, kin_expert_policy policy, int64_t n_slots, int n_warm, double *hits,
                            kin_err *err) {
    int32_t *uses = malloc((size_t)t->n_expert * sizeof *uses);
    kin_expert_cache *cache = NULL;
    int rc = uses ? open_cache(&cache, t, policy, n_slots, err) : kin_err_set(err, "out of memory");
    if (rc == 0) {
        replay(t, cache, 0, n_warm, uses);
        *hits = hit_share(t, t->n_tokens - n_warm, replay(t, cache, n_warm, t->n_tokens, uses));
    }
    kin_expert_cache_close(cache);
    free(uses);
    return rc;
}

int kin_expert_trace_restart(const kin_expert_trace *t, int64_t n_slots, int n_learn, int n_gap, int n_first, double hits[2],
                             kin_err *err) {
    const int begin = n_learn + n_gap;
    int32_t *uses = malloc((size_t)t->n_expert * sizeof *uses);
    float *counts = calloc((size_t)t->n_layer * (size_t)t->n_expert, sizeof *counts);
    int rc = uses && counts ? 0 : kin_err_set(err, "out of memory");
    kin_assert(begin + n_first <= t->n_tokens);
    for (int i = -1; i < 2 && rc == 0; i++) { // learns; begins empty; begins filled
        kin_expert_cache *cache;
        rc = open_cache(&cache, t, KIN_EXPERTS_MIXED, n_slots, err);
        if (rc != 0) break;
        if (i < 0) {
            replay(t, cache, 0, n_learn, uses);
            kin_expert_cache_get_counts(cache, counts);
        } else {
            if (i == 1) kin_expert_cache_set_counts(cache, counts);
            while (kin_expert_cache_fill(cache, 1)->n_missing > 0) {
            }
            hits[i] = hit_share(t, n_first, replay(t, cache, begin, begin + n_first, uses));
        }
        kin_expert_cache_close(cache);
    }
    free(counts);
    free(uses);
    return rc;
}

// ---- Belady

typedef struct oracle {
    uint32_t *next_use; // [n_tokens][n_layer][n_used] the step in which this expert is used next; UINT32_MAX: never
    uint32_t *next;     // [n_layer * n_expert] of experts in the cache; UINT32_MAX: never
    bool *held;         // [n_layer * n_expert]
    int64_t n_held;
} oracle;

static void look_ahead(const kin_expert_trace *t, oracle *o) {
    memset(o->next, 0xff, (size_t)t->n_layer * (size_t)t->n_expert * sizeof *o->next);
    for (int64_t step = (int64_t)t->n_tokens * t->n_layer - 1; step >= 0; step--) {
        const int il = (int)(step % t->n_layer);
        for (int k = 0; k < t->n_used; k++) {
            const int64_t at = step * t->n_used + k;
            uint32_t *next = &o->next[il * t->n_expert + t->chosen[at]];
            o->next_use[at] = *next;
            *next = (uint32_t)step;
        }
    }
}

// Removes the expert that is needed last, but none of the current step's, whose next use is the step itself.
static void remove_last(const kin_expert_trace *t, oracle *o, uint32_t step) {
    int64_t last = -1;
    for (int i = 0; i < t->n_layer * t->n_expert; i++)
        if (o->held[i] && o->next[i] != step && (last < 0 || o->next[i] > o->next[last])) last = i;
    if (last < 0) return;
    o->held[last] = false;
    o->n_held--;
}

static double belady(const kin_expert_trace *t, oracle *o, int64_t n_slots, int n_warm) {
    uint64_t n_missed = 0;
    look_ahead(t, o);
    for (int64_t step = 0; step < (int64_t)t->n_tokens * t->n_layer; step++) {
        const int32_t *chosen = &t->chosen[step * t->n_used];
        const int64_t first = step % t->n_layer * t->n_expert;
        for (int k = 0; k < t->n_used; k++) {
            const int64_t i = first + chosen[k];
            if (o->held[i]) continue;
            if (o->n_held >= n_slots) remove_last(t, o, (uint32_t)step);
            o->held[i] = true;
            o->n_held++;
            n_missed += step >= (int64_t)n_warm * t->n_layer;
        }
        for (int k = 0; k < t->n_used; k++) o->next[first + chosen[k]] = o->next_use[step * t->n_used + k];
    }
    return hit_share(t, t->n_tokens - n_warm, n_missed);
}

int kin_expert_trace_belady(const kin_expert_trace *t, int64_t n_slots, int n_warm, double *hits, kin_err *err) {
    const size_t n_all = (size_t)t->n_layer * (size_t)t->n_expert;
    oracle o = {0};
    o.next_use = malloc((size_t)t->n_tokens * (size_t)t->n_layer * (size_t)t->n_used * sizeof *o.next_use);
    o.next = malloc(n_all * sizeof *o.next);
    o.held = calloc(n_all, sizeof *o.held);
    const bool ok = o.next_use && o.next && o.held;
    if (ok) *hits = belady(t, &o, n_slots, n_warm);
    free(o.next_use);
    free(o.next);
    free(o.held);
    return ok ? 0 : kin_err_set(err, "out of memory");
}
