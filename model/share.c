#include "model/share.h"

#include <ggml.h>

#include "pure/plan/deal.h"

static int n_columns(const kin_hparams *hp) {
    return hp->n_expert ? hp->n_ff_exp : hp->n_ff;
}

// ---- pieces

// How a weight is sliced, and how many of its rows or columns belong to one key/value head, or to one inner column.
typedef struct cut {
    kin_weight weight;
    kin_slice_dim dim;
    bool by_head, of_queries;
} cut;

static const cut cuts[] = {
    {KIN_W_ATTN_Q, KIN_SLICE_ROWS, true, true},
    {KIN_W_ATTN_Q_BIAS, KIN_SLICE_ROWS, true, true},
    {KIN_W_ATTN_K, KIN_SLICE_ROWS, true, false},
    {KIN_W_ATTN_K_BIAS, KIN_SLICE_ROWS, true, false},
    {KIN_W_ATTN_V, KIN_SLICE_ROWS, true, false},
    {KIN_W_ATTN_V_BIAS, KIN_SLICE_ROWS, true, false},
    {KIN_W_ATTN_OUT, KIN_SLICE_COLUMNS, true, true},
    {KIN_W_FFN_GATE, KIN_SLICE_ROWS, false, false},
    {KIN_W_FFN_UP, KIN_SLICE_ROWS, false, false},
    {KIN_W_FFN_DOWN, KIN_SLICE_COLUMNS, false, false},
    {KIN_W_FFN_GATE_EXPS, KIN_SLICE_ROWS, false, false},
    {KIN_W_FFN_UP_EXPS, KIN_SLICE_ROWS, false, false},
    {KIN_W_FFN_DOWN_EXPS, KIN_SLICE_COLUMNS, false, false},
};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

// Weights that every device of a group holds completely, and that are applied without waiting for a sum.
static const kin_weight full[] = {KIN_W_ATTN_NORM,   KIN_W_ATTN_NORM_BIAS, KIN_W_FFN_NORM_BIAS, KIN_W_ATTN_Q_NORM,
                                  KIN_W_ATTN_K_NORM, KIN_W_ATTN_OUT_BIAS,  KIN_W_FFN_NORM,      KIN_W_FFN_ROUTER};
enum { N_FULL = sizeof full / sizeof full[0] };

static bool can_share_weight(kin_weight weight) {
    bool found = false;
    for (int i = 0; i < N_CUTS; i++) found = found || cuts[i].weight == weight;
    for (int i = 0; i < N_FULL; i++) found = found || full[i] == weight;
    return found;
}

// True if devices can share the layers at all: not if the layers differ in width, or something is normalised or scaled after a
// sum, is not a sum of parts, or goes into several streams.
static bool can_share(const kin_model *m) {
    if (m->hp.residual_scale != 1 || m->hp.n_streams > 1 || !kin_hparams_is_uniform(&m->hp)) return false;
    for (int il = 0; il < m->hp.n_layer; il++) {
        if (kin_layer_of(&m->hp, il).has_experts != (m->hp.n_expert > 0)) return false;
        for (int w = 0; w < KIN_W_COUNT; w++)
            if (m->layers[il].w[w] && !can_share_weight((kin_weight)w)) return false;
    }
    return true;
}

static int64_t width_of(const cut *c, const kin_hparams *hp) {
    int group = c->of_queries ? hp->n_head / hp->n_head_kv : 1;
    return c->by_head ? (int64_t)group * hp->head_dim : 1;
}

// True if n heads, or columns, are whole steps of every weight that is cut by them.
static bool can_cut(const kin_model *m, bool by_head, int n) {
    for (int i = 0; i < N_CUTS; i++) {
        if (cuts[i].by_head != by_head) continue;
        for (int il = 0; il < m->hp.n_layer; il++) {
            const kin_gguf_tensor *t = m->layers[il].w[cuts[i].weight];
            int64_t step = t ? kin_slice_step(t, cuts[i].dim) : 1;
            if (step == 0 || n * width_of(&cuts[i], &m->hp) % step != 0) return false;
        }
    }
    return true;
}

static bool can_cut_cache(const kin_model *m, int kv_type, int n_heads) {
    return n_heads * m->hp.head_dim % ggml_blck_size((enum ggml_type)kv_type) == 0;
}

kin_share_pieces kin_share_pieces_of(const kin_model *m, int kv_type) {
    kin_share_pieces p = {0};
    if (!can_share(m)) return p;
    for (int n = 1; n <= m->hp.n_head_kv && !p.heads; n++) {
        if (m->hp.n_head_kv % n == 0 && can_cut_cache(m, kv_type, n) && can_cut(m, true, n)) p.heads = n;
    }
    int all = n_columns(&m->hp);
    for (int n = 16; n <= all && !p.ff; n *= 2) {
        if (all % n == 0 && can_cut(m, false, n)) p.ff = n;
    }
    if (p.heads) p.n_heads = m->hp.n_head_kv / p.heads;
    if (p.ff) p.n_ff = all / p.ff;
    return p;
}

// ---- shares

int kin_share_split(const kin_model *m, int kv_type, const double *weights, int n_ranks, kin_share *shares, kin_err *err) {
    kin_share_pieces p = kin_share_pieces_of(m, kv_type);
    int heads[KIN_SHARE_RANKS], ff[KIN_SHARE_RANKS];
    if (n_ranks < 2 || n_ranks > KIN_SHARE_RANKS)
        return kin_err_set(err, "a group must have 2 to %d devices, but has %d", KIN_SHARE_RANKS, n_ranks);
    if (m->hp.n_streams > 1)
        return kin_err_set(err, "devices cannot share the layers of a model with %d residual streams", m->hp.n_streams);
    for (int r = 0; r < n_ranks; r++) {
        if (!(weights[r] > 0)) return kin_err_set(err, "device %d of a group must have a share above 0", r);
    }
    if (p.n_heads < n_ranks || p.n_ff < n_ranks)
        return kin_err_set(err,
                           "%d devices cannot share the layers of this model: its weights divide into only %d pieces of "
                           "attention and %d of the feed-forward block",
                           n_ranks, p.n_heads, p.n_ff);
    kin_deal(p.n_heads, weights, n_ranks, heads);
    kin_deal(p.n_ff, weights, n_ranks, ff);
    for (int r = 0, head = 0, column = 0; r < n_ranks; r++) {
        shares[r] = (kin_share){.rank = r, .n_ranks = n_ranks, .head_begin = head, .ff_begin = column};
        shares[r].head_end = head += heads[r] * p.heads;
        shares[r].ff_end = column += ff[r] * p.ff;
    }
    return 0;
}

static bool is_range(int begin, int end, int piece, int all) {
    return piece > 0 && begin >= 0 && begin < end && end <= all && begin % piece == 0 && end % piece == 0;
}

int kin_share_check(const kin_share *s, const kin_model *m, int kv_type, kin_err *err) {
    if (kin_share_is_whole(s)) return 0;
    kin_share_pieces p = kin_share_pieces_of(m, kv_type);
    if (s->n_ranks >= 2 && s->n_ranks <= KIN_SHARE_RANKS && s->rank >= 0 && s->rank < s->n_ranks &&
        is_range(s->head_begin, s->head_end, p.heads, m->hp.n_head_kv) &&
        is_range(s->ff_begin, s->ff_end, p.ff, n_columns(&m->hp)))
        return 0;
    return kin_err_set(err, "the model's layers cannot be split into heads %d to %d and columns %d to %d for device %d of %d",
                       s->head_begin, s->head_end, s->ff_begin, s->ff_end, s->rank, s->n_ranks);
}

kin_slices kin_share_slices(const kin_share *s, const kin_hparams *hp) {
    kin_slices slices = {0};
    if (kin_share_is_whole(s)) return slices;
    for (int i = 0; i < N_CUTS; i++) {
        int64_t width = width_of(&cuts[i], hp);
        int begin = cuts[i].by_head ? s->head_begin : s->ff_begin, end = cuts[i].by_head ? s->head_end : s->ff_end;
        slices.of[cuts[i].weight] = (kin_slice){cuts[i].dim, begin * width, end * width};
    }
    return slices;
}

kin_hparams kin_share_hparams(const kin_share *s, const kin_hparams *hp) {
    kin_hparams own = *hp;
    if (kin_share_is_whole(s)) return own;
    own.n_head = hp->n_head / hp->n_head_kv * (s->head_end - s->head_begin);
    own.n_head_kv = s->head_end - s->head_begin;
    *(hp->n_expert ? &own.n_ff_exp : &own.n_ff) = s->ff_end - s->ff_begin;
    return own;
}

uint64_t kin_share_layer_bytes(const kin_share *s, const kin_model *m, int il) {
    kin_slices slices = kin_share_slices(s, &m->hp);
    uint64_t sum = 0;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = m->layers[il].w[id];
        if (t) sum += kin_slice_view_of(&slices.of[id], t).bytes;
    }
    return sum;
}
