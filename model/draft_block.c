#include "model/draft_block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/model_impl.h"
#include "model/streams.h"

static const char no_block[] = "the file has no block for multi-token prediction (nextn)";

// ---- files

// The block after the last layer has this tensor.
static bool has_block(const kin_gguf *gguf, int i_block) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", i_block);
    return kin_gguf_find_tensor(gguf, name) != NULL;
}

bool kin_draft_blocks_are_in(const kin_model *m) {
    return m->hp.n_draft_layer > 0 && has_block(m->gguf, m->hp.n_layer);
}

bool kin_draft_blocks_fill(const char *path) {
    kin_err ignored;
    kin_gguf *gguf;
    if (kin_gguf_open(&gguf, path, &ignored) != 0) return false;
    const bool lacks_layers = kin_model_lacks_layers(gguf);
    kin_gguf_close(gguf);
    return lacks_layers;
}

static int check_count(int n, kin_err *err) {
    if (n <= KIN_DRAFT_BLOCKS) return 0;
    return kin_err_set(err, "%d blocks for multi-token prediction are not supported (at most %d are)", n, KIN_DRAFT_BLOCKS);
}

static int check_family(const kin_model *m, kin_err *err) {
    if (m->hp.arch->drafts) return 0;
    return kin_err_set(err, "drafts from the blocks for multi-token prediction of the family '%s' are not supported",
                       m->hp.arch->name);
}

static int check_vocabulary(const kin_gguf *gguf, const kin_model *m, kin_err *err) {
    kin_gguf_array tokens;
    kin_err ignored;
    const kin_gguf_tensor *embd = kin_gguf_find_tensor(gguf, "token_embd.weight");
    uint64_t n = (uint64_t)m->hp.n_vocab;
    if (embd)
        n = (uint64_t)embd->ne[1];
    else if (kin_gguf_get_array(gguf, "tokenizer.ggml.tokens", &tokens, &ignored) == 0)
        n = tokens.n;
    if (n == (uint64_t)m->hp.n_vocab) return 0;
    return kin_err_set(err, "its blocks for multi-token prediction are of another model: they have %llu tokens, this one has %d",
                       (unsigned long long)n, m->hp.n_vocab);
}

// Blocks in a file of their own must be those of a model of the same shape.
static int check_file(const kin_gguf *gguf, const kin_model *m, int *n, kin_err *err) {
    kin_hparams hp = {.arch = kin_arch_of(gguf, err)};
    if (!hp.arch) return KIN_FAIL;
    kin_meta k = {.gguf = gguf, .family = hp.arch->name, .err = err};
    kin_hparams_read_n_layer(&hp, &k);
    hp.n_embd = kin_meta_int(&k, "embedding_length", KIN_KEY_REQUIRED, 1, INT32_MAX);
    *n = hp.n_draft_layer;
    if (k.failed) return KIN_FAIL;
    if (*n == 0 || !has_block(gguf, hp.n_layer)) return kin_err_set(err, "%s", no_block);
    if (hp.arch != m->hp.arch)
        return kin_err_set(err, "its blocks for multi-token prediction are of another model: its family is '%s', this one's '%s'",
                           hp.arch->name, m->hp.arch->name);
    if (hp.n_layer != m->hp.n_layer)
        return kin_err_set(err, "its blocks for multi-token prediction are of another model: it has %d layers, this one %d",
                           hp.n_layer, m->hp.n_layer);
    if (hp.n_embd != m->hp.n_embd)
        return kin_err_set(err, "its blocks for multi-token prediction are of another model: its width is %d, this one's %d",
                           hp.n_embd, m->hp.n_embd);
    return check_vocabulary(gguf, m, err);
}

// ---- a block

// Describes the block like a layer after all dense ones, with attention. The family may add to this.
int kin_draft_block_describe(kin_hparams *hp, const kin_gguf *gguf, int n_blocks, int i_block, kin_err *err) {
    kin_meta k = {.gguf = gguf, .family = hp->arch->name, .n_layer = n_blocks, .err = err};
    hp->n_layer = 1;
    hp->n_draft_layer = hp->n_dense = 0;
    hp->n_ctx_max = 0; // the model's limits each sequence; the cache of a block's drafts has more cells
    hp->layers = calloc(1, sizeof *hp->layers);
    if (!hp->layers) return kin_err_set(err, "out of memory");
    if (hp->arch->draft_layer) hp->arch->draft_layer(hp, &k, i_block);
    if (k.failed) return KIN_FAIL;
    hp->n_input = kin_hparams_stream_width(hp);
    kin_layer_set_plain(hp, &hp->layers[0]);
    if (hp->arch->layer) hp->arch->layer(hp, 0, &hp->layers[0]);
    return 0;
}

static int find_own(kin_draft_block *b, int i_block, const char *what, const int64_t ne[3], bool vector,
                    const kin_gguf_tensor **to, size_t *n_used, kin_err *err) {
    const kin_gguf_tensor *own;
    char name[80];
    snprintf(name, sizeof name, "blk.%d.%s.weight", i_block, what);
    if (kin_model_find_tensor(&b->view, name, ne, vector, false, &own, n_used, err) != 0) return KIN_FAIL;
    if (own) *to = own;
    return 0;
}

static int find_stream_ends(kin_draft_block *b, int i_block, size_t *n_used, kin_err *err) {
    kin_streams_end end;
    char name[80];
    for (int i = 0; kin_streams_draft_end_at(&b->view.hp, i, &end); i++) {
        snprintf(name, sizeof name, "blk.%d.%s", i_block, end.name);
        if (kin_model_find_tensor(&b->view, name, end.ne, end.is_vector, true, &b->view.stream_ends[i], n_used, err) != 0)
            return KIN_FAIL;
        b->has_ends = true;
    }
    return 0;
}

// Tensors that the block lacks are shared with the model. before: the block before it, NULL: none.
static int find_ends(kin_draft_block *b, const kin_model *m, const kin_draft_block *before, int i_block, size_t *n_used,
                     kin_err *err) {
    kin_model *view = &b->view;
    const int64_t matrix[3] = {view->hp.n_embd, view->hp.n_vocab, 1}, norm[3] = {view->hp.n_embd, 1, 1};
    view->token_embd = m->token_embd;
    view->output = m->output;
    view->output_norm = m->output_norm;
    view->rope_factors = m->rope_factors;
    view->rope_factors_long = m->rope_factors_long;
    if (find_own(b, i_block, "nextn.embed_tokens", matrix, false, &view->token_embd, n_used, err) != 0) return KIN_FAIL;
    if (find_own(b, i_block, "nextn.shared_head_head", matrix, false, &view->output, n_used, err) != 0) return KIN_FAIL;
    if (find_own(b, i_block, "layer_output_norm", norm, true, &view->output_norm, n_used, err) != 0) return KIN_FAIL;
    if (find_own(b, i_block, "nextn.shared_head_norm", norm, true, &view->output_norm, n_used, err) != 0) return KIN_FAIL;
    b->has_output = view->output != m->output;
    b->embeds = *view;
    if (view->token_embd == m->token_embd) b->embeds.gguf = m->gguf;
    b->out_norm = view->output_norm ? (const float *)view->output_norm->data : NULL;
    b->centers_out = m->hp.arch->centers_drafts;
    b->model_norm = m->output_norm ? (const float *)m->output_norm->data : NULL;
    if (!m->hp.arch->drafts_unnormed) b->in_norm = before ? before->out_norm : b->model_norm;
    return find_stream_ends(b, i_block, n_used, err);
}

// A tensor without a role implies arithmetic that kin would leave out, and so drafts that are wrong.
static int refuse_unknown(const kin_model *view, int i_block, size_t n_used, kin_err *err) {
    char prefix[32];
    const size_t len = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", i_block);
    size_t n = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(view->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(view->gguf, i);
        n += t->name.len > len && memcmp(t->name.at, prefix, len) == 0 && !kin_model_ignores(view, t);
    }
    if (n == n_used) return 0;
    return kin_err_set(err, "the block for multi-token prediction has %zu tensors that are unknown in the architecture '%s'",
                       n - n_used, view->hp.arch->name);
}

kin_weight_set kin_draft_block_weights(const kin_hparams *hp) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_NEXTN_PROJ, KIN_W_NEXTN_TOKEN_NORM);
    kin_streams_end end;
    kin_weight_set_add(&set, kin_streams_draft_end_at(hp, 0, &end) ? KIN_W_NEXTN_STREAMS_NORM : KIN_W_NEXTN_STATE_NORM);
    return set;
}

static int open_block(kin_draft_blocks *of, const kin_model *m, int n_blocks, int i_block, kin_err *err) {
    const kin_weight_set own = kin_draft_block_weights(&m->hp);
    const kin_draft_block *before = of->n > 0 ? &of->at[of->n - 1] : NULL;
    kin_draft_block *b = &of->at[of->n++];
    size_t n_used = 0;
    b->view.gguf = of->file ? of->file : m->gguf;
    b->view.hp = m->hp;
    b->view.hp.layers = NULL; // of the model
    b->n_streams = m->hp.n_streams;
    b->view.layers = calloc(1, sizeof *b->view.layers);
    if (!b->view.layers) return kin_err_set(err, "out of memory");
    if (kin_draft_block_describe(&b->view.hp, b->view.gguf, n_blocks, i_block, err) != 0 ||
        kin_model_find_layer(&b->view, 0, i_block, &own, &n_used, err) != 0)
        return KIN_FAIL;
    if (find_ends(b, m, before, i_block, &n_used, err) != 0) return KIN_FAIL;
    return refuse_unknown(&b->view, i_block, n_used, err);
}

// ---- all

static int open_blocks(kin_draft_blocks *b, const kin_model *m, const char *path, kin_err *err) {
    int n = m->hp.n_draft_layer;
    if (path && kin_gguf_open(&b->file, path, err) != 0) return KIN_FAIL;
    if (path && check_file(b->file, m, &n, err) != 0) return kin_err_prefix(err, "%s", path);
    if (!path && !kin_draft_blocks_are_in(m)) return kin_err_set(err, "%s", no_block);
    if (check_count(n, err) != 0 || check_family(m, err) != 0) return KIN_FAIL;
    for (int i = 0; i < n; i++)
        if (open_block(b, m, m->hp.n_layer + n, m->hp.n_layer + i, err) != 0)
            return path ? kin_err_prefix(err, "%s", path) : KIN_FAIL;
    return 0;
}

int kin_draft_blocks_open(kin_draft_blocks *b, const kin_model *m, const char *path, kin_err *err) {
    *b = (kin_draft_blocks){0};
    if (open_blocks(b, m, path, err) == 0) return 0;
    kin_draft_blocks_close(b);
    return KIN_FAIL;
}

void kin_draft_blocks_close(kin_draft_blocks *b) {
    for (int i = 0; i < b->n; i++) {
        free(b->at[i].view.layers);
        free(b->at[i].view.hp.layers);
    }
    kin_gguf_close(b->file);
    *b = (kin_draft_blocks){0};
}

uint64_t kin_draft_blocks_bytes(const kin_draft_blocks *b) {
    uint64_t sum = 0;
    for (int i = 0; i < b->n; i++)
        sum += kin_model_layer_bytes(&b->at[i].view, 0) + kin_model_stream_end_bytes(&b->at[i].view) +
               (b->at[i].has_output ? b->at[i].view.output->n_bytes : 0);
    return sum;
}
