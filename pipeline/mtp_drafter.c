#include "pipeline/mtp_drafter.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/shard_memory.h"
#include "model/draft_block.h"
#include "model/embed.h"

enum {
    N_SLOTS = KIN_DRAFT_MODEL_MAX_SEQUENCES,
    ENDED_SLOTS = 4,   // beside the running sequences: their next turns begin there
    LEAST_PREFIX = 8,  // entries that an ended sequence must have in common with a new one
    IDLE_CALLS = 4096, // after which a sequence that brought no states may lose its entries
    FEW_STATES = 8,    // of each sequence, as after a step whose draft was right
    CACHE_SEED = 0x4d54,
};

// A sequence of the KV cache.
typedef struct slot {
    uint64_t sequence;
    bool lives;           // the sequence has not ended
    uint64_t used;        // the last call that used it
    int32_t *tokens, *at; // [n] of cap: the token of each entry, and its position in the text
    int n, cap;
    int n_cached;  // entries in the cache: these n, and drafted tokens behind them
    float *states; // f32 [n_states, n_embd] normalised, of the positions from `first` on: not in an entry yet
    int first, n_states;
} slot;

struct kin_mtp_drafter {
    kin_draft_block block;
    kin_shard *shard;
    const kin_kernels *kernels;
    int n_cells, n_batch, n_vocab, n_slots;
    slot slots[N_SLOTS];
    uint64_t n_calls;
    kin_kv_op ops[N_SLOTS]; // [n_ops] cuts for the next pass, at most one of each sequence
    int n_ops;
    int32_t *seq, *pos, *out; // [n_batch] of the pass being built
    float *x, *inputs, *y;    // f32 [n_batch, n_embd] its states, embeddings, and results
    int n, n_out;
    float *logits; // f32 [N_SLOTS, n_vocab of the model]
    bool failed;
};

// ---- opening

static size_t width(const kin_mtp_drafter *d) {
    return (size_t)d->block.view.hp.n_embd;
}

// Sets the sizes that follow from the options.
static void set_sizes(kin_mtp_drafter *d, const kin_mtp_drafter_options *o) {
    const int n_sequences = o->n_sequences < N_SLOTS ? o->n_sequences : N_SLOTS;
    d->n_slots = n_sequences + ENDED_SLOTS < N_SLOTS ? n_sequences + ENDED_SLOTS : N_SLOTS;
    d->n_cells = o->n_ctx + (n_sequences > 0 ? n_sequences : 1) * KIN_KV_CELLS; // each sequence may end within a block
    d->n_batch = o->n_batch > N_SLOTS ? o->n_batch : N_SLOTS;
    d->n_vocab = o->n_vocab < o->model->hp.n_vocab ? o->n_vocab : o->model->hp.n_vocab;
}

static kin_shard_options shard_options(const kin_mtp_drafter *d, const kin_mtp_drafter_options *o) {
    kin_shard_options so = kin_shard_options_defaults(&d->block.view);
    so.n_ctx = d->n_cells;
    so.n_batch = d->n_batch;
    so.kv_type = o->kv_type;
    so.mode = KIN_STREAM_MMAP; // its weights are read in every pass
    so.ggml_kernels = !o->devices->cpu.kernels;
    so.output = d->block.has_output;
    so.cache_dir = o->cache_dir;
    so.cache_cap = o->cache_cap;
    so.progress = o->progress;
    return so;
}

// Returns the bytes of states, logits, and the arrays of a pass.
static uint64_t array_bytes(const kin_mtp_drafter *d) {
    const uint64_t n_rows = (uint64_t)(d->n_slots + 3) * (uint64_t)d->n_batch,
                   n_logits = N_SLOTS * (uint64_t)d->block.view.hp.n_vocab;
    return (n_rows * width(d) + n_logits) * sizeof(float);
}

int kin_mtp_drafter_needs(const kin_mtp_drafter_options *o, uint64_t *bytes, kin_err *err) {
    kin_mtp_drafter d = {0};
    if (kin_draft_block_open(&d.block, o->model, err) != 0) return KIN_FAIL;
    set_sizes(&d, o);
    const kin_model *view = &d.block.view;
    const kin_shard_options so = shard_options(&d, o);
    *bytes = array_bytes(&d) + kin_shard_fixed_bytes(view, &so) - kin_shard_overhead_bytes(); // the program is there already
    for (int il = 0; il < view->hp.n_layer; il++) *bytes += kin_model_layer_bytes(view, il);
    if (d.block.has_output) *bytes += view->output->n_bytes;
    kin_draft_block_close(&d.block);
    return 0;
}

static int open_shard(kin_mtp_drafter *d, const kin_mtp_drafter_options *o, kin_err *err) {
    kin_shard_options so = shard_options(d, o);
    kin_devices devices = *o->devices;
    memset(&devices.gpu, 0, sizeof devices.gpu);
    if (so.cache_dir && kin_weights_model_identity(o->model, &so.identity, err) != 0) return KIN_FAIL;
    so.identity = kin_hash64(&so.identity, sizeof so.identity, CACHE_SEED); // not the model's own cache file
    return kin_shard_open(&d->shard, &d->block.view, &devices, &so, err);
}

static int open_arrays(kin_mtp_drafter *d, kin_err *err) {
    const size_t n_batch = (size_t)d->n_batch, n_embd = (size_t)d->block.view.hp.n_embd;
    int32_t **ints[] = {&d->seq, &d->pos, &d->out};
    float **floats[] = {&d->x, &d->inputs, &d->y};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        ok = (*ints[i] = malloc(n_batch * sizeof **ints[i])) && ok;
        ok = (*floats[i] = malloc(n_batch * n_embd * sizeof **floats[i])) && ok;
    }
    d->logits = malloc(N_SLOTS * (size_t)d->block.view.hp.n_vocab * sizeof *d->logits);
    return ok && d->logits ? 0 : kin_err_set(err, "out of memory");
}

int kin_mtp_drafter_open(kin_mtp_drafter **out, const kin_mtp_drafter_options *o, kin_err *err) {
    kin_mtp_drafter *d = *out = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "out of memory");
    set_sizes(d, o);
    d->kernels = o->devices->cpu.kernels ? o->devices->cpu.kernels : kin_kernels_choose(err);
    if (d->kernels && kin_draft_block_open(&d->block, o->model, err) == 0 && open_arrays(d, err) == 0) {
        if (open_shard(d, o, err) == 0) return 0;
        kin_err_prefix(err, "the block for multi-token prediction");
    }
    kin_mtp_drafter_close(d);
    *out = NULL;
    return KIN_FAIL;
}

void kin_mtp_drafter_close(kin_mtp_drafter *d) {
    if (!d) return;
    kin_shard_close(d->shard);
    kin_draft_block_close(&d->block);
    for (int i = 0; i < N_SLOTS; i++) {
        free(d->slots[i].tokens);
        free(d->slots[i].at);
        free(d->slots[i].states);
    }
    free(d->seq);
    free(d->pos);
    free(d->out);
    free(d->x);
    free(d->inputs);
    free(d->y);
    free(d->logits);
    free(d);
}

uint64_t kin_mtp_drafter_bytes(const kin_mtp_drafter *d) {
    kin_shard_stats st = kin_shard_get_stats(d->shard);
    return array_bytes(d) + st.kv_bytes + st.compute_bytes + st.weights.mapped_bytes + st.weights.cached_bytes +
           st.weights.packed_bytes;
}

static void give_up(kin_mtp_drafter *d, const kin_err *err) {
    d->failed = true;
    kin_log(KIN_LOG_WARN, "drafts by multi-token prediction are disabled: %s", err->text);
}

// ---- sequences

static int blocks_of(int n) {
    return (n + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

// Removes what the cache has behind the sequence's first n entries.
static void cut(kin_mtp_drafter *d, slot *s, int n) {
    const int32_t seq = (int32_t)(s - d->slots);
    if (s->n > n) s->n = n;
    if (s->n_cached <= n) return;
    s->n_cached = n;
    for (int i = 0; i < d->n_ops; i++) {
        if (d->ops[i].seq != seq) continue;
        if (n < d->ops[i].n) d->ops[i].n = n;
        return;
    }
    d->ops[d->n_ops++] = (kin_kv_op){seq, seq, n};
}

static slot *find(kin_mtp_drafter *d, uint64_t sequence) {
    for (int i = 0; i < d->n_slots; i++)
        if (d->slots[i].lives && d->slots[i].sequence == sequence) return &d->slots[i];
    return NULL;
}

// Returns how many leading entries belong to the text's tokens before position `pos`.
static int count_common(const slot *s, const kin_mtp_states *of) {
    int n = 0;
    while (n < s->n && s->at[n] <= of->pos && s->at[n] < of->n_tokens && s->tokens[n] == of->tokens[s->at[n]]) n++;
    return n;
}

// True if another sequence may take the slot.
static bool is_free(const kin_mtp_drafter *d, const slot *s) {
    return !s->lives || d->n_calls - s->used > IDLE_CALLS;
}

// Gives a new sequence the slot of the ended one that has most in common with it, else an unused one, else the least recently
// used of the ended ones. NULL: too many sequences live.
static slot *begin(kin_mtp_drafter *d, const kin_mtp_states *of) {
    slot *best = NULL, *oldest = NULL;
    int n_best = LEAST_PREFIX - 1;
    for (int i = 0; i < d->n_slots; i++) {
        slot *s = &d->slots[i];
        if (!is_free(d, s)) continue;
        const int n = count_common(s, of);
        if (n > n_best) best = s, n_best = n;
        if (!oldest || s->used < oldest->used) oldest = s;
    }
    slot *s = best ? best : oldest;
    if (!s) return NULL;
    cut(d, s, best ? n_best : 0);
    s->sequence = of->sequence;
    s->lives = true;
    s->n_states = 0;
    s->first = of->pos;
    return s;
}

// Makes room for n more entries of the sequence: ended sequences leave the cache, the least recently used first. If that does not
// suffice the sequence loses its own entries. False: the others leave no room.
static bool make_room(kin_mtp_drafter *d, slot *mine, int n) {
    for (;;) {
        slot *oldest = NULL;
        int n_blocks = blocks_of(mine->n_cached + n);
        for (int i = 0; i < d->n_slots; i++) {
            slot *s = &d->slots[i];
            if (s == mine) continue;
            n_blocks += blocks_of(s->n_cached);
            if (is_free(d, s) && s->n_cached > 0 && (!oldest || s->used < oldest->used)) oldest = s;
        }
        if (n_blocks <= blocks_of(d->n_cells)) return true;
        if (!oldest && mine->n_cached == 0) return false;
        cut(d, oldest ? oldest : mine, 0);
    }
}

static bool reserve(kin_mtp_drafter *d, slot *s, int n) {
    if (!s->states) s->states = malloc((size_t)d->n_batch * width(d) * sizeof *s->states);
    if (n <= s->cap) return s->states != NULL;
    int32_t *tokens = realloc(s->tokens, 2 * (size_t)n * sizeof *tokens);
    if (tokens) s->tokens = tokens;
    int32_t *at = realloc(s->at, 2 * (size_t)n * sizeof *at);
    if (at) s->at = at;
    if (tokens && at) s->cap = 2 * n;
    return s->states && tokens && at;
}

void kin_mtp_drafter_end(kin_mtp_drafter *d, uint64_t sequence) {
    slot *s = find(d, sequence);
    if (s) s->lives = false;
}

// ---- passes

// Adds an entry to the pass: a token, and the state before it // f32 [n_embd].
static int add_row(kin_mtp_drafter *d, slot *s, int32_t token, const float *state, kin_err *err) {
    const size_t at = (size_t)d->n * width(d);
    if (kin_embed(&d->block.view, &token, 1, d->inputs + at, err) != 0) return KIN_FAIL;
    memcpy(d->x + at, state, width(d) * sizeof *state);
    d->seq[d->n] = (int32_t)(s - d->slots);
    d->pos[d->n++] = s->n_cached++;
    return 0;
}

static void normalize(const kin_mtp_drafter *d, const float *norm, const float *x, float *y) {
    d->kernels->rms_norm((int64_t)width(d), x, norm, d->block.view.hp.rms_eps, y);
}

// Runs the pass that was built. y // f32 [n_out, n_embd]: the states that it makes, normalised. Without wanted ones it only fills
// the cache.
static int run(kin_mtp_drafter *d, kin_err *err) {
    const int32_t last = d->n - 1;
    kin_batch batch = {.n_tokens = d->n,
                       .pos = d->pos,
                       .seq = d->seq,
                       .out = d->n_out > 0 ? d->out : &last,
                       .n_out = d->n_out > 0 ? d->n_out : 1,
                       .inputs = d->inputs,
                       .no_output = true,
                       .ops = d->ops,
                       .n_ops = d->n_ops};
    const int step = kin_shard_begin(d->shard, &batch, err);
    if (step < 0) return KIN_FAIL;
    d->n_ops = 0;
    const int rc = kin_shard_run(d->shard, step, 0, d->x, d->y, err);
    kin_shard_end(d->shard, step, true);
    for (int i = 0; i < d->n_out && rc == 0; i++) {
        float *y = d->y + (size_t)i * width(d);
        normalize(d, d->block.out_norm, y, y);
    }
    return rc;
}

// Removes the first n of the waiting states.
static void drop_states(const kin_mtp_drafter *d, slot *s, int n) {
    s->n_states -= n;
    s->first += n;
    memmove(s->states, s->states + (size_t)n * width(d), (size_t)s->n_states * width(d) * sizeof *s->states);
}

// Adds states whose next token is known to the pass, as many as it has room for; without room in the cache they are dropped.
static int add_known(kin_mtp_drafter *d, slot *s, const int32_t *tokens, int n_tokens, kin_err *err) {
    int most = n_tokens - 1 - s->first;
    if (most > s->n_states) most = s->n_states;
    if (most > d->n_batch - d->n) most = d->n_batch - d->n;
    if (most <= 0) return 0;
    cut(d, s, s->n);
    const bool fits = make_room(d, s, most);
    if (!reserve(d, s, s->n + most)) return kin_err_set(err, "out of memory");
    for (int i = 0; i < most && fits; i++) {
        const int at = s->first + i + 1;
        if (add_row(d, s, tokens[at], s->states + (size_t)i * width(d), err) != 0) return KIN_FAIL;
        s->tokens[s->n] = tokens[at];
        s->at[s->n++] = at;
    }
    drop_states(d, s, most);
    return 0;
}

// ---- states

// Reads all states whose next token is known.
static int read_states(kin_mtp_drafter *d, slot *s, const kin_mtp_states *of, kin_err *err) {
    d->n = d->n_out = 0;
    if (add_known(d, s, of->tokens, of->n_tokens, err) != 0) return KIN_FAIL;
    return d->n > 0 ? run(d, err) : 0;
}

// If the new states do not continue the waiting ones: drops all entries after their first position and those of other
// tokens. Without the states in between, entries continue there.
static void go_to(kin_mtp_drafter *d, slot *s, const kin_mtp_states *of) {
    const int next = s->first + s->n_states;
    if (of->pos == next) return;
    cut(d, s, count_common(s, of));
    s->n_states = of->pos >= s->first && of->pos < next ? of->pos - s->first : 0;
    s->first = of->pos - s->n_states;
}

static int add_states(kin_mtp_drafter *d, slot *s, const kin_mtp_states *of, kin_err *err) {
    if (!reserve(d, s, 1)) return kin_err_set(err, "out of memory");
    go_to(d, s, of);
    for (int i = 0; i < of->n; i++) {
        if (s->n_states == d->n_batch && read_states(d, s, of, err) != 0) return KIN_FAIL;
        normalize(d, d->block.in_norm, of->rows + (size_t)i * width(d), s->states + (size_t)s->n_states++ * width(d));
    }
    return of->n > 1 ? read_states(d, s, of, err) : 0;
}

void kin_mtp_drafter_add_states(kin_mtp_drafter *d, const kin_mtp_states *of) {
    kin_err err = {""};
    if (d->failed) return;
    slot *s = find(d, of->sequence);
    if (!s) s = begin(d, of);
    if (!s) return;
    s->used = ++d->n_calls;
    if (add_states(d, s, of, &err) != 0) give_up(d, &err);
}

// ---- drafts

// A sequence that still needs tokens.
typedef struct writing {
    const kin_draft_query *w;
    slot *s;
    int row;                 // of the pass's results; -1: none
    int n;                   // tokens of its draft so far, without second choices
    int last;                // index in the draft of the last of these; -1: none
    double chance;           // probability that all of these are right
    kin_draft_choice choice; // the next token
} writing;

static void want_result(kin_mtp_drafter *d, writing *t) {
    d->out[d->n_out] = d->n - 1;
    t->row = d->n_out++;
}

// Adds the states of each sequence's last tokens to the pass. Returns the number of sequences, without those that have no states,
// or KIN_FAIL.
static int add_last(kin_mtp_drafter *d, const kin_draft_query *queries, int n, writing *sequences, kin_err *err) {
    int n_sequences = 0;
    for (int i = 0; i < n; i++) {
        const kin_draft_query *w = &queries[i];
        slot *s = find(d, w->sequence);
        if (!s || w->most <= 0 || s->first + s->n_states != w->n - 1 || s->n_states == 0) continue;
        if (s->n_states > d->n_batch - d->n - (n - 1 - i)) continue; // so that each of the others has a row
        const int n_before = d->n;
        if (add_known(d, s, w->tokens, w->n, err) != 0) return KIN_FAIL;
        if (d->n == n_before) continue;
        sequences[n_sequences] = (writing){.w = w, .s = s, .last = -1, .chance = 1};
        want_result(d, &sequences[n_sequences++]);
    }
    return n_sequences;
}

// Computes the next token of each sequence from the pass's results.
static int choose(kin_mtp_drafter *d, kin_head *head, writing *sequences, int n, kin_err *err) {
    const int rc = d->block.has_output ? kin_shard_project(d->shard, d->n_out, d->y, d->logits, err)
                                       : kin_head_project(head, d->n_out, d->y, d->logits, err);
    for (int i = 0; i < n && rc == 0; i++)
        sequences[i].choice =
            kin_draft_choose(d->logits + (size_t)sequences[i].row * (size_t)d->block.view.hp.n_vocab, d->n_vocab);
    return rc;
}

// Adds the next token to the draft, if it is worth its time, and the second choice beside it, if that is worth a row. False: the
// draft is complete, or a further token would not be worth its pass.
static bool draft_token(writing *t, const kin_draft_limits *l) {
    kin_draft *d = t->w->out;
    const int most = l->most < t->w->most ? l->most : t->w->most, parent = t->last;
    const kin_draft_choice *c = &t->choice;
    const double before = t->chance;
    t->chance *= l->chances[c->grade];
    if (t->chance < l->least[t->n]) return false;
    if (t->n++ == 0) *d = (kin_draft){.kind = KIN_DRAFT_MTP};
    t->last = d->n;
    kin_draft_add(d, parent, c->token, c->grade);
    const double chance = (before - t->chance) * l->branches[c->second_grade];
    if (d->n < most && c->second >= 0 && chance > 0 && chance >= l->least_of_row[d->n])
        kin_draft_add(d, parent, c->second, c->second_grade);
    return d->n < most && t->chance * l->mean_chance >= l->least[t->n];
}

// Adds the token of each sequence that goes on to the next pass, with the state that made it. Returns their number, or KIN_FAIL.
static int add_drafted(kin_mtp_drafter *d, writing *sequences, int n, kin_err *err) {
    int n_left = 0;
    for (int i = 0; i < n; i++) {
        writing t = sequences[i];
        if (!make_room(d, t.s, 1)) continue;
        if (add_row(d, t.s, t.choice.token, d->y + (size_t)t.row * width(d), err) != 0) return KIN_FAIL;
        want_result(d, &t);
        sequences[n_left++] = t;
    }
    return n_left;
}

static int run_timed(kin_mtp_drafter *d, kin_head *head, writing *sequences, int n, bool is_first, kin_draft_spent *spent,
                     kin_err *err) {
    const kin_time begun = kin_clock_now();
    if (run(d, err) != 0 || choose(d, head, sequences, n, err) != 0) return KIN_FAIL;
    const double took_s = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    const bool is_usual = d->n <= FEW_STATES * n; // states that waited long do not count
    spent->n_passes++;
    spent->n_tokens += d->n;
    d->n = d->n_out = 0;
    if (is_first && is_usual) {
        spent->first.took_s = took_s;
        spent->first.n = 1;
        spent->first.n_sequences = n;
    } else if (!is_first) {
        spent->further.took_s += took_s;
        spent->further.n++;
        spent->further.n_sequences += n;
    }
    return 0;
}

static int write_drafts(kin_mtp_drafter *d, kin_head *head, const kin_draft_query *queries, int n, const kin_draft_limits *l,
                        kin_draft_spent *spent, kin_err *err) {
    writing sequences[N_SLOTS];
    d->n = d->n_out = 0;
    int n_sequences = add_last(d, queries, n, sequences, err);
    for (bool is_first = true; n_sequences > 0; is_first = false) {
        int n_left = 0;
        if (run_timed(d, head, sequences, n_sequences, is_first, spent, err) != 0) return KIN_FAIL;
        for (int i = 0; i < n_sequences; i++)
            if (draft_token(&sequences[i], l)) sequences[n_left++] = sequences[i];
        n_sequences = add_drafted(d, sequences, n_left, err);
    }
    return n_sequences < 0 ? KIN_FAIL : 0;
}

kin_draft_spent kin_mtp_drafter_propose(kin_mtp_drafter *d, kin_head *head, const kin_draft_query *queries, int n,
                                        const kin_draft_limits *l) {
    kin_draft_spent spent = {0};
    const kin_time begun = kin_clock_now();
    kin_err err = {""};
    kin_assert(n <= N_SLOTS && l->most <= KIN_DRAFT_MAX);
    if (d->failed) return spent;
    d->n_calls++;
    if (write_drafts(d, head, queries, n, l, &spent, &err) != 0) give_up(d, &err);
    spent.all_s = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    return spent;
}
