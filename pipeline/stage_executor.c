#include "pipeline/stage_executor.h"

#include <stdlib.h>

typedef struct executor_step {
    bool open;
    uint64_t step;
    int shard_step;
    int32_t *pos, *seq; // [cap] of its n_tokens tokens
    int cap;
    int n_tokens, n_out;
    int round; // the next one
} executor_step;

struct kin_stage_executor {
    kin_stage_executor_options o;
    int *windows;         // [n_rounds] window of each round, or NONE
    executor_step *steps; // [n_steps]
};

enum { NONE = -1 };

int kin_stage_executor_open(kin_stage_executor **out, const kin_stage_executor_options *o, kin_err *err) {
    *out = NULL;
    kin_assert(o->n_rounds > 0 && o->n_steps > 0 && o->windows.n <= o->n_rounds);
    kin_stage_executor *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->o = *o;
    p->windows = malloc((size_t)o->n_rounds * sizeof *p->windows);
    p->steps = calloc((size_t)o->n_steps, sizeof *p->steps);
    if (!p->windows || !p->steps) {
        kin_stage_executor_close(p);
        return kin_err_set(err, "out of memory");
    }
    for (int i = 0; i < o->n_rounds; i++) p->windows[i] = NONE;
    for (int i = 0; i < o->windows.n; i++) p->windows[o->rounds[i]] = i;
    *out = p;
    return 0;
}

void kin_stage_executor_close(kin_stage_executor *p) {
    if (!p) return;
    for (int i = 0; i < p->o.n_steps && p->steps; i++) {
        free(p->steps[i].pos);
        free(p->steps[i].seq);
    }
    free(p->windows);
    free(p->steps);
    free(p);
}

static executor_step *find_step(kin_stage_executor *p, bool open, uint64_t step) {
    for (int i = 0; i < p->o.n_steps; i++) {
        executor_step *s = &p->steps[i];
        if (s->open == open && (!open || s->step == step)) return s;
    }
    return NULL;
}

static void end_step(kin_stage_executor *p, executor_step *s, bool keep) {
    s->open = false;
    if (p->o.shard) kin_shard_end(p->o.shard, s->shard_step, keep);
}

static bool grow_step(executor_step *s, int n) {
    if (n <= s->cap) return true;
    int32_t *pos = realloc(s->pos, (size_t)n * sizeof *pos);
    if (pos) s->pos = pos;
    int32_t *seq = realloc(s->seq, (size_t)n * sizeof *seq);
    if (seq) s->seq = seq;
    if (pos && seq) s->cap = n;
    return pos && seq;
}

// Ends the steps in flight whose tokens are forgotten.
static void end_lost_steps(kin_stage_executor *p, const kin_batch *batch) {
    for (int i = 0; i < p->o.n_steps; i++) {
        executor_step *s = &p->steps[i];
        const kin_batch held = {.n_tokens = s->n_tokens, .pos = s->pos, .seq = s->seq};
        for (int k = 0; k < batch->n_ops && s->open; k++) {
            if (kin_batch_loses(&held, &batch->ops[k])) end_step(p, s, false);
        }
    }
}

int kin_stage_executor_begin(kin_stage_executor *p, uint64_t step, const kin_batch *batch, kin_err *err) {
    end_lost_steps(p, batch);
    if (find_step(p, true, step)) return kin_err_set(err, "step %llu arrived twice", (unsigned long long)step);
    executor_step *s = find_step(p, false, 0);
    if (!s) return kin_err_set(err, "more than %d steps are in flight", p->o.n_steps);
    if (!grow_step(s, batch->n_tokens)) return kin_err_set(err, "out of memory for a step of %d tokens", batch->n_tokens);
    int number = p->o.shard ? kin_shard_begin(p->o.shard, batch, err) : 0;
    if (number < 0) return KIN_FAIL;
    for (int i = 0; i < batch->n_tokens; i++) {
        s->pos[i] = batch->pos[i];
        s->seq[i] = batch->seq ? batch->seq[i] : 0;
    }
    s->step = step;
    s->shard_step = number;
    s->n_tokens = batch->n_tokens;
    s->n_out = kin_batch_n_out(batch);
    s->round = 0;
    s->open = true;
    return 0;
}

int kin_stage_executor_pages(kin_stage_executor *p, const kin_batch *batch, kin_err *err) {
    end_lost_steps(p, batch);
    if (p->o.shard) return kin_shard_pages(p->o.shard, batch, err);
    return batch->pages ? batch->pages->n : 0;
}

int kin_stage_executor_recompute(kin_stage_executor *p, const kin_page_request *request, kin_err *err) {
    return p->o.shard ? kin_shard_recompute(p->o.shard, request, err) : request->n;
}

bool kin_stage_executor_has(kin_stage_executor *p, uint64_t step) {
    return find_step(p, true, step) != NULL;
}

int kin_stage_executor_match(kin_stage_executor *p, uint64_t step, uint32_t n_tokens, uint32_t n_out, kin_err *err) {
    executor_step *s = find_step(p, true, step);
    if (!s || (n_tokens == (uint32_t)s->n_tokens && n_out == (uint32_t)s->n_out)) return 0; // fails in check
    end_step(p, s, false);
    return kin_err_set(err, "step %llu arrived with %u tokens and %u outputs; it began with %d and %d", (unsigned long long)step,
                       n_tokens, n_out, s->n_tokens, s->n_out);
}

// A peer's step may be of a round that is over or not due yet, or have rows that the step does not have.
static int check(const kin_stage_executor *p, const executor_step *s, int round, int n_rows, kin_err *err) {
    unsigned long long step = s->step;
    if (round != s->round) return kin_err_set(err, "step %llu arrived in round %d, but round %d is due", step, round, s->round);
    if (n_rows == s->n_tokens || (n_rows == s->n_out && p->windows[round] == NONE)) return 0;
    return kin_err_set(err, "step %llu arrived with %d rows, but has %d tokens", step, n_rows, s->n_tokens);
}

int kin_stage_executor_check(kin_stage_executor *p, uint64_t step, int round, int n_rows, kin_err *err) {
    executor_step *s = find_step(p, true, step);
    if (!s) return kin_err_set(err, "step %llu arrived without positions", (unsigned long long)step);
    kin_assert(round >= 0 && round < p->o.n_rounds);
    if (check(p, s, round, n_rows, err) == 0) return 0;
    end_step(p, s, false);
    return KIN_FAIL;
}

int kin_stage_executor_row_width(const kin_stage_executor *p, int round, bool is_after) {
    kin_assert(round >= 0 && round < p->o.n_rounds);
    return p->windows[round] == NONE ? 0 : kin_shard_row_width(p->o.shard, p->windows[round], is_after);
}

int kin_stage_executor_run(kin_stage_executor *p, uint64_t step, int round, int n_rows, float *x, kin_err *err) {
    if (kin_stage_executor_check(p, step, round, n_rows, err) != 0) return KIN_FAIL;
    executor_step *s = find_step(p, true, step);
    s->round++;
    int window = p->windows[round];
    if (window != NONE) {
        if (p->o.sum.begin) p->o.sum.begin(p->o.sum.user, step, round);
        if (kin_shard_run(p->o.shard, s->shard_step, window, x, x, err) != 0) {
            end_step(p, s, false);
            return KIN_FAIL;
        }
        if (p->o.windows.at[window].layer_end == p->o.n_layer) n_rows = s->n_out;
    }
    if (round == p->o.n_rounds - 1) end_step(p, s, true);
    return n_rows;
}

void kin_stage_executor_drop(kin_stage_executor *p, uint64_t step) {
    executor_step *s = find_step(p, true, step);
    if (s) end_step(p, s, true);
}

void kin_stage_executor_abandon(kin_stage_executor *p, uint64_t step) {
    executor_step *s = find_step(p, true, step);
    if (s) end_step(p, s, false);
}

void kin_stage_executor_reset(kin_stage_executor *p) {
    for (int i = 0; i < p->o.n_steps; i++) {
        if (p->steps[i].open) end_step(p, &p->steps[i], false);
    }
    if (p->o.shard) kin_shard_clear(p->o.shard);
}
