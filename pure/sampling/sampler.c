#include "pure/sampling/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/sampling/portable_exp.h"

typedef struct candidate {
    float logit; // neither NaN nor -inf
    int32_t id;
    double weight; // e^(logit - largest logit)
} candidate;

struct kin_sampler {
    kin_sampler_options options; // bias points to the copy below
    kin_logit_bias *bias;
    int32_t n_vocab;
    kin_rng rng;
    candidate *candidates; // [n_vocab]
    size_t n_drawn;        // the first n_drawn candidates are those of the last draw
    double drawn_sum;      // sum of their weights

    int32_t *history; // ring of the last n_history accepted ids
    int32_t n_history, i_next;
    uint32_t *counts;  // [n_vocab] occurrences of an id in the history
    int32_t *i_latest; // [n_vocab] latest position in the ring of an id of the history
};

// ---- options

kin_sampler_options kin_sampler_options_defaults(void) {
    return (kin_sampler_options){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .penalty_last_n = 64,
        .penalty_repeat = 1.0f,
    };
}

static int check_bias(const kin_sampler_options *options, int32_t n_vocab, kin_err *err) {
    for (size_t i = 0; i < options->n_bias; i++) {
        int32_t id = options->bias[i].id;
        if (id < 0 || id >= n_vocab) return kin_err_set(err, "sampler: bias for token %d, but there are %d tokens", id, n_vocab);
        if (isnan(options->bias[i].bias)) return kin_err_set(err, "sampler: the bias of token %d is not a number", id);
    }
    for (size_t i = 0; i < options->n_suppressed; i++) {
        int32_t id = options->suppressed[i];
        if (id < 0 || id >= n_vocab) return kin_err_set(err, "sampler: token %d of %d is suppressed", id, n_vocab);
    }
    return 0;
}

static int check_options(const kin_sampler_options *options, int32_t n_vocab, kin_err *err) {
    const kin_sampler_options *o = options;
    if (n_vocab < 1) return kin_err_set(err, "sampler: a vocabulary of %d tokens is not supported", n_vocab);
    if (!(o->temperature >= 0) || isinf(o->temperature))
        return kin_err_set(err, "sampler: temperature is %g, must be 0 or more", (double)o->temperature);
    if (o->top_k < 0) return kin_err_set(err, "sampler: top-k is %d, must be 0 (off) or more", o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return kin_err_set(err, "sampler: top-p is %g, must be above 0 and at most 1", (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return kin_err_set(err, "sampler: min-p is %g, must be between 0 and 1", (double)o->min_p);
    if (o->penalty_last_n < 0 || o->penalty_last_n > KIN_SAMPLER_MAX_LAST_N)
        return kin_err_set(err, "sampler: penalties look back on %d tokens, must be 0 to %d", o->penalty_last_n,
                           KIN_SAMPLER_MAX_LAST_N);
    if (!(o->penalty_repeat > 0) || isinf(o->penalty_repeat))
        return kin_err_set(err, "sampler: repetition penalty is %g, must be above 0", (double)o->penalty_repeat);
    if (!isfinite(o->penalty_frequency)) return kin_err_set(err, "sampler: frequency penalty is not a number");
    if (!isfinite(o->penalty_presence)) return kin_err_set(err, "sampler: presence penalty is not a number");
    return check_bias(options, n_vocab, err);
}

// ---- open and close

static int allocate(kin_sampler *sampler, const kin_sampler_options *options) {
    size_t n_vocab = (size_t)sampler->n_vocab;
    sampler->candidates = malloc(n_vocab * sizeof *sampler->candidates);
    sampler->history = malloc(((size_t)options->penalty_last_n + 1) * sizeof *sampler->history);
    sampler->counts = calloc(n_vocab, sizeof *sampler->counts);
    sampler->i_latest = malloc(n_vocab * sizeof *sampler->i_latest);
    sampler->bias = malloc((options->n_bias + options->n_suppressed + 1) * sizeof *sampler->bias);
    if (!sampler->candidates || !sampler->history || !sampler->counts || !sampler->i_latest || !sampler->bias) return KIN_FAIL;
    if (options->n_bias > 0) memcpy(sampler->bias, options->bias, options->n_bias * sizeof *sampler->bias);
    for (size_t i = 0; i < options->n_suppressed; i++)
        sampler->bias[options->n_bias + i] = (kin_logit_bias){options->suppressed[i], -INFINITY};
    sampler->options.n_bias = options->n_bias + options->n_suppressed;
    return 0;
}

int kin_sampler_new(kin_sampler **out, int32_t n_vocab, const kin_sampler_options *options, kin_err *err) {
    *out = NULL;
    if (check_options(options, n_vocab, err) < 0) return KIN_FAIL;
    kin_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) return kin_err_set(err, "sampler: out of memory");
    sampler->n_vocab = n_vocab;
    sampler->options = *options;
    if (allocate(sampler, options) < 0) {
        kin_sampler_free(sampler);
        return kin_err_set(err, "sampler: out of memory");
    }
    sampler->options.bias = sampler->bias;
    kin_sampler_reset(sampler, options->seed);
    *out = sampler;
    return 0;
}

void kin_sampler_free(kin_sampler *sampler) {
    if (!sampler) return;
    free(sampler->bias);
    free(sampler->i_latest);
    free(sampler->counts);
    free(sampler->history);
    free(sampler->candidates);
    free(sampler);
}

void kin_sampler_reset(kin_sampler *sampler, uint64_t seed) {
    kin_rng_seed(&sampler->rng, seed);
    sampler->n_history = sampler->i_next = 0;
    memset(sampler->counts, 0, (size_t)sampler->n_vocab * sizeof *sampler->counts);
}

// ---- bias and penalties

bool kin_sampler_forbids(const kin_sampler *sampler, int32_t id) {
    for (size_t i = 0; i < sampler->options.n_bias; i++) {
        if (sampler->bias[i].id == id && sampler->bias[i].bias == -INFINITY) return true;
    }
    return false;
}

void kin_sampler_accept(kin_sampler *sampler, int32_t id) {
    kin_assert(id >= 0 && id < sampler->n_vocab);
    int32_t last_n = sampler->options.penalty_last_n;
    if (last_n == 0) return;
    if (sampler->n_history == last_n)
        sampler->counts[sampler->history[sampler->i_next]]--;
    else
        sampler->n_history++;
    sampler->history[sampler->i_next] = id;
    sampler->i_latest[id] = sampler->i_next;
    sampler->counts[id]++;
    sampler->i_next = (sampler->i_next + 1) % last_n;
}

// The product of a count and a float is exact in double, so the result does not depend on whether the compiler fuses it with
// the sum.
static float penalized(const kin_sampler_options *options, float logit, uint32_t count) {
    logit = logit > 0 ? logit / options->penalty_repeat : logit * options->penalty_repeat;
    return (float)(logit - ((double)count * (double)options->penalty_frequency + (double)options->penalty_presence));
}

static void apply_bias_and_penalties(const kin_sampler *sampler, float *logits) {
    const kin_sampler_options *options = &sampler->options;
    for (size_t i = 0; i < options->n_bias; i++) logits[sampler->bias[i].id] += sampler->bias[i].bias;
    if (options->penalty_repeat == 1 && options->penalty_frequency == 0 && options->penalty_presence == 0) return;
    for (int32_t i = 0; i < sampler->n_history; i++) {
        int32_t id = sampler->history[i];
        if (sampler->i_latest[id] == i) logits[id] = penalized(options, logits[id], sampler->counts[id]); // each id once
    }
}

// ---- candidates in order

static bool is_better(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Restores the heap below position i; its root is the best candidate (up) or the worst.
static void sift(candidate *heap, size_t n, size_t i, bool up) {
    candidate moved = heap[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && is_better(heap[child + 1], heap[child]) == up) child++;
        if (is_better(heap[child], moved) != up) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

static void make_heap(candidate *heap, size_t n, bool up) {
    for (size_t i = n / 2; i-- > 0;) sift(heap, n, i, up);
}

static void swap(candidate *a, candidate *b) {
    candidate c = *a;
    *a = *b;
    *b = c;
}

// Selects the k best logits, best first; returns their number. The root of the heap is the worst of the k best so far, so
// nearly every id of the vocabulary costs only one comparison.
static size_t select_top_k(candidate *top, size_t k, const float *logits, int32_t n_vocab) {
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        float logit = logits[id];
        if (n == k) {
            if (!(logit > top[0].logit)) continue;
            top[0] = (candidate){.logit = logit, .id = id};
            sift(top, n, 0, false);
        } else if (logit > -INFINITY) {
            top[n++] = (candidate){.logit = logit, .id = id};
            if (n == k) make_heap(top, n, false);
        }
    }
    if (n < k) make_heap(top, n, false);
    for (size_t rest = n; rest > 1;) { // heap sort: the worst moves to the end
        swap(&top[0], &top[--rest]);
        sift(top, rest, 0, false);
    }
    return n;
}

static size_t select_all(candidate *all, const float *logits, int32_t n_vocab) {
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        if (logits[id] > -INFINITY) all[n++] = (candidate){.logit = logits[id], .id = id};
    }
    return n;
}

static int32_t greedy(const float *logits, int32_t n_vocab) {
    float best = -INFINITY;
    int32_t best_id = KIN_FAIL;
    for (int32_t id = 0; id < n_vocab; id++) {
        if (logits[id] > best) {
            best = logits[id];
            best_id = id;
        }
    }
    return best_id;
}

// ---- probabilities

static float largest_logit(const candidate *candidates, size_t n) {
    float largest = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (candidates[i].logit > largest) largest = candidates[i].logit;
    }
    return largest;
}

// Sets the weights; returns their sum, at least 1.
static double weigh(candidate *candidates, size_t n, double temperature) {
    float largest = largest_logit(candidates, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        candidate *c = &candidates[i];
        c->weight = c->logit == largest ? 1 : kin_portable_exp(((double)c->logit - (double)largest) / temperature);
        sum += c->weight;
    }
    return sum;
}

// Keeps the smallest set of best candidates with the share p of the sum. Moves them to the front, best first, and returns their
// number.
static size_t cut_top_p(candidate *candidates, size_t n, bool is_sorted, double sum, double p) {
    double target = p * sum, share = 0;
    size_t n_kept = 0;
    if (is_sorted) {
        while (n_kept < n && (n_kept == 0 || share < target)) share += candidates[n_kept++].weight;
        return n_kept;
    }
    make_heap(candidates, n, true);
    for (size_t rest = n; rest > 0 && (n_kept == 0 || share < target); n_kept++) { // the best gather at the end
        share += candidates[0].weight;
        swap(&candidates[0], &candidates[--rest]);
        sift(candidates, rest, 0, true);
    }
    for (size_t i = 0; i < n - 1 - i; i++) swap(&candidates[i], &candidates[n - 1 - i]);
    return n_kept;
}

// Keeps the candidates with at least min_p of the best one's weight, which is 1, in the same order.
static size_t cut_min_p(candidate *candidates, size_t n, double min_p) {
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (candidates[i].weight >= min_p) candidates[n_kept++] = candidates[i];
    }
    return n_kept;
}

static int32_t draw(kin_rng *rng, const candidate *candidates, size_t n, double sum) {
    double target = kin_rng_unit(rng) * sum, reached = 0;
    size_t i_last = 0;
    for (size_t i = 0; i < n; i++) {
        if (candidates[i].weight > 0) i_last = i;
        reached += candidates[i].weight;
        if (target < reached) return candidates[i].id;
    }
    return candidates[i_last].id; // `target` was rounded up to the sum
}

static int32_t choose_best(kin_sampler *sampler, const float *logits) {
    int32_t id = greedy(logits, sampler->n_vocab);
    sampler->candidates[0] = (candidate){.id = id, .weight = 1};
    sampler->drawn_sum = 1;
    sampler->n_drawn = id >= 0;
    return id;
}

// Runs stages 3 to 7.
static int32_t choose(kin_sampler *sampler, const float *logits, kin_rng *rng) {
    const kin_sampler_options *options = &sampler->options;
    candidate *candidates = sampler->candidates;
    sampler->n_drawn = 0;
    if (options->temperature == 0) return choose_best(sampler, logits);

    bool is_sorted = options->top_k > 0 && options->top_k < sampler->n_vocab;
    size_t n = is_sorted ? select_top_k(candidates, (size_t)options->top_k, logits, sampler->n_vocab)
                         : select_all(candidates, logits, sampler->n_vocab);
    if (n == 0) return KIN_FAIL;
    if (options->top_p < 1 || options->min_p > 0) {
        double sum = weigh(candidates, n, 1);
        if (options->top_p < 1) n = cut_top_p(candidates, n, is_sorted, sum, (double)options->top_p);
        if (options->min_p > 0) n = cut_min_p(candidates, n, (double)options->min_p);
    }
    sampler->n_drawn = n;
    sampler->drawn_sum = weigh(candidates, n, (double)options->temperature);
    return draw(rng, candidates, n, sampler->drawn_sum);
}

size_t kin_sampler_n_drawn(const kin_sampler *sampler) {
    return sampler->n_drawn;
}

int32_t kin_sampler_drawn(const kin_sampler *sampler, size_t i, double *probability) {
    kin_assert(i < sampler->n_drawn);
    *probability = sampler->candidates[i].weight / sampler->drawn_sum;
    return sampler->candidates[i].id;
}

int32_t kin_sampler_sample_constrained(kin_sampler *sampler, float *logits, kin_constraint *constraint) {
    kin_rng first = sampler->rng, second;
    apply_bias_and_penalties(sampler, logits);
    int32_t id = choose(sampler, logits, &sampler->rng);
    if (!constraint || id < 0 || kin_constraint_allows(constraint, id)) return id;

    const uint64_t *allowed = kin_constraint_mask(constraint);
    for (int32_t i = 0; i < sampler->n_vocab; i++) {
        if (!kin_token_set_has(allowed, i)) logits[i] = -INFINITY;
    }
    kin_rng_seed(&second, kin_rng_u64(&first));
    return choose(sampler, logits, &second);
}

int32_t kin_sampler_sample(kin_sampler *sampler, float *logits) {
    return kin_sampler_sample_constrained(sampler, logits, NULL);
}
