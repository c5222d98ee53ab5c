#include "pipeline/head.h"

#include <stdlib.h>

#include "base/clock.h"
#include "model/embed.h"
#include "pure/plan/prompt.h"

// A chunk in flight: its place in the request.
typedef struct chunk {
    kin_batch batch;
    int32_t *pos, *seq; // [n_batch]
    int32_t last;       // the row wanted when only the last is
    int begin, n;       // tokens of the request
} chunk;

struct kin_head {
    const kin_model *model;
    kin_head_ring ring;
    uint64_t ring_number;
    int n_batch, n_steps, n_chunk;
    kin_progress progress;
    void *progress_user;

    chunk *chunks; // [n_steps] cyclic, by the step's number
    float *x;      // f32 [n_batch, n_embd] hidden states of the step at hand
    kin_trace *trace;
    kin_interval stalls[KIN_BUSY_KEPT];
    kin_head_counts own_counts; // where the ring has none
    kin_step_timing timing;
    uint64_t next_step; // numbers are never used twice, so what comes back of an earlier request is known
};

// A request that is being fed.
typedef struct feed {
    int32_t seq, pos;
    const int32_t *tokens;
    int n, n_chunk;
    float *logits;
    int n_logits;
    int sent, done; // tokens
    uint64_t first_step, n_sent, n_done;
} feed;

static int alloc_chunks(kin_head *h, kin_err *err) {
    h->chunks = calloc((size_t)h->n_steps, sizeof *h->chunks);
    for (int i = 0; i < h->n_steps && h->chunks; i++) {
        chunk *c = &h->chunks[i];
        c->pos = malloc((size_t)h->n_batch * sizeof *c->pos);
        c->seq = malloc((size_t)h->n_batch * sizeof *c->seq);
        if (!c->pos || !c->seq) return kin_err_set(err, "out of memory");
    }
    return h->chunks ? 0 : kin_err_set(err, "out of memory");
}

int kin_head_open(kin_head **out, const kin_model *model, const kin_head_ring *ring, int n_batch, int n_steps, kin_err *err) {
    *out = NULL;
    kin_head *h = calloc(1, sizeof *h);
    if (!h) return kin_err_set(err, "out of memory");
    h->model = model;
    kin_head_set_ring(h, ring);
    h->n_batch = n_batch;
    h->n_steps = n_steps;
    h->next_step = 1;
    h->x = malloc((size_t)n_batch * (size_t)model->hp.n_embd * sizeof *h->x);
    int rc = h->x ? alloc_chunks(h, err) : kin_err_set(err, "out of memory");
    if (rc != 0) {
        kin_head_close(h);
        return KIN_FAIL;
    }
    *out = h;
    return 0;
}

void kin_head_close(kin_head *h) {
    if (!h) return;
    for (int i = 0; i < h->n_steps && h->chunks; i++) {
        free(h->chunks[i].pos);
        free(h->chunks[i].seq);
    }
    free(h->chunks);
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
    if (!h->ring.counts) h->ring.counts = &h->own_counts;
    h->timing = (kin_step_timing){0};
    publish_timing(h);
}

uint64_t kin_head_ring_number(const kin_head *h) {
    return h->ring_number;
}

void kin_head_set_chunk(kin_head *h, int n_tokens) {
    h->n_chunk = n_tokens;
}

void kin_head_record(kin_head *h, kin_trace *trace) {
    h->trace = trace;
}

void kin_head_on_progress(kin_head *h, kin_progress progress, void *user) {
    h->progress = progress;
    h->progress_user = user;
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

// ---- feeding

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

static int chunk_tokens(const kin_head *h, int n) {
    if (h->n_chunk > 0) return min_int(h->n_chunk, h->n_batch);
    return kin_prompt_chunk_tokens(n, h->ring.n_members, h->n_batch);
}

static chunk *chunk_of(kin_head *h, uint64_t step) {
    return &h->chunks[step % (uint64_t)h->n_steps];
}

// The logits that are wanted of this chunk: 0, 1 or all of its tokens.
static int n_wanted(const feed *f, const chunk *c) {
    if (f->n_logits == f->n) return c->n;
    return f->n_logits && c->begin + c->n == f->n ? 1 : 0;
}

static int send_chunk(kin_head *h, feed *f, kin_err *err) {
    uint64_t step = h->next_step++;
    chunk *c = chunk_of(h, step);
    c->begin = f->sent;
    c->n = min_int(f->n_chunk, f->n - f->sent);
    begin_work(h, kin_clock_now());
    if (kin_embed(h->model, f->tokens + c->begin, c->n, h->x, err) != 0) return KIN_FAIL;
    end_work(h, kin_clock_now());
    for (int i = 0; i < c->n; i++) {
        c->pos[i] = f->pos + c->begin + i;
        c->seq[i] = f->seq;
    }
    // A chunk without wanted logits still computes its last row.
    c->last = c->n - 1;
    int wanted = n_wanted(f, c);
    c->batch = (kin_batch){.n_tokens = c->n,
                           .pos = c->pos,
                           .seq = c->seq,
                           .out = wanted == c->n ? NULL : &c->last,
                           .n_out = 1,
                           .no_output = wanted == 0};
    if (kin_stage_executor_begin(h->ring.executor, step, &c->batch, err) != 0) return KIN_FAIL;
    f->sent += c->n;
    f->n_sent++;
    kin_hop hop = {.step = step, .n_rows = c->n, .more = f->sent < f->n};
    return h->ring.transport.send(h->ring.transport.user, &hop, &c->batch, h->x, err);
}

static void computed(kin_head *h, uint64_t step, int round, kin_time begun) {
    kin_time now = kin_clock_now();
    end_work(h, now);
    atomic_fetch_add(&h->ring.counts->compute_ns, now - begun);
    if (!kin_trace_is_on(h->trace)) return;
    size_t n = kin_shard_take_intervals(h->ring.shard, KIN_STREAM_STALLS, h->stalls, KIN_BUSY_KEPT);
    kin_trace_add_compute(h->trace, step, round, begun, now, h->stalls, n);
}

static int finish_chunk(kin_head *h, feed *f, const chunk *c, kin_err *err) {
    int wanted = n_wanted(f, c);
    float *logits = f->logits;
    if (f->n_logits == f->n) logits += (size_t)c->begin * (size_t)h->model->hp.n_vocab;
    if (wanted && kin_shard_output(h->ring.shard, wanted, h->x, logits, err) != 0) return KIN_FAIL;
    f->done += c->n;
    f->n_done++;
    if (h->progress) h->progress(h->progress_user, "reading the prompt", (uint64_t)f->done, (uint64_t)f->n);
    return 0;
}

// A step came back to us at the end of a round: our own window, then the next round or the output.
static int take_hop(kin_head *h, feed *f, kin_hop *hop, kin_err *err) {
    const chunk *c = chunk_of(h, hop->step);
    kin_time begun = kin_clock_now();
    begin_work(h, begun);
    int round = hop->round++;
    hop->n_rows = kin_stage_executor_run(h->ring.executor, hop->step, round, hop->n_rows, h->x, err);
    bool last = hop->n_rows >= 0 && hop->round == h->ring.n_rounds;
    int rc = hop->n_rows < 0 ? KIN_FAIL : last ? finish_chunk(h, f, c, err) : 0;
    computed(h, hop->step, round, begun);
    atomic_fetch_add(&h->ring.counts->n_steps, 1);
    if (rc != 0 || last) return rc;
    return h->ring.transport.send(h->ring.transport.user, hop, &c->batch, h->x, err);
}

static int wait_for_hop(kin_head *h, kin_hop *hop, kin_err *err) {
    kin_time begun = kin_clock_now();
    int rc = h->ring.transport.receive(h->ring.transport.user, hop, h->x, err);
    kin_time now = kin_clock_now();
    atomic_fetch_add(&h->ring.counts->wait_ns, now - begun);
    if (rc == 0) kin_trace_add(h->trace, KIN_PROTO_EVENT_WAIT, hop->step, hop->round, begun, now);
    return rc;
}

static int feed_all(kin_head *h, feed *f, kin_err *err) {
    while (f->done < f->n) {
        while (f->sent < f->n && f->n_sent - f->n_done < (uint64_t)h->n_steps) {
            if (send_chunk(h, f, err) != 0) return KIN_FAIL;
        }
        kin_hop hop;
        if (wait_for_hop(h, &hop, err) != 0) return KIN_FAIL;
        if (hop.step < f->first_step) continue; // of a request that was given up
        if (take_hop(h, f, &hop, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static void end_step(kin_head *h, bool is_token) {
    kin_stream_stats stream = stream_of(h);
    kin_step_timing_end(&h->timing, kin_clock_now(), &stream, is_token);
    publish_timing(h);
}

int kin_head_eval(kin_head *h, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits,
                  kin_err *err) {
    kin_assert(n > 0 && (n_logits == 0 || n_logits == 1 || n_logits == n));
    feed f = {.seq = seq,
              .pos = pos,
              .tokens = tokens,
              .n = n,
              .n_chunk = chunk_tokens(h, n),
              .logits = logits,
              .n_logits = n_logits,
              .first_step = h->next_step};
    kin_step_timing_begin(&h->timing, kin_clock_now());
    if (feed_all(h, &f, err) == 0) {
        end_step(h, n == 1);
        if (n == 1) atomic_store(&h->ring.counts->token_pos, (uint64_t)pos);
        atomic_fetch_add(n > 1 ? &h->ring.counts->n_prompt : &h->ring.counts->n_generated, (uint64_t)n);
        return 0;
    }
    kin_head_remove(h, seq, pos, pos + n);
    return KIN_FAIL;
}

void kin_head_remove(kin_head *h, int32_t seq, int32_t begin, int32_t end) {
    kin_stage_executor_forget(h->ring.executor, seq, begin, end);
    h->ring.transport.forget(h->ring.transport.user, seq, begin, end);
}

void kin_head_clear(kin_head *h) {
    kin_head_remove(h, -1, 0, INT32_MAX);
}
