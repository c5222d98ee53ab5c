#include "pipeline/mtp_drafter.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/shard_memory.h"
#include "model/draft_block.h"
#include "model/embed.h"
#include "model/streams.h"

enum {
    N_SLOTS = KIN_DRAFT_MODEL_MAX_SEQUENCES,
    ENDED_SLOTS = 4,   // beside the running sequences: their next turns begin there
    LEAST_PREFIX = 8,  // entries that an ended sequence must have in common with a new one
    IDLE_CALLS = 4096, // after which a sequence that brought no states may lose its entries
    FEW_STATES = 8,    // of each sequence, as after a step whose draft was right
    CACHE_SEED = 0x4d54,
};

// A block's cache of a sequence.
typedef struct lane {
    int n;         // entries of known tokens
    int n_cached;  // entries in the cache: these n, and drafted tokens after them
    int n_lost;    // entries that the first block has before the first waiting state, and this one has not
    float *states; // f32 [n_states, width] as the block takes them, of tokens that are not in an entry yet
    int n_states;
} lane;

// A sequence of the KV caches.
typedef struct slot {
    uint64_t sequence;
    bool lives;           // the sequence has not ended
    uint64_t used;        // the last call that used it
    int32_t *tokens, *at; // [lanes[0].n] of cap: the token of each entry of the first block, and its position in the text
    int cap;
    int first; // position of the first block's first waiting state
    lane lanes[KIN_DRAFT_BLOCKS];
} slot;

struct kin_mtp_drafter {
    kin_draft_blocks blocks;
    struct {
        kin_shard *shard;
        kin_kv_op ops[N_SLOTS]; // [n_ops] cuts for the next pass, at most one of each sequence
        int n_ops;
    } of[KIN_DRAFT_BLOCKS];
    const kin_kernels *kernels;
    int n_cells, n_batch, n_vocab, n_slots;
    slot slots[N_SLOTS];
    uint64_t n_calls;
    int32_t *seq, *pos, *out;       // [n_batch] of the pass being built
    float *x, *inputs, *y, *normed; // f32 [n_batch, n_embd] its states, embeddings, and results
    int n, n_out;
    float *drafted; // f32 [N_SLOTS, KIN_DRAFT_BLOCKS, width] states of drafted tokens, for the next of several blocks
    float *logits;  // f32 [N_SLOTS, n_vocab of the model]
    bool failed;
};

// ---- opening

static const kin_hparams *shape(const kin_mtp_drafter *d) {
    return &d->blocks.at[0].view.hp;
}

// The numbers of a state.
static size_t width(const kin_mtp_drafter *d) {
    return (size_t)kin_hparams_stream_width(shape(d));
}

// Returns how many states of a sequence may wait for a block.
static int most_states(const kin_mtp_drafter *d) {
    return d->n_batch + (d->blocks.n > 1 ? 2 * FEW_STATES + KIN_DRAFT_BLOCKS : 0);
}

// Sets the sizes that follow from the options.
static void set_sizes(kin_mtp_drafter *d, const kin_mtp_drafter_options *o) {
    const int n_sequences = o->n_sequences < N_SLOTS ? o->n_sequences : N_SLOTS;
    d->n_slots = n_sequences + ENDED_SLOTS < N_SLOTS ? n_sequences + ENDED_SLOTS : N_SLOTS;
    d->n_cells = o->n_ctx + (n_sequences > 0 ? n_sequences : 1) * KIN_KV_CELLS; // each sequence may end within a block
    d->n_batch = o->n_batch > N_SLOTS ? o->n_batch : N_SLOTS;
    d->n_vocab = o->n_vocab < o->model->hp.n_vocab ? o->n_vocab : o->model->hp.n_vocab;
}

static kin_shard_options shard_options(const kin_mtp_drafter *d, const kin_mtp_drafter_options *o, int i) {
    kin_shard_options so = kin_shard_options_defaults(&d->blocks.at[i].view);
    so.n_ctx = d->n_cells;
    so.n_batch = d->n_batch;
    so.kv_type = o->kv_type;
    so.mode = KIN_STREAM_MMAP; // its weights are read in every pass
    so.ggml_kernels = !o->devices->cpu.kernels;
    so.output = d->blocks.at[i].has_output;
    so.stream_ends = d->blocks.at[i].has_ends;
    so.cache_dir = o->cache_dir;
    so.cache_cap = o->cache_cap;
    so.progress = o->progress;
    return so;
}

// Returns the bytes of states, logits, and the arrays of passes.
static uint64_t array_bytes(const kin_mtp_drafter *d) {
    const uint64_t n_states = (uint64_t)d->n_slots * (uint64_t)d->blocks.n * (uint64_t)most_states(d);
    const uint64_t n_drafted = d->blocks.n > 1 ? N_SLOTS * KIN_DRAFT_BLOCKS : 0, n_logits = N_SLOTS * (uint64_t)shape(d)->n_vocab;
    return ((n_states + n_drafted + 4 * (uint64_t)d->n_batch) * width(d) + n_logits) * sizeof(float);
}

int kin_mtp_drafter_needs(const kin_mtp_drafter_options *o, uint64_t *bytes, kin_err *err) {
    kin_mtp_drafter d = {0};
    if (kin_draft_blocks_open(&d.blocks, o->model, o->path, err) != 0) return KIN_FAIL;
    set_sizes(&d, o);
    *bytes = array_bytes(&d) + kin_draft_blocks_bytes(&d.blocks);
    for (int i = 0; i < d.blocks.n; i++) {
        const kin_model *view = &d.blocks.at[i].view;
        const kin_shard_options so = shard_options(&d, o, i);
        *bytes += kin_shard_fixed_bytes(view, &so) - kin_shard_overhead_bytes(); // the program is there already
        *bytes -= kin_model_stream_end_bytes(view);                              // counted among the blocks' weights
    }
    kin_draft_blocks_close(&d.blocks);
    return 0;
}

static int open_shard(kin_mtp_drafter *d, const kin_mtp_drafter_options *o, int i, kin_err *err) {
    const kin_model *view = &d->blocks.at[i].view;
    kin_shard_options so = shard_options(d, o, i);
    kin_devices devices = *o->devices;
    uint64_t identity[2] = {0, (uint64_t)i};
    memset(&devices.gpu, 0, sizeof devices.gpu);
    if (so.cache_dir && kin_weights_model_identity(view, &identity[0], err) != 0) return KIN_FAIL;
    so.identity =
        kin_hash64(identity, i > 0 ? sizeof identity : sizeof identity[0], CACHE_SEED); // not the model's own cache file
    return kin_shard_open(&d->of[i].shard, view, &devices, &so, err);
}

static int open_shards(kin_mtp_drafter *d, const kin_mtp_drafter_options *o, kin_err *err) {
    for (int i = 0; i < d->blocks.n; i++)
        if (open_shard(d, o, i, err) != 0) return kin_err_prefix(err, "the block for multi-token prediction");
    return 0;
}

static int open_arrays(kin_mtp_drafter *d, kin_err *err) {
    const size_t n_batch = (size_t)d->n_batch;
    int32_t **ints[] = {&d->seq, &d->pos, &d->out};
    float **floats[] = {&d->x, &d->inputs, &d->y, &d->normed};
    bool ok = true;
    for (int i = 0; i < 3; i++) ok = (*ints[i] = malloc(n_batch * sizeof **ints[i])) && ok;
    for (int i = 0; i < 4; i++) ok = (*floats[i] = malloc(n_batch * width(d) * sizeof **floats[i])) && ok;
    d->logits = malloc(N_SLOTS * (size_t)shape(d)->n_vocab * sizeof *d->logits);
    d->drafted = d->blocks.n > 1 ? malloc(N_SLOTS * KIN_DRAFT_BLOCKS * width(d) * sizeof *d->drafted) : NULL;
    if (d->blocks.n > 1 && !d->drafted) ok = false;
    return ok && d->logits ? 0 : kin_err_set(err, "out of memory");
}

int kin_mtp_drafter_open(kin_mtp_drafter **out, const kin_mtp_drafter_options *o, kin_err *err) {
    kin_mtp_drafter *d = *out = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "out of memory");
    set_sizes(d, o);
    d->kernels = o->devices->cpu.kernels ? o->devices->cpu.kernels : kin_kernels_choose(err);
    if (d->kernels && kin_draft_blocks_open(&d->blocks, o->model, o->path, err) == 0 && open_arrays(d, err) == 0 &&
        open_shards(d, o, err) == 0)
        return 0;
    kin_mtp_drafter_close(d);
    *out = NULL;
    return KIN_FAIL;
}

void kin_mtp_drafter_close(kin_mtp_drafter *d) {
    if (!d) return;
    for (int i = 0; i < KIN_DRAFT_BLOCKS; i++) kin_shard_close(d->of[i].shard);
    kin_draft_blocks_close(&d->blocks);
    for (int i = 0; i < N_SLOTS; i++) {
        free(d->slots[i].tokens);
        free(d->slots[i].at);
        for (int k = 0; k < KIN_DRAFT_BLOCKS; k++) free(d->slots[i].lanes[k].states);
    }
    free(d->seq);
    free(d->pos);
    free(d->out);
    free(d->x);
    free(d->inputs);
    free(d->y);
    free(d->normed);
    free(d->drafted);
    free(d->logits);
    free(d);
}

uint64_t kin_mtp_drafter_bytes(const kin_mtp_drafter *d) {
    uint64_t sum = array_bytes(d);
    for (int i = 0; i < d->blocks.n; i++) {
        const kin_shard_stats st = kin_shard_get_stats(d->of[i].shard);
        sum += st.kv_bytes + st.compute_bytes + st.weights.mapped_bytes + st.weights.cached_bytes + st.weights.packed_bytes;
    }
    return sum;
}

size_t kin_mtp_drafter_width(const kin_mtp_drafter *d) {
    return (size_t)d->blocks.at[0].n_streams * (size_t)shape(d)->n_embd;
}

static void give_up(kin_mtp_drafter *d, const kin_err *err) {
    d->failed = true;
    kin_log(KIN_LOG_WARN, "drafts by multi-token prediction are disabled: %s", err->text);
}

// ---- sequences

static int blocks_of(int n) {
    return (n + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

// Removes what the cache of block k has after the sequence's first n entries.
static void cut_cache(kin_mtp_drafter *d, int k, slot *s, int n) {
    const int32_t seq = (int32_t)(s - d->slots);
    kin_kv_op *ops = d->of[k].ops;
    if (s->lanes[k].n_cached <= n) return;
    s->lanes[k].n_cached = n;
    for (int i = 0; i < d->of[k].n_ops; i++) {
        if (ops[i].seq != seq) continue;
        if (n < ops[i].n) ops[i].n = n;
        return;
    }
    ops[d->of[k].n_ops++] = (kin_kv_op){seq, seq, n};
}

// Removes what the caches have after the sequence's first n entries. Further blocks lose what depends on later tokens: an entry
// of block k on the k tokens after it.
static void cut(kin_mtp_drafter *d, slot *s, int n) {
    for (int k = 0; k < d->blocks.n; k++) {
        lane *l = &s->lanes[k];
        const int kept = k == 0 ? n : n - k - l->n_lost;
        if (l->n > kept) l->n = kept > 0 ? kept : 0;
        cut_cache(d, k, s, l->n);
        if (k == 0) continue;
        l->n_states = 0;
        l->n_lost = s->lanes[0].n - l->n;
    }
}

static slot *find(kin_mtp_drafter *d, uint64_t sequence) {
    for (int i = 0; i < d->n_slots; i++)
        if (d->slots[i].lives && d->slots[i].sequence == sequence) return &d->slots[i];
    return NULL;
}

// Returns how many leading entries belong to the text's tokens before position `pos`.
static int count_common(const slot *s, const kin_mtp_states *of) {
    int n = 0;
    while (n < s->lanes[0].n && s->at[n] <= of->pos && s->at[n] < of->n_tokens && s->tokens[n] == of->tokens[s->at[n]]) n++;
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
    s->lanes[0].n_states = 0;
    s->first = of->pos;
    return s;
}

// Makes room for n more entries of the sequence: ended sequences leave the cache, the least recently used first. If that does not
// suffice the sequence loses its own entries. False: the others leave no room. Further blocks have no more entries than the
// first.
static bool make_room(kin_mtp_drafter *d, slot *mine, int n) {
    for (;;) {
        slot *oldest = NULL;
        int n_blocks = blocks_of(mine->lanes[0].n_cached + n);
        for (int i = 0; i < d->n_slots; i++) {
            slot *s = &d->slots[i];
            if (s == mine) continue;
            n_blocks += blocks_of(s->lanes[0].n_cached);
            if (is_free(d, s) && s->lanes[0].n_cached > 0 && (!oldest || s->used < oldest->used)) oldest = s;
        }
        if (n_blocks <= blocks_of(d->n_cells)) return true;
        if (!oldest && mine->lanes[0].n_cached == 0) return false;
        cut(d, oldest ? oldest : mine, 0);
    }
}

static bool reserve(kin_mtp_drafter *d, slot *s, int n) {
    bool ok = true;
    for (int k = 0; k < d->blocks.n; k++) {
        lane *l = &s->lanes[k];
        if (!l->states) l->states = malloc((size_t)most_states(d) * width(d) * sizeof *l->states);
        ok = ok && l->states;
    }
    if (n <= s->cap) return ok;
    int32_t *tokens = realloc(s->tokens, 2 * (size_t)n * sizeof *tokens);
    if (tokens) s->tokens = tokens;
    int32_t *at = realloc(s->at, 2 * (size_t)n * sizeof *at);
    if (at) s->at = at;
    if (tokens && at) s->cap = 2 * n;
    return ok && tokens && at;
}

void kin_mtp_drafter_end(kin_mtp_drafter *d, uint64_t sequence) {
    slot *s = find(d, sequence);
    if (s) s->lives = false;
}

// ---- passes

// Adds an entry of block k to the pass: a token, and the state before it // f32 [width].
static int add_row(kin_mtp_drafter *d, int k, slot *s, int32_t token, const float *state, kin_err *err) {
    const size_t at = (size_t)d->n * width(d);
    if (kin_embed(&d->blocks.at[k].embeds, &token, 1, d->inputs + at, err) != 0) return KIN_FAIL;
    memcpy(d->x + at, state, width(d) * sizeof *state);
    d->seq[d->n] = (int32_t)(s - d->slots);
    d->pos[d->n++] = s->lanes[k].n_cached++;
    return 0;
}

// norm NULL: copies.
static void normalize(const kin_mtp_drafter *d, const float *norm, const float *x, float *y) {
    if (norm)
        d->kernels->rms_norm((int64_t)width(d), x, norm, shape(d)->rms_eps, y);
    else
        memmove(y, x, width(d) * sizeof *y);
}

// The state that row i of a pass's results is for the next one // f32 [width].
static const float *state_of(const kin_mtp_drafter *d, int i) {
    return (d->blocks.at[0].in_norm ? d->normed : d->y) + (size_t)i * width(d);
}

// Runs the pass that was built. y // f32 [n_out, width]: the states that it makes; normed // f32 [n_out, n_embd]: the same for
// the output, unless there are several streams. Without wanted ones it only fills the cache.
static int run(kin_mtp_drafter *d, int k, kin_err *err) {
    const int32_t last = d->n - 1;
    kin_shard *shard = d->of[k].shard;
    kin_batch batch = {.n_tokens = d->n,
                       .pos = d->pos,
                       .seq = d->seq,
                       .out = d->n_out > 0 ? d->out : &last,
                       .n_out = d->n_out > 0 ? d->n_out : 1,
                       .inputs = d->inputs,
                       .no_output = true,
                       .ops = d->of[k].ops,
                       .n_ops = d->of[k].n_ops};
    const int step = kin_shard_begin(shard, &batch, err);
    if (step < 0) return KIN_FAIL;
    d->of[k].n_ops = 0;
    const int rc = kin_shard_run(shard, step, 0, d->x, d->y, err);
    kin_shard_end(shard, step, true);
    for (size_t i = 0; i < (size_t)d->n_out && rc == 0 && shape(d)->n_streams == 1; i++) {
        float *y = d->y + i * width(d), *to = d->normed + i * width(d);
        if (d->blocks.at[k].centers_out) d->kernels->center((int64_t)width(d), y, to);
        normalize(d, d->blocks.at[k].out_norm, d->blocks.at[k].centers_out ? to : y, to);
    }
    return rc;
}

// Removes the first n of the states that wait for block k.
static void drop_states(const kin_mtp_drafter *d, int k, slot *s, int n) {
    lane *l = &s->lanes[k];
    l->n_states -= n;
    if (k == 0) s->first += n;
    memmove(l->states, l->states + (size_t)n * width(d), (size_t)l->n_states * width(d) * sizeof *l->states);
}

// Returns the position of the token that belongs to the i-th of the states that wait for block k.
static int position_of(const slot *s, int k, int i) {
    const lane *l = &s->lanes[k];
    return k == 0 ? s->first + i + 1 : s->at[l->n + l->n_lost + i] + k;
}

// Returns how many of the states that wait for block k have a known token.
static int count_known(const slot *s, int k, int n_tokens) {
    int n = 0;
    while (n < s->lanes[k].n_states && position_of(s, k, n) < n_tokens) n++;
    return n;
}

// Adds states whose token is known to a pass of block k, as many as it has room for; without room in the cache they are dropped.
// Returns how many entries were added, or KIN_FAIL.
static int add_known(kin_mtp_drafter *d, int k, slot *s, const int32_t *tokens, int n_tokens, kin_err *err) {
    lane *l = &s->lanes[k];
    int most = count_known(s, k, n_tokens);
    if (most > d->n_batch - d->n) most = d->n_batch - d->n;
    if (most <= 0) return 0;
    cut_cache(d, k, s, l->n);
    const bool fits = k > 0 || make_room(d, s, most);
    if (!reserve(d, s, s->lanes[0].n + most)) return kin_err_set(err, "out of memory");
    for (int i = 0; i < most && fits; i++) {
        const int at = k == 0 ? s->first + i + 1 : s->at[l->n + l->n_lost] + k;
        if (add_row(d, k, s, tokens[at], l->states + (size_t)i * width(d), err) != 0) return KIN_FAIL;
        if (k == 0) s->tokens[l->n] = tokens[at], s->at[l->n] = at;
        l->n++;
    }
    drop_states(d, k, s, most);
    return fits ? most : 0;
}

// ---- states

// Hands what block k made of its last n entries of known tokens, rows of the pass from `row` on, to the block after it.
static void pass_on(kin_mtp_drafter *d, int k, slot *s, int row, int n) {
    const int first = s->lanes[k].n - n + s->lanes[k].n_lost; // of these entries, in the first block
    lane *l = &s->lanes[k + 1];
    if (l->n_states == 0) l->n_lost = first - l->n;
    for (int i = 0; i < n && l->n_states < most_states(d); i++)
        memcpy(l->states + (size_t)l->n_states++ * width(d), state_of(d, row + i), width(d) * sizeof *l->states);
}

static void want_all(kin_mtp_drafter *d) {
    for (d->n_out = 0; d->n_out < d->n; d->n_out++) d->out[d->n_out] = d->n_out;
}

// Reads all states whose next token is known, by block k and by those after it.
static int read_states(kin_mtp_drafter *d, int k, slot *s, const int32_t *tokens, int n_tokens, kin_err *err) {
    const bool is_last = k == d->blocks.n - 1;
    for (;;) {
        d->n = d->n_out = 0;
        const int n = add_known(d, k, s, tokens, n_tokens, err);
        if (n <= 0) return n;
        if (!is_last) want_all(d);
        if (run(d, k, err) != 0) return KIN_FAIL;
        if (is_last) continue;
        pass_on(d, k, s, 0, n);
        if (read_states(d, k + 1, s, tokens, n_tokens, err) != 0) return KIN_FAIL;
    }
}

// Makes of a state of the model what the first block takes. row // f32 [kin_mtp_drafter_width], state // f32 [width]
static void take_state(const kin_mtp_drafter *d, const float *row, float *state) {
    const kin_draft_block *b = &d->blocks.at[0];
    if (b->n_streams > shape(d)->n_streams) {
        kin_streams_average(d->kernels, b->n_streams, shape(d)->n_embd, row, state);
        row = state;
    }
    normalize(d, b->in_norm, row, state);
}

// If the new states do not continue the waiting ones: drops all entries after their first position and those of other
// tokens. Without the states in between, entries continue there.
static void go_to(kin_mtp_drafter *d, slot *s, const kin_mtp_states *of) {
    lane *l = &s->lanes[0];
    const int next = s->first + l->n_states;
    if (of->pos == next) return;
    cut(d, s, count_common(s, of));
    l->n_states = of->pos >= s->first && of->pos < next ? of->pos - s->first : 0;
    s->first = of->pos - l->n_states;
}

static int add_states(kin_mtp_drafter *d, slot *s, const kin_mtp_states *of, kin_err *err) {
    lane *l = &s->lanes[0];
    if (!reserve(d, s, 1)) return kin_err_set(err, "out of memory");
    go_to(d, s, of);
    for (int i = 0; i < of->n; i++) {
        if (l->n_states == d->n_batch && read_states(d, 0, s, of->tokens, of->n_tokens, err) != 0) return KIN_FAIL;
        take_state(d, of->rows + (size_t)i * kin_mtp_drafter_width(d), l->states + (size_t)l->n_states++ * width(d));
    }
    return of->n > 1 ? read_states(d, 0, s, of->tokens, of->n_tokens, err) : 0;
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
    // With several blocks:
    int first_row, n_known, n_drafted; // of the pass: its first row, how many rows have known tokens, and drafted ones
    float *drafted;                    // f32 [n_drafted, width] what the pass before made of these
    int32_t tokens[KIN_DRAFT_BLOCKS];  // [n] drafted
} writing;

static void want_result(kin_mtp_drafter *d, writing *t) {
    d->out[d->n_out] = d->n - 1;
    t->row = d->n_out++;
}

// Reads the states of a sequence that had no draft for long. Afterwards few of them wait for each block.
static int catch_up(kin_mtp_drafter *d, slot *s, const kin_draft_query *w, kin_err *err) {
    bool waits = false;
    for (int k = 0; k < d->blocks.n; k++) waits = waits || s->lanes[k].n_states > FEW_STATES;
    if (d->blocks.n == 1 || !waits) return 0;
    for (int k = d->blocks.n - 1; k >= 0; k--) // the first block's last state must stay for the draft
        if (read_states(d, k, s, w->tokens, k > 0 ? w->n : w->n - 1, err) != 0) return KIN_FAIL;
    return 0;
}

// Adds the states of each sequence's last tokens to the pass. Returns the number of sequences, without those that have no states,
// or KIN_FAIL.
static int add_last(kin_mtp_drafter *d, const kin_draft_query *queries, int n, writing *sequences, kin_err *err) {
    int n_sequences = 0;
    for (int i = 0; i < n; i++) {
        slot *s = find(d, queries[i].sequence);
        if (s && catch_up(d, s, &queries[i], err) != 0) return KIN_FAIL;
    }
    d->n = d->n_out = 0;
    for (int i = 0; i < n; i++) {
        const kin_draft_query *w = &queries[i];
        slot *s = find(d, w->sequence);
        const lane *l = s ? &s->lanes[0] : NULL;
        if (!s || w->most <= 0 || s->first + l->n_states != w->n - 1 || l->n_states == 0) continue;
        if (l->n_states > d->n_batch - d->n - (n - 1 - i)) continue; // so that each of the others has a row
        const int first_row = d->n, n_known = add_known(d, 0, s, w->tokens, w->n, err);
        if (n_known < 0) return KIN_FAIL;
        if (n_known == 0) continue;
        sequences[n_sequences] = (writing){.w = w, .s = s, .last = -1, .chance = 1, .first_row = first_row, .n_known = n_known};
        if (d->drafted) sequences[n_sequences].drafted = d->drafted + (size_t)n_sequences * KIN_DRAFT_BLOCKS * width(d);
        want_result(d, &sequences[n_sequences++]);
    }
    return n_sequences;
}

// Ends the streams of the sequences' results: by the block's own end, or by the model's. A block's own norm then differs from the
// model's by a factor of each number.
static int end_streams(kin_mtp_drafter *d, int k, kin_head *head, const writing *sequences, int n, kin_err *err) {
    const float *own = d->blocks.at[k].out_norm, *model = d->blocks.at[k].model_norm;
    const size_t n_embd = (size_t)shape(d)->n_embd;
    for (size_t i = 0; i < (size_t)n; i++)
        memcpy(d->x + i * width(d), d->y + (size_t)sequences[i].row * width(d), width(d) * sizeof(float));
    if (d->blocks.at[k].has_ends) return kin_shard_hidden(d->of[k].shard, n, d->x, d->normed, err);
    if (kin_head_end(head, n, d->x, d->normed, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < (size_t)n * n_embd && own != model; i++)
        d->normed[i] *= model[i % n_embd] != 0 ? own[i % n_embd] / model[i % n_embd] : 0;
    return 0;
}

// Computes the next token of each sequence from the pass's results, which lie in the order of the sequences.
static int choose(kin_mtp_drafter *d, int k, kin_head *head, writing *sequences, int n, kin_err *err) {
    const bool has_streams = shape(d)->n_streams > 1;
    for (int i = 0; i < n && !has_streams; i++)
        if (sequences[i].row != i)
            memmove(d->normed + (size_t)i * width(d), d->normed + (size_t)sequences[i].row * width(d), width(d) * sizeof(float));
    if (has_streams && end_streams(d, k, head, sequences, n, err) != 0) return KIN_FAIL;
    const int rc = d->blocks.at[k].has_output ? kin_shard_project(d->of[k].shard, n, d->normed, d->logits, err)
                                              : kin_head_project(head, n, d->normed, d->logits, err);
    for (int i = 0; i < n && rc == 0; i++)
        sequences[i].choice = kin_draft_choose(d->logits + (size_t)i * (size_t)shape(d)->n_vocab, d->n_vocab);
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
    if (t->n <= KIN_DRAFT_BLOCKS) t->tokens[t->n - 1] = c->token;
    kin_draft_add(d, parent, c->token, c->grade);
    const double chance = (before - t->chance) * l->branches[c->second_grade];
    if (d->n < most && c->second >= 0 && chance > 0 && chance >= l->least_of_row[d->n])
        kin_draft_add(d, parent, c->second, c->second_grade);
    return d->n < most && t->chance * l->mean_chance >= l->least[t->n];
}

// Adds the token of each sequence that goes on to the next pass of the only block, with the state that made it. Returns their
// number, or KIN_FAIL.
static int add_drafted(kin_mtp_drafter *d, writing *sequences, int n, kin_err *err) {
    int n_left = 0;
    for (int i = 0; i < n; i++) {
        writing t = sequences[i];
        if (!make_room(d, t.s, 1)) continue;
        if (add_row(d, 0, t.s, t.choice.token, state_of(d, t.row), err) != 0) return KIN_FAIL;
        want_result(d, &t);
        sequences[n_left++] = t;
    }
    return n_left;
}

// After a pass of block k: hands the states of known tokens to the next block, and keeps those of drafted ones for its pass.
static void keep_states(kin_mtp_drafter *d, int k, writing *sequences, int n) {
    for (int i = 0; i < n; i++) {
        writing *t = &sequences[i];
        pass_on(d, k, t->s, t->first_row, t->n_known);
        for (int q = 0; q < t->n_drafted; q++)
            memcpy(t->drafted + (size_t)q * width(d), state_of(d, t->first_row + t->n_known + q), width(d) * sizeof(float));
    }
}

// Adds to a pass of block k, which is not the first, what it needs of a sequence: states of known tokens that wait for it, the
// last one of these before the first drafted token, and those of drafted tokens. Returns the number of rows, 0 if they do not fit
// into `most`, or KIN_FAIL.
static int add_to_next(kin_mtp_drafter *d, int k, writing *t, int most, kin_err *err) {
    lane *l = &t->s->lanes[k];
    const int n_known = count_known(t->s, k, t->w->n), n_before = l->n_states - n_known, n = n_before + t->n_drafted;
    if (n_before > 1 || n > t->n || n == 0 || n_known + n > most) return 0;
    t->first_row = d->n;
    t->n_known = n_known;
    cut_cache(d, k, t->s, l->n);
    if (add_known(d, k, t->s, t->w->tokens, t->w->n, err) < 0) return KIN_FAIL;
    for (int i = 0; i < n; i++) {
        const float *state = i < n_before ? l->states : t->drafted + (size_t)(i - n_before) * width(d);
        if (add_row(d, k, t->s, t->tokens[t->n - n + i], state, err) != 0) return KIN_FAIL;
    }
    t->n_drafted = n;
    return n_known + n;
}

// Builds a pass of block k for the sequences that go on. Returns their number, or KIN_FAIL.
static int add_next(kin_mtp_drafter *d, int k, writing *sequences, int n, kin_err *err) {
    int n_left = 0;
    for (int i = 0; i < n; i++) {
        writing t = sequences[i];
        const int n_rows = add_to_next(d, k, &t, d->n_batch - d->n, err);
        if (n_rows < 0) return KIN_FAIL;
        if (n_rows == 0) continue;
        want_result(d, &t);
        sequences[n_left++] = t;
    }
    return n_left;
}

// Runs a pass of block k. If another block follows, all its results are wanted.
static int run_timed(kin_mtp_drafter *d, int k, kin_head *head, writing *sequences, int n, bool is_first, kin_draft_spent *spent,
                     kin_err *err) {
    const bool keeps = k + 1 < d->blocks.n;
    const kin_time begun = kin_clock_now();
    for (int i = 0; i < n && keeps; i++) sequences[i].row = d->out[sequences[i].row];
    if (keeps) want_all(d);
    if (run(d, k, err) != 0) return KIN_FAIL;
    if (keeps) keep_states(d, k, sequences, n);
    if (choose(d, k, head, sequences, n, err) != 0) return KIN_FAIL;
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

// The j-th token of a draft is made by the j-th block, or by the only one.
static int write_drafts(kin_mtp_drafter *d, kin_head *head, const kin_draft_query *queries, int n, const kin_draft_limits *l,
                        kin_draft_spent *spent, kin_err *err) {
    const int n_blocks = d->blocks.n;
    writing sequences[N_SLOTS];
    int n_sequences = add_last(d, queries, n, sequences, err);
    for (int j = 0; n_sequences > 0; j++) {
        int n_left = 0;
        if (run_timed(d, n_blocks > 1 ? j : 0, head, sequences, n_sequences, j == 0, spent, err) != 0) return KIN_FAIL;
        for (int i = 0; i < n_sequences; i++)
            if (draft_token(&sequences[i], l)) sequences[n_left++] = sequences[i];
        if (n_blocks > 1 && j + 1 == n_blocks) return 0;
        n_sequences = n_blocks > 1 ? add_next(d, j + 1, sequences, n_left, err) : add_drafted(d, sequences, n_left, err);
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
