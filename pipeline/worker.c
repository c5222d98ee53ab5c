#include "pipeline/worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct kin_worker {
    kin_stage_executor *executor;
    kin_steps steps;
    kin_message_pool *pool;
    void (*pass)(void *user, kin_message_buffer *buffer); // NULL: steps are passed on after they are computed
    void *pass_user;
    kin_message_queue *in;             // NULL: not used
    float *x;                          // f32 [n_batch, n_embd of the widest rows]
    int32_t *pos, *seq, *out, *tokens; // [n_batch]
    kin_kv_op *ops;                    // [KIN_PROTO_MAX_OPS]
    struct {
        uint32_t epoch;
        int n;
        int32_t *pos, *seq; // [n_batch]
    } dropped;              // tokens of steps that were not computed here, and are not forgotten yet
    bool got_wrong;         // the input is invalid
    kin_step_order order;   // of the frames received
    kin_worker_stats stats;
};

int kin_worker_open(kin_worker **out, kin_stage_executor *executor, const kin_steps *steps, kin_message_pool *pool,
                    kin_err *err) {
    *out = NULL;
    size_t n = (size_t)steps->n_batch;
    kin_worker *w = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->executor = executor;
    w->steps = *steps;
    w->pool = pool;
    w->x = malloc(n * (size_t)steps->n_embd * sizeof *w->x);
    w->pos = malloc(n * sizeof *w->pos);
    w->seq = malloc(n * sizeof *w->seq);
    w->out = malloc(n * sizeof *w->out);
    w->tokens = malloc(n * sizeof *w->tokens);
    w->ops = malloc(KIN_PROTO_MAX_OPS * sizeof *w->ops);
    w->dropped.pos = malloc(n * sizeof *w->dropped.pos);
    w->dropped.seq = malloc(n * sizeof *w->dropped.seq);
    if (!w->x || !w->pos || !w->seq || !w->out || !w->tokens || !w->ops || !w->dropped.pos || !w->dropped.seq) {
        kin_worker_close(w);
        return kin_err_set(err, "out of memory");
    }
    *out = w;
    return 0;
}

bool kin_worker_ends_tokens(const kin_member_windows *w, int token_layers) {
    return w->windows.n > 0 && w->rounds[0] == 0 && w->windows.at[0].layer_end >= token_layers;
}

void kin_worker_close(kin_worker *w) {
    if (!w) return;
    free(w->x);
    free(w->pos);
    free(w->seq);
    free(w->out);
    free(w->tokens);
    free(w->ops);
    free(w->dropped.pos);
    free(w->dropped.seq);
    free(w);
}

void kin_worker_pass_early(kin_worker *w, void (*pass)(void *user, kin_message_buffer *buffer), void *user) {
    w->pass = pass;
    w->pass_user = user;
}

void kin_worker_set_queue(kin_worker *w, kin_message_queue *in) {
    w->in = in;
}

typedef struct lost {
    uint32_t epoch;
    kin_batch batch;
} lost;

static bool forgets(void *user, const kin_message_buffer *buffer) {
    const lost *l = user;
    return buffer->frame.epoch == l->epoch && kin_steps_forgets(buffer, &l->batch);
}

// Removes dropped tokens that these changes of the cache forget.
static void forget_dropped(kin_worker *w, uint32_t epoch, const kin_batch *changes) {
    int n = 0;
    for (int i = 0; i < w->dropped.n && epoch == w->dropped.epoch; i++) {
        const kin_batch token = {.n_tokens = 1, .pos = &w->dropped.pos[i], .seq = &w->dropped.seq[i]};
        bool is_forgotten = false;
        for (int k = 0; k < changes->n_ops && !is_forgotten; k++) is_forgotten = kin_batch_loses(&token, &changes->ops[k]);
        if (is_forgotten) continue;
        w->dropped.pos[n] = w->dropped.pos[i];
        w->dropped.seq[n++] = w->dropped.seq[i];
    }
    w->dropped.n = n;
    w->dropped.epoch = epoch;
}

static void note_dropped(kin_worker *w, int n_tokens) {
    memcpy(w->dropped.pos + w->dropped.n, w->pos, (size_t)n_tokens * sizeof *w->pos);
    memcpy(w->dropped.seq + w->dropped.n, w->seq, (size_t)n_tokens * sizeof *w->seq);
    w->dropped.n += n_tokens;
    w->stats.n_dropped++;
}

// True if a later frame in the queue forgets the step's tokens. Only the first round is skipped: a step of several rounds ends
// when the later step begins.
static bool is_lost(const kin_worker *w, const kin_message_buffer *buffer, const kin_proto_step *m) {
    lost l = {buffer->frame.epoch, {.n_tokens = (int)m->n_tokens, .pos = w->pos, .seq = w->seq}};
    bool has_room = w->dropped.n + (int)m->n_tokens <= w->steps.n_batch;
    return w->in && has_room && (m->flags & KIN_PROTO_STEP_POSITIONS) && kin_message_queue_has(w->in, forgets, &l);
}

// True if the request stores tokens that were not computed here, or that follow such tokens.
static bool is_lost_page(const kin_worker *w, const kin_page_request *r) {
    bool is = false;
    for (int i = 0; i < w->dropped.n && !is && !r->loads && !r->drops; i++)
        is = w->dropped.seq[i] == r->seq && w->dropped.pos[i] < (r->first + r->n) * KIN_KV_CELLS;
    return is;
}

// Decodes the received step, and begins or continues it; the rows are left in w->x.
static int receive_step(kin_worker *w, const kin_message_buffer *buffer, kin_proto_step *m, bool *is_dropped, kin_err *err) {
    if (kin_steps_check(&w->steps, buffer, m, err) != 0) return KIN_FAIL;
    if (m->flags & KIN_PROTO_STEP_POSITIONS) {
        if (kin_step_order_accept(&w->order, buffer->frame.epoch, m->step, err) != 0) return KIN_FAIL;
        kin_batch batch = kin_steps_batch(m, w->pos, w->seq, w->out, w->tokens, w->ops);
        if (kin_stage_executor_begin(w->executor, m->step, &batch, err) != 0) return KIN_FAIL;
        w->stats.n_tokens += m->n_tokens;
        forget_dropped(w, buffer->frame.epoch, &batch);
    } else if (kin_stage_executor_match(w->executor, m->step, m->n_tokens, m->n_out, err) != 0) {
        return KIN_FAIL;
    }
    *is_dropped = is_lost(w, buffer, m);
    if (*is_dropped) {
        kin_stage_executor_drop(w->executor, m->step);
        note_dropped(w, (int)m->n_tokens);
        return 0;
    }
    size_t n = m->n_rows * (size_t)m->n_embd;
    kin_activations_decode(w->x, m->activations, n, m->type);
    if (kin_stage_executor_check(w->executor, m->step, m->round, (int)m->n_rows, err) != 0) return KIN_FAIL;
    const int width = kin_stage_executor_row_width(w->executor, m->round, false);
    const bool fits = width == 0 || m->n_embd == (uint32_t)width;
    if (fits && kin_activations_are_finite(w->x, n)) return 0;
    kin_stage_executor_abandon(w->executor, m->step);
    if (!fits) return kin_err_set(err, "rows of %u values, but layers here need %d", m->n_embd, width);
    return kin_err_set(err, "hidden states that are not finite");
}

// Makes the frame for the next member, with room for the rows, whose place is returned; the rest is in place already.
static uint8_t *put_head(kin_message_buffer *buffer, kin_proto_step *m, kin_err *err) {
    const kin_proto_step_layout at = kin_proto_step_lay_out(m);
    if (!kin_message_buffer_grow(buffer, at.size)) {
        kin_err_set(err, "out of memory for a step's rows");
        return NULL;
    }
    m->pos = m->seq = m->out = m->ops = m->tokens = NULL;
    kin_proto_encode_step_head(buffer->payload, buffer->cap, m);
    buffer->frame.length = (uint32_t)at.size;
    return buffer->payload + at.activations;
}

// A step that is not computed: its rows get the width that the next member expects. Their numbers are of no use to it.
static int pass_dropped(kin_worker *w, kin_message_buffer *buffer, kin_proto_step *m, kin_err *err) {
    const uint32_t width = (uint32_t)kin_stage_executor_row_width(w->executor, m->round, true);
    if (width == 0 || width == m->n_embd) return 0;
    m->n_embd = width;
    uint8_t *rows = put_head(buffer, m, err);
    if (!rows) return KIN_FAIL;
    memset(rows, 0, kin_proto_step_lay_out(m).activations_bytes);
    return 0;
}

static int run_step_here(kin_worker *w, kin_message_buffer **at_buffer, kin_err *err) {
    kin_message_buffer *buffer = *at_buffer;
    kin_proto_step m;
    bool is_dropped = false;
    w->got_wrong = receive_step(w, buffer, &m, &is_dropped, err) != 0;
    if (w->got_wrong) return KIN_FAIL;
    if (is_dropped) return pass_dropped(w, buffer, &m, err);
    if (w->pass) {
        *at_buffer = NULL;
        w->pass(w->pass_user, buffer);
    }
    int n_rows = kin_stage_executor_run(w->executor, m.step, m.round, (int)m.n_rows, w->x, err);
    if (n_rows < 0) return KIN_FAIL;
    if (w->pass) return 0;
    const int width = kin_stage_executor_row_width(w->executor, m.round, true);
    if (width > 0) m.n_embd = (uint32_t)width;
    const size_t n = (size_t)n_rows * (size_t)m.n_embd;
    if (!kin_activations_are_finite(w->x, n))
        return kin_err_set(
            err, "its layers computed hidden states that are not finite: its memory or its copy of the model may be damaged");
    // Unwanted rows are removed, and after the last layer that needs them also the tokens' numbers. Rows may have another width.
    // The rest stays the same.
    m.n_rows = (uint32_t)n_rows;
    if (w->steps.ends_tokens) m.flags &= (uint16_t)~KIN_PROTO_STEP_TOKENS;
    uint8_t *rows = put_head(buffer, &m, err);
    if (!rows) return KIN_FAIL;
    kin_activations_encode(rows, w->x, n, m.type);
    return 0;
}

static int run_pages(kin_worker *w, kin_message_buffer *buffer, kin_err *err) {
    kin_proto_pages m;
    kin_page_request request;
    kin_batch batch;
    kin_time begun = kin_clock_now();
    w->got_wrong = kin_steps_unpack_pages(&w->steps, buffer, &m, &request, w->ops, &batch, err) != 0 ||
                   kin_step_order_accept(&w->order, buffer->frame.epoch, m.step, err) != 0;
    if (w->got_wrong) return KIN_FAIL;
    forget_dropped(w, buffer->frame.epoch, &batch);
    if (is_lost_page(w, &request)) batch.pages = NULL;
    int n_good = kin_stage_executor_pages(w->executor, &batch, err);
    if (m.recomputes && m.n_good < request.n) request.n = m.n_good; // the members before it have only these
    if (n_good >= 0 && m.recomputes && request.n > 0) n_good = kin_stage_executor_recompute(w->executor, &request, err);
    if (n_good < 0) return KIN_FAIL;
    double left_ms = m.timeout_ms - kin_clock_ms(begun, kin_clock_now());
    if (!m.recomputes)
        m.timeout_ms = left_ms > 0 ? (uint16_t)left_ms : 0; // the next member must wait for what this one recomputed
    if (n_good < m.n_good) m.n_good = (uint16_t)n_good;
    m.ops = NULL; // they are in place
    kin_proto_encode_pages(buffer->payload, buffer->cap, &m);
    return 0;
}

int kin_worker_handle(kin_worker *w, kin_message_buffer **buffer, kin_err *err) {
    kin_time begun = kin_clock_now();
    bool is_step = (*buffer)->frame.type != KIN_FRAME_PAGES;
    int rc = is_step ? run_step_here(w, buffer, err) : run_pages(w, *buffer, err);
    if (is_step) w->stats.compute_ns += kin_clock_now() - begun;
    w->stats.n_steps += is_step;
    if (rc == 0) return 0;
    kin_message_pool_give(w->pool, *buffer);
    *buffer = NULL;
    return KIN_FAIL;
}

bool kin_worker_got_wrong(const kin_worker *w) {
    return w->got_wrong;
}

kin_worker_stats kin_worker_get_stats(const kin_worker *w) {
    return w->stats;
}
