#include "pipeline/head.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/side_rows.h"
#include "model/embed.h"
#include "pipeline/ngram_reader.h"
#include "pure/plan/prompt.h"

enum {
    N_WAITS = 5,        // for each number of tokens in a step
    N_WAITS_LEAST = 3,  // fewer samples: not known
    MOST_WAIT_ROWS = 32 // larger steps are prompts': they share one record
};

// The last waits for steps of one size, in seconds.
typedef struct waits {
    double took_s[N_WAITS]; // cyclic
    int n;                  // samples so far
} waits;

// A step or a request for pages in flight.
typedef struct flight {
    kin_batch batch;
    int32_t *pos, *seq, *out; // [n_batch]
    int32_t *tokens;          // the same; NULL: no layer needs their numbers
    float *logits;            // f32 [n_logits, n_vocab], borrowed
    int n_logits;             // rows in `logits`: n_out, or 0
    bool hidden;              // the rows are hidden states
    bool states;              // all rows come back; `out` are those whose logits are wanted
    int n_prompt;
    kin_page_request pages; // instead of tokens, if batch.pages points to it
    int n_good;
    bool is_back;   // the pages came back
    bool has_later; // the head must process its own pages after that
} flight;

struct kin_head {
    const kin_model *model;
    kin_head_ring ring;
    uint64_t ring_number;
    int n_batch, n_steps, n_chunk, chunk_worth;

    flight *flights;          // [n_steps] cyclic, by step number
    float *x;                 // f32 [n_batch, n_embd] rows of the current step
    int n_embd;               // numbers of each
    kin_side_rows side;       // what the rows before the first layer are made of, if that is more than the residual
    kin_ngram_reader *ngrams; // NULL: no layer is given an embedding of the last tokens
    float *out_x;             // f32 [cap_out, stream width] rows of x whose logits are wanted
    int cap_out;
    bool has_states; // x holds the states of the step that came back last
    kin_kv_op *ops;  // [n_ops] for the next step
    int n_ops, cap_ops;
    kin_trace *trace;
    kin_interval stalls[KIN_BUSY_KEPT];
    kin_head_counts own_counts; // used if the ring brings none
    kin_step_timing timing;
    bool was_only_step;              // of the step being timed: no other was in flight so far
    waits waits[MOST_WAIT_ROWS + 1]; // by the step's tokens; 0: all larger ones
    // Step numbers are consecutive and never reused, so whatever comes back of a dropped step is recognized.
    uint64_t next_step;
    uint64_t done_step; // the next step to finish; the others in flight follow
    int n_pages;        // requests for pages in flight
};

static int alloc_flights(kin_head *h, kin_err *err) {
    const bool needs_tokens = kin_hparams_token_layers(&h->model->hp) > 0;
    h->flights = calloc((size_t)h->n_steps, sizeof *h->flights);
    for (int i = 0; i < h->n_steps && h->flights; i++) {
        flight *f = &h->flights[i];
        f->pos = malloc((size_t)h->n_batch * sizeof *f->pos);
        f->seq = malloc((size_t)h->n_batch * sizeof *f->seq);
        f->out = malloc((size_t)h->n_batch * sizeof *f->out);
        f->tokens = needs_tokens ? malloc((size_t)h->n_batch * sizeof *f->tokens) : NULL;
        if (!f->pos || !f->seq || !f->out || (needs_tokens && !f->tokens)) return kin_err_set(err, "out of memory");
    }
    return h->flights ? 0 : kin_err_set(err, "out of memory");
}

int kin_head_open(kin_head **out, const kin_model *model, const kin_head_ring *ring, int n_batch, int n_steps, kin_err *err) {
    *out = NULL;
    kin_head *h = calloc(1, sizeof *h);
    if (!h) return kin_err_set(err, "out of memory");
    h->model = model;
    kin_head_set_ring(h, ring);
    h->n_batch = n_batch;
    h->n_steps = n_steps;
    h->next_step = h->done_step = 1;
    h->x = malloc((size_t)n_batch * (size_t)kin_border_most(&model->hp) * sizeof *h->x);
    int rc = h->x ? alloc_flights(h, err) : kin_err_set(err, "out of memory");
    if (rc == 0) rc = kin_side_rows_open(&h->side, &model->hp, n_batch, err);
    if (rc == 0 && model->hp.ngram.size > 0) rc = kin_ngram_reader_open(&h->ngrams, model, n_batch, err);
    if (rc != 0) {
        kin_head_close(h);
        return KIN_FAIL;
    }
    *out = h;
    return 0;
}

void kin_head_close(kin_head *h) {
    if (!h) return;
    for (int i = 0; i < h->n_steps && h->flights; i++) {
        free(h->flights[i].pos);
        free(h->flights[i].seq);
        free(h->flights[i].out);
        free(h->flights[i].tokens);
    }
    free(h->flights);
    free(h->ops);
    kin_side_rows_close(&h->side);
    kin_ngram_reader_close(h->ngrams);
    free(h->out_x);
    free(h->x);
    free(h);
}

static void publish_timing(kin_head *h) {
    kin_token_times t = kin_step_timing_median(&h->timing);
    kin_head_counts *c = h->ring.counts;
    atomic_store(&c->token_compute_ns, t.compute_ns);
    atomic_store(&c->token_stall_ns, t.stall_ns);
    atomic_store(&c->token_disk_ns, t.disk_ns);
    atomic_store(&c->token_disk_bytes, t.disk_bytes);
    atomic_store(&c->token_total_ns, t.total_ns);
}

void kin_head_set_ring(kin_head *h, const kin_head_ring *ring) {
    h->ring = *ring;
    h->ring_number++;
    h->n_ops = 0; // the new ring's caches are empty
    h->done_step = h->next_step;
    h->n_pages = h->chunk_worth = 0;
    if (!h->ring.counts) h->ring.counts = &h->own_counts;
    h->timing = (kin_step_timing){0};
    memset(h->waits, 0, sizeof h->waits);
    publish_timing(h);
}

uint64_t kin_head_ring_number(const kin_head *h) {
    return h->ring_number;
}

void kin_head_set_chunk(kin_head *h, int n_tokens) {
    h->n_chunk = n_tokens;
}

void kin_head_set_chunk_worth(kin_head *h, int worth) {
    h->chunk_worth = worth;
}

int kin_head_chunk_worth(const kin_head *h) {
    return h->chunk_worth;
}

void kin_head_record(kin_head *h, kin_trace *trace) {
    h->trace = trace;
}

kin_token_times kin_head_token_times(const kin_head_counts *c) {
    return (kin_token_times){.compute_ns = atomic_load(&c->token_compute_ns),
                             .stall_ns = atomic_load(&c->token_stall_ns),
                             .disk_ns = atomic_load(&c->token_disk_ns),
                             .disk_bytes = atomic_load(&c->token_disk_bytes),
                             .total_ns = atomic_load(&c->token_total_ns)};
}

const kin_head_counts *kin_head_get_counts(const kin_head *h) {
    return h->ring.counts;
}

// ---- steps

static kin_stream_stats stream_of(const kin_head *h) {
    return kin_shard_get_stats(h->ring.shard).weights.stream;
}

static void begin_work(kin_head *h, kin_time now) {
    kin_stream_stats stream = stream_of(h);
    kin_step_timing_enter(&h->timing, now, &stream);
}

static void end_work(kin_head *h, kin_time now) {
    kin_stream_stats stream = stream_of(h);
    kin_step_timing_leave(&h->timing, now, &stream);
}

static int min_int(int a, int b) {
    return a < b ? a : b;
}

int kin_head_n_batch(const kin_head *h) {
    return h->n_batch;
}

int kin_head_n_chunk(const kin_head *h, int n) {
    if (h->n_chunk > 0) return min_int(h->n_chunk, h->n_batch);
    return kin_prompt_chunk_tokens(n, h->ring.n_members, h->n_batch, h->chunk_worth);
}

int kin_head_n_vocab(const kin_head *h) {
    return h->model->hp.n_vocab;
}

int kin_head_n_members(const kin_head *h) {
    return h->ring.n_members;
}

kin_border_set kin_head_borders(const kin_head *h) {
    return h->ring.borders;
}

bool kin_head_is_exact(const kin_head *h) {
    return h->ring.exact;
}

int kin_head_n_in_flight(const kin_head *h) {
    return (int)(h->next_step - h->done_step);
}

bool kin_head_has_room(const kin_head *h) {
    return kin_head_n_in_flight(h) < h->n_steps;
}

bool kin_head_pages_stay_behind(const kin_head *h) {
    return h->ring.n_rounds == 1;
}

static flight *flight_of(kin_head *h, uint64_t step) {
    return &h->flights[step % (uint64_t)h->n_steps];
}

// Merges successive cuts of one sequence into one.
static bool merge(kin_head *h, const kin_kv_op *op) {
    for (int i = h->n_ops - 1; i >= 0 && op->seq == op->from; i--) {
        kin_kv_op *known = &h->ops[i];
        if (known->seq != op->seq && known->from != op->seq) continue;
        if (known->seq != known->from || known->seq != op->seq) return false;
        if (op->n < known->n) known->n = op->n;
        return true;
    }
    return false;
}

// Handles requests for pages whose sequence changes before they come back, when their cells may belong to another sequence: a
// request that stores pages is done on the head's disk now, if the steps before it are done; any other is skipped there.
static void end_own_pages(kin_head *h, const kin_kv_op *op) {
    kin_err err;
    bool are_computed = true;
    for (uint64_t step = h->done_step; step < h->next_step && h->n_pages > 0; step++) {
        flight *f = flight_of(h, step);
        are_computed = are_computed && f->batch.pages;
        bool is_of = op->seq < 0 || op->seq == f->pages.seq;
        if (!f->batch.pages || !f->has_later || !is_of) continue;
        if (op->seq == op->from && op->n >= (f->pages.first + f->pages.n) * KIN_KV_CELLS) continue; // the cut is after the pages
        f->has_later = false;
        f->n_good = 0;
        if (are_computed && !f->pages.loads && op->seq >= 0)
            kin_stage_executor_pages(h->ring.executor, &(kin_batch){.pages = &f->pages}, &err);
    }
}

int kin_head_change(kin_head *h, kin_kv_op op, kin_err *err) {
    if (h->ngrams && kin_ngram_reader_change(h->ngrams, &op, err) != 0) return KIN_FAIL;
    end_own_pages(h, &op);
    if (op.seq < 0) h->n_ops = 0;
    if (merge(h, &op)) return 0;
    if (h->n_ops == KIN_PROTO_MAX_OPS) return kin_err_set(err, "more than %d KV cache operations in one step", h->n_ops);
    if (h->n_ops == h->cap_ops) {
        int cap = h->cap_ops ? 2 * h->cap_ops : 16;
        kin_kv_op *larger = realloc(h->ops, (size_t)cap * sizeof *larger);
        if (!larger) return kin_err_set(err, "out of memory");
        h->ops = larger;
        h->cap_ops = cap;
    }
    h->ops[h->n_ops++] = op;
    return 0;
}

// Returns the number of steps in flight without requests for pages; only these are timed.
static int n_steps_in_flight(const kin_head *h) {
    return kin_head_n_in_flight(h) - h->n_pages;
}

static void give_up(kin_head *h) {
    h->done_step = h->next_step;
    h->n_pages = 0;
    h->ring.transport.drop(h->ring.transport.user);
}

// A step without wanted logits still computes its last row.
static void fill_flight(kin_head *h, flight *f, const kin_head_step *s) {
    const bool all = s->n_out == s->n || s->states;
    const int n_wanted = s->n_out ? s->n_out : 1, n_out = all ? s->n : n_wanted;
    memcpy(f->pos, s->pos, (size_t)s->n * sizeof *f->pos);
    memcpy(f->seq, s->seq, (size_t)s->n * sizeof *f->seq);
    if (f->tokens) memcpy(f->tokens, s->tokens, (size_t)s->n * sizeof *f->tokens);
    if (s->n_out)
        memcpy(f->out, s->out, (size_t)s->n_out * sizeof *f->out);
    else
        f->out[0] = s->n - 1;
    f->logits = s->logits;
    f->n_logits = s->n_out;
    f->hidden = s->hidden;
    f->states = s->states;
    f->n_prompt = s->n_prompt;
    f->batch = (kin_batch){.n_tokens = s->n,
                           .pos = f->pos,
                           .seq = f->seq,
                           .tokens = f->tokens,
                           .out = all ? NULL : f->out,
                           .n_out = n_out,
                           .no_output = s->n_out == 0,
                           .ops = h->ops,
                           .n_ops = h->n_ops};
}

// Makes the rows before the first layer.
static int make_rows(kin_head *h, const kin_head_step *s, kin_err *err) {
    kin_side_rows *side = &h->side;
    h->n_embd = kin_border_before(&h->model->hp, 0).width;
    if (!side->x) return kin_embed(h->model, s->tokens, s->n, h->x, err);
    if (kin_embed(h->model, s->tokens, s->n, side->x, err) != 0) return KIN_FAIL;
    if (side->inputs && kin_embed_inputs(h->model, s->tokens, s->n, side->x, side->inputs, err) != 0) return KIN_FAIL;
    if (h->ngrams && kin_ngram_reader_read(h->ngrams, s->n, s->tokens, s->seq, s->pos, side->ngrams, err) != 0) return KIN_FAIL;
    kin_side_rows_give(side, &h->model->hp, 0, s->n, h->x);
    return 0;
}

static int send_step(kin_head *h, const kin_head_step *s, uint64_t step, kin_err *err) {
    flight *f = flight_of(h, step);
    begin_work(h, kin_clock_now());
    if (make_rows(h, s, err) != 0) return KIN_FAIL;
    end_work(h, kin_clock_now());
    fill_flight(h, f, s);
    if (kin_stage_executor_begin(h->ring.executor, step, &f->batch, err) != 0) return KIN_FAIL;
    kin_hop hop = {.step = step, .n_rows = s->n, .n_embd = h->n_embd, .more = s->more};
    if (h->ring.transport.send(h->ring.transport.user, &hop, &f->batch, h->x, err) != 0) {
        kin_stage_executor_abandon(h->ring.executor, step);
        return KIN_FAIL;
    }
    h->next_step++;
    f->batch.n_ops = h->n_ops = 0;
    return 0;
}

int kin_head_send(kin_head *h, const kin_head_step *s, uint64_t *number, kin_err *err) {
    kin_assert(s->n > 0 && s->n <= h->n_batch && s->n_out <= s->n && kin_head_has_room(h));
    h->was_only_step = n_steps_in_flight(h) == 0;
    if (h->was_only_step) kin_step_timing_begin(&h->timing, kin_clock_now());
    *number = h->next_step;
    if (send_step(h, s, *number, err) == 0) return 0;
    give_up(h);
    return KIN_FAIL;
}

// Puts the input of the first layer into the border log, since no member has logged it.
static int put_embeddings(kin_head *h, const kin_page_request *r, const int32_t *tokens, kin_err *err) {
    size_t n = (size_t)r->n * KIN_KV_CELLS;
    float *x = malloc(n * (size_t)kin_hparams_stream_width(&h->model->hp) * sizeof *x);
    if (!x) return kin_err_set(err, "out of memory");
    int rc = kin_embed(h->model, tokens, (int)n, x, err);
    if (rc == 0) rc = kin_gguf_check_files(h->model->gguf, err); // others keep what they compute from it
    if (rc == 0) kin_shard_put_border(h->ring.shard, 0, r, x);
    free(x);
    return rc;
}

// The other members work on the request while the head loads pages from its own disk. Recomputing and storing on the head must
// wait: for the pages that the others find, and for the steps before.
static int send_pages(kin_head *h, flight *f, uint64_t number, const int32_t *tokens, kin_err *err) {
    if (f->pages.recomputes && put_embeddings(h, &f->pages, tokens, err) != 0) return KIN_FAIL;
    f->batch = (kin_batch){.ops = h->ops, .n_ops = h->n_ops, .pages = &f->pages};
    kin_hop hop = {.step = number, .n_good = f->pages.n};
    if (h->ring.transport.send(h->ring.transport.user, &hop, &f->batch, h->x, err) != 0) return KIN_FAIL;
    h->next_step++;
    const bool keeps = !f->pages.loads && !f->pages.drops;
    f->has_later = f->pages.recomputes || keeps;
    const kin_batch now = {.ops = h->ops, .n_ops = h->n_ops, .pages = keeps ? NULL : &f->pages};
    f->n_good = kin_stage_executor_pages(h->ring.executor, &now, err);
    if (!now.pages && f->n_good == 0) f->n_good = f->pages.n;
    f->batch.n_ops = h->n_ops = 0;
    return f->n_good < 0 ? KIN_FAIL : 0;
}

int kin_head_send_pages(kin_head *h, const kin_page_request *request, const int32_t *tokens, uint64_t *number, kin_err *err) {
    kin_assert(request->n > 0 && request->n <= KIN_PAGES_MAX && kin_head_has_room(h));
    *number = h->next_step;
    h->n_pages++;
    flight *f = flight_of(h, *number);
    f->pages = *request;
    f->is_back = false;
    int rc = 0;
    if (h->ngrams && request->loads)
        rc =
            kin_ngram_reader_note(h->ngrams, request->seq, request->first * KIN_KV_CELLS, tokens, request->n * KIN_KV_CELLS, err);
    if (rc == 0 && send_pages(h, f, *number, tokens, err) == 0) return 0;
    give_up(h);
    return KIN_FAIL;
}

int kin_head_n_good(const kin_head *h, uint64_t number) {
    return h->flights[number % (uint64_t)h->n_steps].n_good;
}

static void computed(kin_head *h, uint64_t step, int round, kin_time begun) {
    kin_time now = kin_clock_now();
    end_work(h, now);
    atomic_fetch_add(&h->ring.counts->compute_ns, now - begun);
    if (!kin_trace_is_on(h->trace)) return;
    size_t n = kin_shard_pop_intervals(h->ring.shard, KIN_STREAM_STALLS, h->stalls, KIN_BUSY_KEPT);
    kin_trace_add_compute(h->trace, step, round, begun, now, h->stalls, n);
}

static void end_step(kin_head *h, bool is_token) {
    kin_stream_stats stream = stream_of(h);
    kin_step_timing_end(&h->timing, kin_clock_now(), &stream, is_token);
    publish_timing(h);
}

// The step number comes from a peer, so it is checked.
static int check_order(const kin_head *h, uint64_t step, kin_err *err) {
    if (step == h->done_step) return 0;
    return kin_err_set(err, "ring: step %llu came back before step %llu", (unsigned long long)step,
                       (unsigned long long)h->done_step);
}

// Returns the rows whose logits are wanted; of a step with states they are copied, because x keeps all rows. NULL: no memory.
static const float *wanted_rows(kin_head *h, const flight *f) {
    const size_t width = (size_t)kin_hparams_stream_width(&h->model->hp);
    if (!f->states || f->n_logits == f->batch.n_tokens) return h->x;
    if (f->n_logits > h->cap_out) {
        float *larger = realloc(h->out_x, (size_t)f->n_logits * width * sizeof *larger);
        if (!larger) return NULL;
        h->out_x = larger;
        h->cap_out = f->n_logits;
    }
    for (int i = 0; i < f->n_logits; i++)
        memcpy(h->out_x + (size_t)i * width, h->x + (size_t)f->out[i] * width, width * sizeof *h->x);
    return h->out_x;
}

static int finish_step(kin_head *h, uint64_t step, kin_err *err) {
    const flight *f = flight_of(h, step);
    if (check_order(h, step, err) != 0) return KIN_FAIL;
    const float *rows = f->n_logits ? wanted_rows(h, f) : h->x;
    if (!rows) return kin_err_set(err, "out of memory");
    if (f->n_logits && f->hidden && kin_shard_hidden(h->ring.shard, f->n_logits, rows, f->logits, err) != 0) return KIN_FAIL;
    if (f->n_logits && !f->hidden && kin_shard_output(h->ring.shard, f->n_logits, rows, f->logits, err) != 0) return KIN_FAIL;
    h->has_states = f->states;
    h->done_step++;
    return 0;
}

const float *kin_head_states(const kin_head *h) {
    return h->has_states ? h->x : NULL;
}

int kin_head_end(kin_head *h, int n, const float *x, float *hidden, kin_err *err) {
    return kin_shard_hidden(h->ring.shard, n, x, hidden, err);
}

int kin_head_project(kin_head *h, int n, const float *hidden, float *logits, kin_err *err) {
    return kin_shard_project(h->ring.shard, n, hidden, logits, err);
}

void kin_head_count_sequences(kin_head *h, uint64_t n_begun, int n_running) {
    atomic_store(&h->ring.counts->n_sequences, n_begun);
    atomic_store(&h->ring.counts->n_running, (uint64_t)n_running);
}

static void count_step(kin_head *h, const flight *f) {
    int n_tokens = f->batch.n_tokens - f->n_prompt;
    bool is_token = f->batch.n_tokens == 1 && n_tokens == 1;
    atomic_fetch_add(&h->ring.counts->n_prompt, (uint64_t)f->n_prompt);
    atomic_fetch_add(&h->ring.counts->n_generated, (uint64_t)n_tokens);
    if (is_token) atomic_store(&h->ring.counts->token_pos, (uint64_t)f->pos[0]);
    if (n_steps_in_flight(h) == 0) end_step(h, is_token && h->was_only_step);
}

// Finishes the oldest flight if it is a request for pages that came back. These go round once, and so overtake steps of several
// rounds; they finish in their turn.
static bool end_pages(kin_head *h) {
    const flight *f = flight_of(h, h->done_step);
    if (!f->batch.pages || !f->is_back) return false;
    h->done_step++;
    h->n_pages--;
    return true;
}

// n_good: of the other members.
static int finish_pages(kin_head *h, flight *f, int n_good, kin_err *err) {
    f->n_good = min_int(f->n_good, n_good);
    f->is_back = true;
    if (!f->has_later) return 0;
    f->has_later = false;
    if (f->pages.loads) {
        f->pages.n = f->n_good;
        if (f->n_good > 0) f->n_good = kin_stage_executor_recompute(h->ring.executor, &f->pages, err);
    } else {
        int n_kept = kin_stage_executor_pages(h->ring.executor, &(kin_batch){.pages = &f->pages}, err);
        f->n_good = min_int(f->n_good, n_kept);
    }
    return f->n_good < 0 ? KIN_FAIL : 0;
}

// Checks the width of rows that a device sent: in the last round the head needs the residual, or what its window needs.
static int check_width(const kin_head *h, const kin_hop *hop, int round, kin_err *err) {
    const int of_window = kin_stage_executor_row_width(h->ring.executor, round, false);
    const int needed = of_window == 0 && round == h->ring.n_rounds - 1 ? kin_hparams_stream_width(&h->model->hp) : of_window;
    if (needed == 0 || hop->n_embd == needed) return 0;
    return kin_err_set(err, "ring: rows of %d values, but %d are needed", hop->n_embd, needed);
}

// Handles a step that came back at the end of a round: runs the head's window, then the next round or the output. *done: it was
// the last round.
static int handle_hop(kin_head *h, kin_hop *hop, bool *done, kin_err *err) {
    flight *f = flight_of(h, hop->step);
    if (f->batch.pages) return finish_pages(h, f, hop->n_good, err);
    if (!kin_stage_executor_has(h->ring.executor, hop->step)) { // forgotten: the steps sent before it are done
        if (check_order(h, hop->step, err) != 0) return KIN_FAIL;
        h->has_states = false;
        h->done_step++;
        *done = true;
        return 0;
    }
    kin_time begun = kin_clock_now();
    begin_work(h, begun);
    int round = hop->round++;
    hop->n_rows = check_width(h, hop, round, err) == 0
                      ? kin_stage_executor_run(h->ring.executor, hop->step, round, hop->n_rows, h->x, err)
                      : KIN_FAIL;
    const int width = kin_stage_executor_row_width(h->ring.executor, round, true);
    if (width > 0) hop->n_embd = width;
    *done = hop->n_rows >= 0 && hop->round == h->ring.n_rounds;
    int rc = hop->n_rows < 0 ? KIN_FAIL : *done ? finish_step(h, hop->step, err) : 0;
    computed(h, hop->step, round, begun);
    atomic_fetch_add(&h->ring.counts->n_steps, 1);
    if (rc == 0 && *done) count_step(h, f);
    if (rc != 0 || *done) return rc;
    return h->ring.transport.send(h->ring.transport.user, hop, &f->batch, h->x, err);
}

static waits *waits_for(kin_head *h, uint64_t step) {
    int n = flight_of(h, step)->batch.n_tokens;
    return &h->waits[n <= MOST_WAIT_ROWS ? n : 0];
}

static double shortest(const waits *w) {
    double least = 0;
    for (int i = 0; i < N_WAITS && w->n >= N_WAITS_LEAST && i < w->n; i++) {
        if (i == 0 || w->took_s[i] < least) least = w->took_s[i];
    }
    return least;
}

// Returns the last time at which nothing had come yet; 0: the caller waits from now on.
static kin_time work_meanwhile(kin_head *h, const kin_head_meanwhile *m, kin_time begun) {
    kin_time now = begun;
    double wait_s = shortest(waits_for(h, h->done_step));
    for (bool works = true; works && !h->ring.transport.is_here(h->ring.transport.user);) {
        now = kin_clock_now();
        double free_s = wait_s - kin_clock_ms(begun, now) / 1e3;
        works = free_s > 0 && m->work(m->user, free_s);
        if (!works) return 0; // wait for the hop
    }
    return now;
}

static int wait_for_hop(kin_head *h, const kin_head_meanwhile *meanwhile, kin_hop *hop, kin_err *err) {
    kin_time begun = kin_clock_now();
    kin_time last = meanwhile ? work_meanwhile(h, meanwhile, begun) : 0;
    int rc = h->ring.transport.receive(h->ring.transport.user, hop, h->x, err);
    kin_time now = kin_clock_now();
    atomic_fetch_add(&h->ring.counts->wait_ns, now - begun);
    if (rc == 0 && hop->step >= h->done_step && hop->step < h->next_step) {
        waits *w = waits_for(h, hop->step);
        w->took_s[w->n++ % N_WAITS] = kin_clock_ms(begun, last ? last : now) / 1e3;
    }
    if (rc == 0 && hop->step > 0) kin_trace_add(h->trace, KIN_PROTO_EVENT_WAIT, hop->step, hop->round, begun, now);
    return rc;
}

int kin_head_receive(kin_head *h, const kin_head_meanwhile *meanwhile, uint64_t *number, kin_err *err) {
    kin_assert(kin_head_n_in_flight(h) > 0);
    *number = h->done_step;
    for (bool done = end_pages(h); !done; done = done || end_pages(h)) {
        kin_hop hop;
        int rc = wait_for_hop(h, meanwhile, &hop, err);
        if (rc == 0 && hop.step == 0) { // woken
            *number = 0;
            return 0;
        }
        if (rc == 0 && hop.step < h->done_step) continue; // it was dropped
        if (rc == 0 && hop.step >= h->next_step)
            rc = kin_err_set(err, "ring: step %llu was never sent", (unsigned long long)hop.step);
        if (rc == 0) rc = handle_hop(h, &hop, &done, err);
        if (rc != 0) {
            give_up(h);
            return KIN_FAIL;
        }
    }
    return 0;
}

// Without memory for the operation the sequence stays unchanged; its next step then fails, because its positions are taken.
void kin_head_truncate(kin_head *h, int32_t seq, int32_t n) {
    kin_err err;
    kin_head_change(h, (kin_kv_op){.seq = seq, .from = seq, .n = n}, &err);
}

void kin_head_clear(kin_head *h) {
    kin_head_truncate(h, -1, 0);
}
