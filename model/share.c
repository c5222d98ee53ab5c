#include "model/share.h"

#include <ggml.h>
#include <limits.h>

#include "pure/plan/deal.h"

// ---- what is cut

// The width along which a weight is cut.
typedef enum width {
    BY_HEAD,
    BY_FF, // columns of dense feed-forward blocks, of each expert, and of the experts that every token uses
    BY_FF_EXP,
    BY_FF_SHARED,
    N_WIDTHS,
} width;

// How a weight is sliced, and how many of its rows or columns belong to one key/value head, or to one inner column.
typedef struct cut {
    kin_weight weight;
    kin_slice_dim dim;
    width by;
    enum { ONE, PER_QUERY, HEAD, QUERIES } size; // one; one per query head of a head; a head's width; that of its query heads
} cut;

static const cut cuts[] = {
    {KIN_W_ATTN_Q, KIN_SLICE_ROWS, BY_HEAD, QUERIES},
    {KIN_W_ATTN_Q_BIAS, KIN_SLICE_ROWS, BY_HEAD, QUERIES},
    {KIN_W_ATTN_K, KIN_SLICE_ROWS, BY_HEAD, HEAD},
    {KIN_W_ATTN_K_BIAS, KIN_SLICE_ROWS, BY_HEAD, HEAD},
    {KIN_W_ATTN_V, KIN_SLICE_ROWS, BY_HEAD, HEAD},
    {KIN_W_ATTN_V_BIAS, KIN_SLICE_ROWS, BY_HEAD, HEAD},
    {KIN_W_ATTN_SINKS, KIN_SLICE_ROWS, BY_HEAD, PER_QUERY},
    {KIN_W_ATTN_OUT, KIN_SLICE_COLUMNS, BY_HEAD, QUERIES},
    {KIN_W_FFN_GATE, KIN_SLICE_ROWS, BY_FF, ONE},
    {KIN_W_FFN_UP, KIN_SLICE_ROWS, BY_FF, ONE},
    {KIN_W_FFN_GATE_UP, KIN_SLICE_HALVES, BY_FF, ONE},
    {KIN_W_FFN_DOWN, KIN_SLICE_COLUMNS, BY_FF, ONE},
    {KIN_W_FFN_GATE_EXPS, KIN_SLICE_ROWS, BY_FF_EXP, ONE},
    {KIN_W_FFN_UP_EXPS, KIN_SLICE_ROWS, BY_FF_EXP, ONE},
    {KIN_W_FFN_GATE_UP_EXPS, KIN_SLICE_HALVES, BY_FF_EXP, ONE},
    {KIN_W_FFN_GATE_EXPS_BIAS, KIN_SLICE_COLUMNS, BY_FF_EXP, ONE},
    {KIN_W_FFN_UP_EXPS_BIAS, KIN_SLICE_COLUMNS, BY_FF_EXP, ONE},
    {KIN_W_FFN_DOWN_EXPS, KIN_SLICE_COLUMNS, BY_FF_EXP, ONE},
    {KIN_W_FFN_SHARED_GATE, KIN_SLICE_ROWS, BY_FF_SHARED, ONE},
    {KIN_W_FFN_SHARED_UP, KIN_SLICE_ROWS, BY_FF_SHARED, ONE},
    {KIN_W_FFN_SHARED_DOWN, KIN_SLICE_COLUMNS, BY_FF_SHARED, ONE},
};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

// Weights that every device of a group holds completely: it applies them to what all have, or scales its part by them. Norms of
// blocks' outputs come after the sum. Of the last two only the first device adds them to its part.
static const kin_weight full[] = {
    KIN_W_ATTN_NORM,         KIN_W_ATTN_NORM_BIAS,     KIN_W_FFN_NORM,        KIN_W_FFN_NORM_BIAS,     KIN_W_FFN_NORM_2,
    KIN_W_FFN_NORM_ATTN,     KIN_W_ATTN_Q_NORM,        KIN_W_ATTN_K_NORM,     KIN_W_ATTN_OUT_NORM,     KIN_W_FFN_OUT_NORM,
    KIN_W_FFN_ROUTER,        KIN_W_FFN_ROUTER_BIAS,    KIN_W_FFN_CHOICE_BIAS, KIN_W_FFN_CHOICE_BIAS_2, KIN_W_FFN_EXPS_SCALE,
    KIN_W_FFN_SHARED_ROUTER, KIN_W_FFN_NORM_ATTN_BIAS, KIN_W_LAYER_SCALE,     KIN_W_ATTN_OUT_BIAS,     KIN_W_FFN_DOWN_EXPS_BIAS,
};
enum { N_FULL = sizeof full / sizeof full[0] };

static bool can_share_weight(kin_weight weight) {
    bool found = false;
    for (int i = 0; i < N_CUTS; i++) found = found || cuts[i].weight == weight;
    for (int i = 0; i < N_FULL; i++) found = found || full[i] == weight;
    return found;
}

// ---- what cannot be cut

#define PREFIX "devices cannot share the layers of this model: "

static int check_layer(const kin_model *m, int il, kin_err *err) {
    const kin_layer layer = kin_layer_of(&m->hp, il);
    const kin_gguf_tensor *const *w = m->layers[il].w;
    if (layer.is_recurrent) return kin_err_set(err, PREFIX "layer %d is recurrent", il);
    if (layer.is_latent)
        return kin_err_set(err, PREFIX "in layer %d all heads have one latent, not keys and values of their own", il);
    if (layer.is_compressed) return kin_err_set(err, PREFIX "in layer %d all heads have one key", il);
    if (w[KIN_W_ATTN_Q_NORM_ALL])
        return kin_err_set(err, PREFIX "layer %d normalises queries and keys over all heads at once", il);
    if (w[KIN_W_ATTN_QKV]) return kin_err_set(err, PREFIX "queries, keys and values of layer %d are one matrix", il);
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = w[id];
        if (t && !can_share_weight((kin_weight)id))
            return kin_err_set(err, PREFIX "its weight '%.*s' cannot be divided", (int)t->name.len, t->name.at);
    }
    return 0;
}

int kin_share_allowed(const kin_model *m, kin_err *err) {
    if (m->hp.n_streams > 1) return kin_err_set(err, PREFIX "it has %d residual streams", m->hp.n_streams);
    for (int il = 0; il < m->hp.n_layer; il++)
        if (check_layer(m, il, err) != 0) return KIN_FAIL;
    if (!kin_hparams_is_uniform(&m->hp)) return kin_err_set(err, PREFIX "they differ in their heads or widths");
    return 0;
}

// ---- pieces

static int64_t size_of(const cut *c, const kin_hparams *hp) {
    const int64_t group = hp->n_head / hp->n_head_kv;
    switch (c->size) {
    case PER_QUERY: return group;
    case HEAD: return hp->head_dim;
    case QUERIES: return group * hp->head_dim;
    default: return 1;
    }
}

static int n_of(const kin_hparams *hp, width by) {
    const int n[N_WIDTHS] = {hp->n_head_kv, hp->n_ff, hp->n_ff_exp, hp->n_ff_shared};
    return n[by];
}

// The width that a share counts in (kin_share.ff_begin).
static width ff_of(const kin_hparams *hp) {
    return hp->n_expert ? BY_FF_EXP : BY_FF;
}

static bool has_width(const kin_model *m, width by) {
    for (int i = 0; i < N_CUTS; i++)
        for (int il = 0; il < m->hp.n_layer; il++)
            if (cuts[i].by == by && m->layers[il].w[cuts[i].weight]) return true;
    return false;
}

// True if n heads, or columns, are whole steps of every weight that is cut by them.
static bool can_cut(const kin_model *m, width by, int n) {
    for (int i = 0; i < N_CUTS; i++) {
        if (cuts[i].by != by) continue;
        for (int il = 0; il < m->hp.n_layer; il++) {
            const kin_gguf_tensor *t = m->layers[il].w[cuts[i].weight];
            int64_t step = t ? kin_slice_step(t, cuts[i].dim) : 1;
            if (step == 0 || n * size_of(&cuts[i], &m->hp) % step != 0) return false;
        }
    }
    return true;
}

// Returns the smallest piece of columns of which there are at most n_most; 0: there is none.
static int columns_piece(const kin_model *m, width by, int n_most) {
    const int all = n_of(&m->hp, by);
    for (int n = 16; n <= all; n += 16)
        if (all % n == 0 && all / n <= n_most && can_cut(m, by, n)) return n;
    return 0;
}

static bool can_cut_cache(const kin_model *m, int kv_type, int n_heads) {
    return n_heads * m->hp.head_dim % ggml_blck_size((enum ggml_type)kv_type) == 0;
}

// The piece of each width. Shares count in one of the three widths of columns: its pieces are no more than those of the others,
// so that no share has none of another one's.
static bool find_pieces(const kin_model *m, int piece[N_WIDTHS]) {
    const width counted = ff_of(&m->hp);
    int n_most = INT_MAX;
    for (width by = BY_FF; by < N_WIDTHS; by++) {
        if (by == counted || !has_width(m, by)) continue;
        piece[by] = columns_piece(m, by, INT_MAX);
        if (piece[by] == 0) return false;
        if (n_of(&m->hp, by) / piece[by] < n_most) n_most = n_of(&m->hp, by) / piece[by];
    }
    piece[counted] = columns_piece(m, counted, n_most);
    return piece[counted] > 0;
}

kin_share_pieces kin_share_pieces_of(const kin_model *m, int kv_type) {
    kin_share_pieces p = {0};
    kin_err ignored;
    int piece[N_WIDTHS] = {0};
    if (kin_share_allowed(m, &ignored) != 0) return p;
    for (int n = 1; n <= m->hp.n_head_kv && !p.heads; n++) {
        if (m->hp.n_head_kv % n == 0 && can_cut_cache(m, kv_type, n) && can_cut(m, BY_HEAD, n)) p.heads = n;
    }
    if (find_pieces(m, piece)) p.ff = piece[ff_of(&m->hp)];
    if (p.heads) p.n_heads = m->hp.n_head_kv / p.heads;
    if (p.ff) p.n_ff = n_of(&m->hp, ff_of(&m->hp)) / p.ff;
    return p;
}

// ---- shares

int kin_share_split(const kin_model *m, int kv_type, const double *weights, int n_ranks, kin_share *shares, kin_err *err) {
    kin_share_pieces p = kin_share_pieces_of(m, kv_type);
    int heads[KIN_SHARE_RANKS], ff[KIN_SHARE_RANKS];
    if (n_ranks < 2 || n_ranks > KIN_SHARE_RANKS)
        return kin_err_set(err, "a group must have 2 to %d devices, but has %d", KIN_SHARE_RANKS, n_ranks);
    if (kin_share_allowed(m, err) != 0) return KIN_FAIL;
    for (int r = 0; r < n_ranks; r++) {
        if (!(weights[r] > 0)) return kin_err_set(err, "device %d of a group must have a share above 0", r);
    }
    if (p.n_heads == 0 || p.n_ff == 0)
        return kin_err_set(err, PREFIX "%s are not whole blocks of its weights' types",
                           p.n_heads == 0 ? "its heads" : "parts of its feed-forward block");
    if (p.n_heads < n_ranks || p.n_ff < n_ranks)
        return kin_err_set(err,
                           "%d devices cannot share the layers of this model: its weights divide into only %d piece%s of "
                           "attention and %d of the feed-forward block",
                           n_ranks, p.n_heads, p.n_heads == 1 ? "" : "s", p.n_ff);
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
        is_range(s->ff_begin, s->ff_end, p.ff, n_of(&m->hp, ff_of(&m->hp))))
        return 0;
    return kin_err_set(err, "the model's layers cannot be split into heads %d to %d and columns %d to %d for device %d of %d",
                       s->head_begin, s->head_end, s->ff_begin, s->ff_end, s->rank, s->n_ranks);
}

// The ranges of a share: heads, and columns of each width.
typedef struct bounds {
    int begin[N_WIDTHS], end[N_WIDTHS];
} bounds;

// Returns where the other width is cut if the counted one, of n columns, is cut at `column`: at the nearest piece.
static int cut_at(int column, int n, int n_other, int piece) {
    const int64_t n_pieces = piece > 0 ? n_other / piece : 0;
    return n > 0 ? (int)((2 * column * n_pieces + n) / (2 * (int64_t)n) * piece) : 0;
}

static bounds bounds_of(const kin_share *s, const kin_model *m) {
    const width counted = ff_of(&m->hp);
    int piece[N_WIDTHS] = {0};
    bounds b = {.begin = {s->head_begin}, .end = {s->head_end}};
    find_pieces(m, piece);
    for (width by = BY_FF; by < N_WIDTHS; by++) {
        const int n = n_of(&m->hp, counted), n_other = n_of(&m->hp, by);
        b.begin[by] = by == counted ? s->ff_begin : cut_at(s->ff_begin, n, n_other, piece[by]);
        b.end[by] = by == counted ? s->ff_end : cut_at(s->ff_end, n, n_other, piece[by]);
    }
    return b;
}

static bool has_weight(const kin_model *m, kin_weight weight) {
    for (int il = 0; il < m->hp.n_layer; il++)
        if (m->layers[il].w[weight]) return true;
    return false;
}

kin_slices kin_share_slices(const kin_share *s, const kin_model *m) {
    kin_slices slices = {0};
    if (kin_share_is_whole(s)) return slices;
    const bounds b = bounds_of(s, m);
    for (int i = 0; i < N_CUTS; i++) {
        const int64_t size = size_of(&cuts[i], &m->hp);
        if (has_weight(m, cuts[i].weight))
            slices.of[cuts[i].weight] = (kin_slice){cuts[i].dim, b.begin[cuts[i].by] * size, b.end[cuts[i].by] * size};
    }
    return slices;
}

kin_hparams kin_share_hparams(const kin_share *s, const kin_model *m) {
    kin_hparams own = m->hp;
    if (kin_share_is_whole(s)) return own;
    const bounds b = bounds_of(s, m);
    own.n_head = m->hp.n_head / m->hp.n_head_kv * (s->head_end - s->head_begin);
    own.n_head_kv = s->head_end - s->head_begin;
    own.n_ff = b.end[BY_FF] - b.begin[BY_FF];
    own.n_ff_exp = b.end[BY_FF_EXP] - b.begin[BY_FF_EXP];
    own.n_ff_shared = b.end[BY_FF_SHARED] - b.begin[BY_FF_SHARED];
    return own;
}

uint64_t kin_share_layer_bytes(const kin_share *s, const kin_model *m, int il) {
    kin_slices slices = kin_share_slices(s, m);
    uint64_t sum = 0;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = m->layers[il].w[id];
        if (t) sum += kin_slice_view_of(&slices.of[id], t).bytes;
    }
    return sum;
}
