#include "model/draft_block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/model_impl.h"

bool kin_draft_block_is_in(const kin_model *m) {
    return m->hp.n_draft_layer > 0;
}

static int check(const kin_model *m, kin_err *err) {
    const int n = m->hp.n_draft_layer;
    if (n == 0) return kin_err_set(err, "the file has no block for multi-token prediction (nextn)");
    if (!m->hp.arch->drafts)
        return kin_err_set(err, "drafts from the blocks for multi-token prediction of the family '%s' are not supported",
                           m->hp.arch->name);
    if (m->hp.n_streams > 1)
        return kin_err_set(err,
                           "drafts from the blocks for multi-token prediction of a model with %d residual streams are not "
                           "supported",
                           m->hp.n_streams);
    if (n == 1) return 0;
    return kin_err_set(err, "the file has %d blocks for multi-token prediction, but only one is supported", n);
}

// Describes the block like a layer behind all dense ones, with attention.
static int describe(kin_hparams *hp, kin_err *err) {
    hp->n_layer = 1;
    hp->n_draft_layer = hp->n_dense = 0;
    hp->n_input = hp->n_embd;
    hp->layers = calloc(1, sizeof *hp->layers);
    if (!hp->layers) return kin_err_set(err, "out of memory");
    kin_layer_set_plain(hp, &hp->layers[0]);
    if (hp->arch->layer) hp->arch->layer(hp, 0, &hp->layers[0]);
    return 0;
}

static int find_own(kin_draft_block *b, int i_block, const char *what, const int64_t ne[3], bool vector,
                    const kin_gguf_tensor **to, size_t *n_used, kin_err *err) {
    const kin_gguf_tensor *own;
    char name[80];
    snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", i_block, what);
    if (kin_model_find_tensor(&b->view, name, ne, vector, false, &own, n_used, err) != 0) return KIN_FAIL;
    if (own) *to = own;
    return 0;
}

// Tensors that the block lacks are shared with the model.
static int find_ends(kin_draft_block *b, const kin_model *m, int i_block, size_t *n_used, kin_err *err) {
    kin_model *view = &b->view;
    const int64_t matrix[3] = {view->hp.n_embd, view->hp.n_vocab, 1}, norm[3] = {view->hp.n_embd, 1, 1};
    view->token_embd = m->token_embd;
    view->output = m->output;
    view->output_norm = m->output_norm;
    view->rope_factors = m->rope_factors;
    view->rope_factors_long = m->rope_factors_long;
    if (find_own(b, i_block, "embed_tokens", matrix, false, &view->token_embd, n_used, err) != 0) return KIN_FAIL;
    if (find_own(b, i_block, "shared_head_head", matrix, false, &view->output, n_used, err) != 0) return KIN_FAIL;
    if (find_own(b, i_block, "shared_head_norm", norm, true, &view->output_norm, n_used, err) != 0) return KIN_FAIL;
    b->has_output = view->output != m->output;
    b->in_norm = (const float *)m->output_norm->data;
    b->out_norm = (const float *)view->output_norm->data;
    return 0;
}

// A tensor without a role implies arithmetic that kin would leave out, and so drafts that are wrong.
static int refuse_unknown(const kin_model *m, int i_block, size_t n_used, kin_err *err) {
    char prefix[32];
    const size_t len = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", i_block);
    size_t n = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        n += t->name.len > len && memcmp(t->name.at, prefix, len) == 0 && !kin_model_ignores(m, t);
    }
    if (n == n_used) return 0;
    return kin_err_set(err, "the block for multi-token prediction has %zu tensors that are unknown in the architecture '%s'",
                       n - n_used, m->hp.arch->name);
}

static int open_block(kin_draft_block *b, const kin_model *m, kin_err *err) {
    const kin_weight_set own = KIN_WEIGHT_SET(KIN_W_NEXTN_PROJ, KIN_W_NEXTN_TOKEN_NORM, KIN_W_NEXTN_STATE_NORM);
    const int i_block = m->hp.n_layer;
    size_t n_used = 0;
    b->view.layers = calloc(1, sizeof *b->view.layers);
    if (!b->view.layers) return kin_err_set(err, "out of memory");
    if (describe(&b->view.hp, err) != 0 || kin_model_find_layer(&b->view, 0, i_block, &own, &n_used, err) != 0) return KIN_FAIL;
    return find_ends(b, m, i_block, &n_used, err) == 0 ? refuse_unknown(m, i_block, n_used, err) : KIN_FAIL;
}

int kin_draft_block_open(kin_draft_block *b, const kin_model *m, kin_err *err) {
    *b = (kin_draft_block){.view = {.gguf = m->gguf, .hp = m->hp}};
    b->view.hp.layers = NULL; // of the model
    if (check(m, err) == 0 && open_block(b, m, err) == 0) return 0;
    kin_draft_block_close(b);
    return KIN_FAIL;
}

void kin_draft_block_close(kin_draft_block *b) {
    free(b->view.layers);
    free(b->view.hp.layers);
    *b = (kin_draft_block){0};
}
