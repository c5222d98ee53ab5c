#include "pipeline/draft_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/vocab_load.h"
#include "pipeline/loopback.h"

enum {
    FEW_TOKENS = 4,   // new tokens of each sequence, as after a step whose draft was right
    FIRST_PIECE = 32, // tokens of a prompt before the time per token is measured
    IDLE_CALLS = 128, // a sequence that asks for no draft in this many calls may lose its slot
    GROWTH = 1,       // free blocks required beside a new sequence's own, so that it has drafts for a while
    NOT_OWN = KIN_DRAFT_GRADES,
    NO_TOKEN = -1,
};

// The model's prediction at a position.
typedef struct choice {
    uint8_t grade;        // of the token that is there; NOT_OWN: the model did not choose it
    uint8_t second_grade; // of the second choice: its share of the probability that the first one leaves
    int32_t second;       // NO_TOKEN: none
} choice;

// A sequence of the KV cache.
typedef struct slot {
    uint64_t sequence;
    bool lives;      // the sequence has not ended
    int32_t *tokens; // [n] in the cache, of cap
    choice *choices; // [n] one for each token
    int n, cap;
    bool has_next; // next and next_choice are known: the model's token after these
    int32_t next;
    choice next_choice;
    uint64_t used; // the last call that used it
    int n_most;    // most tokens that it may have in that call
} slot;

struct kin_draft_model {
    kin_model model;
    kin_shard *shard;
    kin_loopback_head loop;
    int n_ctx, n_batch, n_vocab; // n_vocab: tokens that may be drafted
    slot slots[KIN_DRAFT_MODEL_MAX_SEQUENCES];
    uint64_t n_calls;
    double token_s;                    // a prompt token's time; 0: not known
    int32_t *tokens, *seq, *pos, *out; // [n_batch] of the pass being built
    int n, n_out;
    float *logits;                    // f32 [KIN_DRAFT_MODEL_MAX_SEQUENCES, the model's n_vocab]
    const kin_draft_source *prompter; // NULL: none
    bool failed;
};

// ---- opening

static int compare_vocabs(const kin_vocab *a, const kin_vocab *b, const char *path, kin_err *err) {
    int n = kin_vocab_n_tokens(a);
    bool same = n == kin_vocab_n_tokens(b) && kin_vocab_get_kind(a) == kin_vocab_get_kind(b);
    for (int32_t id = 0; id < n && same; id++) {
        kin_str x = kin_vocab_text(a, id), y = kin_vocab_text(b, id);
        same = x.len == y.len && memcmp(x.at, y.at, x.len) == 0;
        if (!same) return kin_err_set(err, "%s cannot draft for this model: its token %d differs", path, id);
    }
    if (same) return 0;
    return kin_err_set(err, "%s cannot draft for this model: its vocabulary differs (%d tokens, but the model has %d)", path,
                       kin_vocab_n_tokens(b), n);
}

static int check_model(const kin_model *m, const char *path, const kin_vocab *vocab, kin_err *err) {
    kin_vocab *own = NULL;
    if (kin_hparams_has_states(&m->hp))
        return kin_err_set(err, "%s cannot write drafts: the states of its recurrent layers cannot go back", path);
    if (!vocab) return 0;
    if (kin_vocab_load(&own, m->gguf, err) != 0) return kin_err_prefix(err, "%s", path);
    int rc = compare_vocabs(vocab, own, path, err);
    kin_vocab_free(own);
    return rc;
}

int kin_draft_model_check(const char *path, const kin_vocab *vocab, kin_err *err) {
    kin_model m;
    if (kin_model_open(&m, path, err) != 0) return KIN_FAIL;
    int rc = check_model(&m, path, vocab, err);
    kin_model_close(&m);
    return rc;
}

static int open_model(kin_draft_model *m, const kin_draft_model_options *o, kin_err *err) {
    if (kin_model_open(&m->model, o->path, err) != 0) return KIN_FAIL;
    m->n_vocab = kin_vocab_n_tokens(o->vocab) < m->model.hp.n_vocab ? kin_vocab_n_tokens(o->vocab) : m->model.hp.n_vocab;
    return check_model(&m->model, o->path, o->vocab, err);
}

// Weights are read in every pass, so they are not streamed.
static int open_shard(kin_draft_model *m, const kin_draft_model_options *o, kin_err *err) {
    kin_shard_options so = kin_shard_options_defaults(&m->model);
    kin_devices devices = *o->devices;
    memset(&devices.gpu, 0, sizeof devices.gpu);
    so.n_ctx = o->n_ctx;
    so.n_batch = o->n_batch;
    so.kv_type = o->kv_type;
    so.mode = KIN_STREAM_MMAP;
    so.ggml_kernels = !o->devices->cpu.kernels;
    so.cache_dir = o->cache_dir;
    so.cache_cap = o->cache_cap;
    so.progress = o->progress;
    if (kin_shard_open(&m->shard, &m->model, &devices, &so, err) != 0) return KIN_FAIL;
    return kin_loopback_head_open(&m->loop, &m->model, m->shard, o->n_batch, err);
}

static int open_arrays(kin_draft_model *m, kin_err *err) {
    int32_t **arrays[] = {&m->tokens, &m->seq, &m->pos, &m->out};
    bool ok = true;
    for (int i = 0; i < 4; i++) ok = (*arrays[i] = malloc((size_t)m->n_batch * sizeof **arrays[i])) && ok;
    m->logits = malloc((size_t)KIN_DRAFT_MODEL_MAX_SEQUENCES * (size_t)m->model.hp.n_vocab * sizeof *m->logits);
    return ok && m->logits ? 0 : kin_err_set(err, "out of memory");
}

int kin_draft_model_open(kin_draft_model **out, const kin_draft_model_options *o, kin_err *err) {
    kin_draft_model *m = *out = calloc(1, sizeof *m);
    if (!m) return kin_err_set(err, "out of memory");
    m->n_ctx = o->n_ctx;
    m->n_batch = o->n_batch;
    if (open_model(m, o, err) == 0 && open_arrays(m, err) == 0) {
        if (open_shard(m, o, err) == 0) return 0;
        kin_err_prefix(err, "the draft model %s", o->path);
    }
    kin_draft_model_close(m);
    *out = NULL;
    return KIN_FAIL;
}

void kin_draft_model_close(kin_draft_model *m) {
    if (!m) return;
    kin_loopback_head_close(&m->loop);
    kin_shard_close(m->shard);
    kin_model_close(&m->model);
    for (int i = 0; i < KIN_DRAFT_MODEL_MAX_SEQUENCES; i++) {
        free(m->slots[i].tokens);
        free(m->slots[i].choices);
    }
    free(m->tokens);
    free(m->seq);
    free(m->pos);
    free(m->out);
    free(m->logits);
    free(m);
}

uint64_t kin_draft_model_bytes(const kin_draft_model *m) {
    kin_shard_stats st = kin_shard_get_stats(m->shard);
    return st.kv_bytes + st.compute_bytes + st.weights.mapped_bytes + st.weights.cached_bytes + st.weights.packed_bytes;
}

// ---- sequences

static int blocks_of(int n) {
    return (n + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

static void truncate(kin_draft_model *m, slot *s, int n, kin_err *err) {
    int32_t seq = (int32_t)(s - m->slots);
    if (s->n == n) return;
    s->n = n;
    s->has_next = false;
    m->failed = m->failed || kin_head_change(m->loop.head, (kin_kv_op){seq, seq, n}, err) != 0;
}

static int common_prefix(const slot *s, const kin_draft_query *w) {
    int i = 0, n = s->n < w->n ? s->n : w->n;
    while (i < n && s->tokens[i] == w->tokens[i]) i++;
    return i;
}

// Returns how many tokens the slot may keep: the sequence's, and after them the model's own choices, if the next one is known.
// Otherwise the sequence's last token is read again, for its logits.
static int n_useful(const slot *s, const kin_draft_query *w) {
    int n = common_prefix(s, w);
    if (n < w->n) return n;
    while (n < s->n && s->choices[n].grade != NOT_OWN) n++;
    return n == s->n && s->has_next ? n : w->n - 1;
}

// True if another sequence may take the slot: its own has ended, or has not asked for a draft in the last calls.
static bool is_free(const kin_draft_model *m, const slot *s) {
    return !s->lives || m->n_calls - s->used > IDLE_CALLS;
}

// True if a is to be evicted before b: slots of ended sequences first, then the least recently used.
static bool is_older(const slot *a, const slot *b) {
    return a->lives != b->lives ? !a->lives : a->used < b->used;
}

static bool is_own(const slot *s, const kin_draft_query *w) {
    return s->lives && s->sequence == w->sequence;
}

// Returns the sequence's own slot, else the free slot with the longest common prefix, else the least useful free one. NULL: none
// is free.
static slot *find_slot(kin_draft_model *m, const kin_draft_query *w) {
    slot *best = NULL, *oldest = NULL;
    int n_best = 0;
    for (int i = 0; i < KIN_DRAFT_MODEL_MAX_SEQUENCES; i++) {
        slot *s = &m->slots[i];
        if (is_own(s, w)) return s;
        if (!is_free(m, s)) continue;
        int n = common_prefix(s, w);
        if (n > n_best) best = s;
        if (n > n_best) n_best = n;
        if (!oldest || is_older(s, oldest)) oldest = s;
    }
    return best ? best : oldest;
}

// Returns the blocks that the other slots have, or may need in this call. kept: counts only slots that are not free. *oldest: the
// first free slot to evict, NULL: none.
static int blocks_beside(kin_draft_model *m, const slot *mine, bool kept, slot **oldest) {
    int n_blocks = 0;
    *oldest = NULL;
    for (int i = 0; i < KIN_DRAFT_MODEL_MAX_SEQUENCES; i++) {
        slot *s = &m->slots[i];
        bool frees = is_free(m, s);
        if (s == mine || (kept && frees)) continue;
        n_blocks += blocks_of(s->used == m->n_calls ? s->n_most : s->n);
        if (frees && s->n > 0 && (!*oldest || is_older(s, *oldest))) *oldest = s;
    }
    return n_blocks;
}

// Makes room for n tokens of a sequence; evicts free slots. is_new: its tokens are still to be read. False: no room.
static bool make_room(kin_draft_model *m, const slot *mine, int n, bool is_new, kin_err *err) {
    slot *oldest;
    int n_left = blocks_of(m->n_ctx) - blocks_of(n), n_kept = blocks_beside(m, mine, true, &oldest);
    if (is_new && n_kept > 0) n_left -= GROWTH;
    if (n_kept > n_left) return false;
    while (blocks_beside(m, mine, false, &oldest) > n_left) truncate(m, oldest, 0, err);
    return true;
}

static bool reserve(slot *s, int n) {
    if (n <= s->cap) return true;
    int32_t *tokens = realloc(s->tokens, 2 * (size_t)n * sizeof *tokens);
    if (tokens) s->tokens = tokens;
    choice *choices = realloc(s->choices, 2 * (size_t)n * sizeof *choices);
    if (choices) s->choices = choices;
    if (tokens && choices) s->cap = 2 * n;
    return tokens && choices;
}

// Returns the sequence's slot, cut to what is useful for it. NULL: no room; its old contents are removed then, so that others get
// drafts.
static slot *place(kin_draft_model *m, const kin_draft_query *w, int most, kin_err *err) {
    slot *s = find_slot(m, w);
    if (!s) return NULL;
    bool has_place = is_own(s, w) && s->n > 0;
    int n_kept = n_useful(s, w), n_most = n_kept > w->n + most ? n_kept : w->n + most;
    if (!make_room(m, s, n_most, !has_place, err) || !reserve(s, n_most)) {
        if (has_place) truncate(m, s, 0, err);
        return NULL;
    }
    s->used = m->n_calls;
    s->sequence = w->sequence;
    s->lives = true;
    s->n_most = n_most;
    truncate(m, s, n_kept, err);
    return s;
}

void kin_draft_model_end(kin_draft_model *m, uint64_t sequence) {
    for (int i = 0; i < KIN_DRAFT_MODEL_MAX_SEQUENCES; i++) {
        if (m->slots[i].sequence == sequence) m->slots[i].lives = false;
    }
}

// ---- passes

// A sequence of this call that still needs tokens.
typedef struct writing {
    const kin_draft_query *w;
    slot *s;
    int row;       // row of logits; -1: none in this pass
    int n;         // tokens of its draft so far, without second choices
    int last;      // index in the draft of the last of these; -1: none
    double chance; // probability that all of these are right
} writing;

static void add_token(kin_draft_model *m, slot *s, int32_t token, choice c) {
    m->tokens[m->n] = token;
    m->seq[m->n] = (int32_t)(s - m->slots);
    m->pos[m->n++] = s->n;
    s->choices[s->n] = c;
    s->tokens[s->n++] = token;
    s->has_next = false;
}

static int want_logits(kin_draft_model *m) {
    m->out[m->n_out] = m->n - 1;
    return m->n_out++;
}

static int run_pass(kin_draft_model *m, double *took_s, kin_err *err) {
    kin_time begun = kin_clock_now();
    kin_head_step step = {.n = m->n,
                          .tokens = m->tokens,
                          .seq = m->seq,
                          .pos = m->pos,
                          .out = m->out,
                          .n_out = m->n_out,
                          .logits = m->logits,
                          .more = m->n_out == 0};
    uint64_t number;
    if (kin_head_send(m->loop.head, &step, &number, err) != 0 || kin_head_receive(m->loop.head, NULL, &number, err) != 0)
        return KIN_FAIL;
    *took_s = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    return 0;
}

void kin_draft_model_prompt(kin_draft_model *m, const kin_draft_source *source) {
    m->prompter = source;
}

// Returns the index of the prompter's k-th token after its token `at` (-1: the sequence's last one); -1: none.
static int find_prompted(const kin_draft *d, int at, int k) {
    for (int i = at + 1; i < d->n; i++) {
        if (kin_draft_parent(d, i) == at && k-- == 0) return i;
    }
    return -1;
}

// Returns the token that the prompter proposes after the slot's tokens, and its second choice in *c; `own` if it has none.
static int32_t prompted(const kin_draft_model *m, const writing *t, int32_t own, choice *c) {
    kin_draft d = {0};
    int at = -1;
    if (!m->prompter) return own;
    m->prompter->propose(m->prompter->user, t->w->tokens, t->w->n, KIN_DRAFT_MAX, &d);
    for (int i = t->w->n; i < t->s->n; i++) {
        if ((at = find_prompted(&d, at, 0)) < 0) return own;
    }
    int first = find_prompted(&d, at, 0), second = find_prompted(&d, at, 1);
    if (first < 0) return own;
    c->second = second < 0 ? NO_TOKEN : d.tokens[second];
    return d.tokens[first];
}

static void read_logits(kin_draft_model *m, writing *t) {
    slot *s = t->s;
    const float *logits = m->logits + (size_t)t->row * (size_t)m->model.hp.n_vocab;
    const kin_draft_choice c = kin_draft_choose(logits, m->n_vocab);
    s->next_choice = (choice){.grade = c.grade, .second_grade = c.second_grade, .second = c.second};
    s->next = prompted(m, t, c.token, &s->next_choice);
    s->has_next = true;
}

// Adds the next known token to the draft, if it is worth its time, and the second choice beside it, if that is worth a row.
// False: the draft is complete, or a further token would not be worth its pass.
static bool draft_token(writing *t, const kin_draft_limits *l) {
    kin_draft *d = t->w->out;
    const slot *s = t->s;
    int at = t->w->n + t->n, most = l->most < t->w->most ? l->most : t->w->most;
    const choice *c = at < s->n ? &s->choices[at] : &s->next_choice;
    double before = t->chance;
    t->chance *= l->chances[c->grade];
    if (t->chance < l->least[t->n]) return false;
    if (t->n++ == 0) *d = (kin_draft){.kind = KIN_DRAFT_MODEL};
    int parent = t->last;
    t->last = d->n;
    kin_draft_add(d, parent, at < s->n ? s->tokens[at] : s->next, c->grade);
    double chance = (before - t->chance) * l->branches[c->second_grade];
    if (d->n < most && c->second != NO_TOKEN && chance > 0 && chance >= l->least_of_row[d->n])
        kin_draft_add(d, parent, c->second, c->second_grade);
    return d->n < most && t->chance * l->mean_chance >= l->least[t->n];
}

// Adds all known tokens to the draft. False: no more are wanted, or the sequence is not read yet.
static bool add_known(writing *t, const kin_draft_limits *l) {
    bool more = t->s->n >= t->w->n;
    while (more && t->w->n + t->n < t->s->n + t->s->has_next) more = draft_token(t, l);
    return more;
}

// Adds the token after the known ones to the pass.
static void add_next(kin_draft_model *m, writing *t) {
    add_token(m, t->s, t->s->next, t->s->next_choice);
    t->row = want_logits(m);
}

// Adds new tokens of the sequences to the pass, as far as the time allows. Returns how many sequences have new ones.
static int add_new(kin_draft_model *m, writing *sequences, int n, double catch_up_s) {
    double most = m->token_s > 0 ? catch_up_s / m->token_s : catch_up_s < INFINITY ? FIRST_PIECE : m->n_batch;
    int left = most < m->n_batch ? (int)most : m->n_batch, n_sequences = 0;
    if (left < FEW_TOKENS * n) left = FEW_TOKENS * n < m->n_batch ? FEW_TOKENS * n : m->n_batch;
    for (int i = 0; i < n; i++) {
        writing *t = &sequences[i];
        int n_new = t->w->n - t->s->n, n_now = n_new < left ? n_new : left;
        t->row = -1;
        if (n_now <= 0) continue;
        for (int k = 0; k < n_now; k++) add_token(m, t->s, t->w->tokens[t->s->n], (choice){.grade = NOT_OWN});
        left -= n_now;
        n_sequences++;
        if (n_now == n_new) t->row = want_logits(m);
    }
    return n_sequences;
}

// Counts a pass for n sequences. is_first: it reads new tokens.
static void count(kin_draft_model *m, kin_draft_spent *spent, bool is_first, int n, double took_s) {
    if (m->n > FEW_TOKENS * n) {
        m->token_s = took_s / m->n;
    } else if (is_first) {
        spent->first.took_s = took_s;
        spent->first.n = 1;
        spent->first.n_sequences = n;
    } else {
        spent->further.took_s += took_s;
        spent->further.n++;
        spent->further.n_sequences += n;
    }
}

// Runs the pass that was built; n_in of the n sequences have tokens in it.
static int run_counted(kin_draft_model *m, writing *sequences, int n, bool is_first, int n_in, kin_draft_spent *spent,
                       kin_err *err) {
    double took_s;
    if (run_pass(m, &took_s, err) != 0) return KIN_FAIL;
    count(m, spent, is_first, n_in, took_s);
    spent->n_passes++;
    spent->n_tokens += m->n;
    for (int i = 0; i < n; i++) {
        if (sequences[i].row >= 0) read_logits(m, &sequences[i]);
        sequences[i].row = -1;
    }
    m->n = m->n_out = 0;
    return 0;
}

// Runs passes until no sequence needs another token.
static int write_drafts(kin_draft_model *m, writing *sequences, int n, const kin_draft_limits *l, kin_draft_spent *spent,
                        kin_err *err) {
    int n_new = add_new(m, sequences, n, l->catch_up_s);
    if (n_new > 0 && run_counted(m, sequences, n, true, n_new, spent, err) != 0) return KIN_FAIL;
    for (;;) {
        int n_left = 0;
        for (int i = 0; i < n; i++) {
            if (add_known(&sequences[i], l)) sequences[n_left++] = sequences[i];
        }
        n = n_left;
        if (n == 0) return 0;
        for (int i = 0; i < n; i++) add_next(m, &sequences[i]);
        if (run_counted(m, sequences, n, false, n, spent, err) != 0) return KIN_FAIL;
    }
}

// True if a token after the known ones may be useful, because the known ones are probably right.
static bool may_go_on(const writing *t, const kin_draft_limits *l) {
    const slot *s = t->s;
    int n_known = s->n + 1 - t->w->n;
    if (!s->has_next || n_known < 0 || n_known >= l->most || n_known >= t->w->most) return false;
    double chance = l->chances[s->next_choice.grade];
    for (int i = t->w->n; i < s->n; i++) chance *= l->chances[s->choices[i].grade];
    return chance >= l->least[n_known];
}

// Runs one pass, if there is something for it: a piece of what is still to be read, or one more token of each sequence.
static int write_ahead(kin_draft_model *m, writing *sequences, int n, const kin_draft_limits *l, kin_draft_spent *spent,
                       kin_err *err) {
    int n_new = 0, n_next = 0;
    bool reads = false;
    for (int i = 0; i < n; i++) reads = reads || sequences[i].w->n - sequences[i].s->n > FEW_TOKENS;
    bool fits = reads ? m->token_s > 0 && l->catch_up_s >= FEW_TOKENS * n * m->token_s : l->most > 0;
    if (!fits) return 0;
    n_new = add_new(m, sequences, n, l->catch_up_s);
    for (int i = 0; i < n && !reads && n_new + n_next < m->n_batch; i++) {
        if (sequences[i].row >= 0 || !may_go_on(&sequences[i], l)) continue;
        add_next(m, &sequences[i]);
        n_next++;
    }
    return n_new + n_next > 0 ? run_counted(m, sequences, n, n_new > 0, n_new + n_next, spent, err) : 0;
}

// Places the sequences for which there is room. Returns their number.
static int place_all(kin_draft_model *m, const kin_draft_query *queries, int n, int most, writing *sequences, kin_err *err) {
    int n_sequences = 0;
    kin_assert(n <= KIN_DRAFT_MODEL_MAX_SEQUENCES && most <= KIN_DRAFT_MAX);
    m->n_calls++;
    for (int i = 0; i < n; i++) {
        int n_most = most < queries[i].most ? most : queries[i].most;
        slot *s = n_most > 0 ? place(m, &queries[i], n_most, err) : NULL;
        if (s) sequences[n_sequences++] = (writing){.w = &queries[i], .s = s, .row = -1, .last = -1, .chance = 1};
    }
    return n_sequences;
}

typedef int write_function(kin_draft_model *m, writing *sequences, int n, const kin_draft_limits *l, kin_draft_spent *spent,
                           kin_err *err);

static kin_draft_spent work(kin_draft_model *m, const kin_draft_query *queries, int n, int most, const kin_draft_limits *l,
                            write_function *write) {
    writing sequences[KIN_DRAFT_MODEL_MAX_SEQUENCES];
    kin_draft_spent spent = {0};
    kin_time begun = kin_clock_now();
    kin_err err = {""};
    if (m->failed) return spent;
    int n_sequences = place_all(m, queries, n, most, sequences, &err);
    m->n = m->n_out = 0;
    if (m->failed || write(m, sequences, n_sequences, l, &spent, &err) != 0) {
        m->failed = true;
        kin_log(KIN_LOG_WARN, "the draft model is disabled: %s", err.text);
    }
    spent.all_s = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    return spent;
}

kin_draft_spent kin_draft_model_propose(kin_draft_model *m, const kin_draft_query *queries, int n, const kin_draft_limits *l) {
    return work(m, queries, n, l->most, l, write_drafts);
}

kin_draft_spent kin_draft_model_go_on(kin_draft_model *m, const kin_draft_query *queries, int n, const kin_draft_limits *l) {
    return work(m, queries, n, KIN_DRAFT_MAX, l, write_ahead);
}

int kin_draft_model_n_known(const kin_draft_model *m, const kin_draft_query *w) {
    for (int i = 0; i < KIN_DRAFT_MODEL_MAX_SEQUENCES; i++) {
        const slot *s = &m->slots[i];
        if (s->lives && s->sequence == w->sequence) return n_useful(s, w) >= w->n ? s->n + 1 - w->n : 0;
    }
    return 0;
}
