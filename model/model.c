#include "model/model.h"

#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/model_impl.h"
#include "model/streams.h"

static int check_shape(const kin_gguf_tensor *t, const int64_t ne[3], kin_err *err) {
    bool same = t->ne[3] == 1;
    for (int i = 0; i < 3; i++) same = same && t->ne[i] == ne[i];
    if (same) return 0;
    return kin_err_set(err, "tensor '%.*s' has the shape %lld x %lld x %lld, but the metadata says %lld x %lld x %lld",
                       (int)t->name.len, t->name.at, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2],
                       (long long)ne[0], (long long)ne[1], (long long)ne[2]);
}

// Whose numbers are neither multiplied nor converted.
static int check_integers(const kin_gguf_tensor *t, kin_err *err) {
    if (t->type == GGML_TYPE_I32) return 0;
    return kin_err_set(err, "tensor '%.*s' has the type %s, but must be I32", (int)t->name.len, t->name.at,
                       kin_gguf_type_name(t->type));
}

static int check_type(const kin_gguf_tensor *t, bool vector, kin_err *err) {
    const struct ggml_type_traits *traits = ggml_get_type_traits((enum ggml_type)t->type);
    bool ok = vector ? t->type == GGML_TYPE_F32 : t->type == GGML_TYPE_F32 || traits->to_float != NULL;
    if (ok) return 0;
    return kin_err_set(err, "tensor '%.*s' has the type %s, which is not supported for %s", (int)t->name.len, t->name.at,
                       traits->type_name, vector ? "norms and biases (they must be F32)" : "weights");
}

static int find_shape(const kin_model *m, const char *name, const int64_t ne[3], bool required, const kin_gguf_tensor **out,
                      size_t *n_used, kin_err *err) {
    const kin_gguf_tensor *t = *out = kin_gguf_find_tensor(m->gguf, name);
    if (!t) return required ? kin_err_set(err, "the tensor '%s' is missing", name) : 0;
    if (check_shape(t, ne, err) != 0) return KIN_FAIL;
    ++*n_used;
    return 0;
}

int kin_model_find_tensor(const kin_model *m, const char *name, const int64_t ne[3], bool vector, bool required,
                          const kin_gguf_tensor **out, size_t *n_used, kin_err *err) {
    if (find_shape(m, name, ne, required, out, n_used, err) != 0) return KIN_FAIL;
    return *out ? check_type(*out, vector, err) : 0;
}

static int find_weights(kin_model *m, int il, int i_block, const kin_weight_set *required, const kin_weight_set *known,
                        size_t *n_used, kin_err *err) {
    for (int w = kin_weight_set_next(known, 0); w < KIN_WEIGHTS_MAX; w = kin_weight_set_next(known, w + 1)) {
        const kin_gguf_tensor **to = &m->layers[il].w[w];
        char name[80];
        int64_t ne[3];
        snprintf(name, sizeof name, "blk.%d.%s", i_block, kin_weight_name(w));
        kin_weight_shape(w, &m->hp, il, ne);
        if (find_shape(m, name, ne, kin_weight_set_has(required, w), to, n_used, err) != 0) return KIN_FAIL;
        if (*to && (kin_weight_is_integers(w) ? check_integers(*to, err) : check_type(*to, kin_weight_is_vector(w), err)) != 0)
            return KIN_FAIL;
        for (int k = 0; k < w; k++) // a tensor with two roles counts once
            if (*to && m->layers[il].w[k] == *to) --*n_used;
    }
    return 0;
}

static int find_inputs(kin_model *m, size_t *n_used, kin_err *err) {
    const kin_hparams *hp = &m->hp;
    const int64_t all = (int64_t)hp->n_input * hp->n_layer;
    const int64_t embd[3] = {all, hp->n_vocab, 1}, proj[3] = {hp->n_embd, all, 1}, norm[3] = {hp->n_input, 1, 1};
    if (kin_model_find_tensor(m, "per_layer_token_embd.weight", embd, false, true, &m->input_embd, n_used, err) != 0)
        return KIN_FAIL;
    if (kin_model_find_tensor(m, "per_layer_model_proj.weight", proj, false, true, &m->input_proj, n_used, err) != 0)
        return KIN_FAIL;
    return kin_model_find_tensor(m, "per_layer_proj_norm.weight", norm, true, true, &m->input_norm, n_used, err);
}

// Its rows are used by number, so there may be more of them.
static int find_ngrams(kin_model *m, size_t *n_used, kin_err *err) {
    const kin_ngram *n = &m->hp.ngram;
    const kin_gguf_tensor *t = kin_gguf_find_tensor(m->gguf, "per_layer_token_embd.weight");
    uint64_t least = 0;
    for (int i = 0; i < kin_ngram_n_rows(n); i++) least = n->first[i] + n->n_rows[i] > least ? n->first[i] + n->n_rows[i] : least;
    if (!t) return kin_err_set(err, "the tensor 'per_layer_token_embd.weight' is missing");
    if (t->ne[0] != n->dim || (uint64_t)t->ne[1] < least || t->ne[2] != 1)
        return kin_err_set(err, "tensor 'per_layer_token_embd.weight' has %lld rows of %lld, but the metadata says %llu of %d",
                           (long long)t->ne[1], (long long)t->ne[0], (unsigned long long)least, n->dim);
    m->ngram_embd = t;
    ++*n_used;
    return check_type(t, false, err);
}

static int find_stream_ends(kin_model *m, size_t *n_used, kin_err *err) {
    kin_streams_end end;
    for (int i = 0; kin_streams_end_at(&m->hp, i, &end); i++)
        if (kin_model_find_tensor(m, end.name, end.ne, end.is_vector, true, &m->stream_ends[i], n_used, err) != 0)
            return KIN_FAIL;
    return 0;
}

static int find_ends(kin_model *m, size_t *n_used, kin_err *err) {
    const kin_hparams *hp = &m->hp;
    const int64_t matrix[3] = {hp->n_embd, hp->n_vocab, 1}, norm[3] = {hp->n_embd, 1, 1}, factors[3] = {hp->n_rope_factors, 1, 1};
    char norm_name[64];
    const char *of_rope = hp->has_long_factors ? "rope_factors_short.weight" : "rope_freqs.weight";
    if (kin_model_find_tensor(m, "token_embd.weight", matrix, false, true, &m->token_embd, n_used, err) != 0) return KIN_FAIL;
    snprintf(norm_name, sizeof norm_name, "%s.weight", hp->arch->output_norm ? hp->arch->output_norm : "output_norm");
    if (!hp->arch->has_no_output_norm && kin_model_find_tensor(m, norm_name, norm, true, true, &m->output_norm, n_used, err) != 0)
        return KIN_FAIL;
    if (hp->arch->biases_output_norm &&
        kin_model_find_tensor(m, "output_norm.bias", norm, true, true, &m->output_norm_bias, n_used, err) != 0)
        return KIN_FAIL;
    if (kin_model_find_tensor(m, "output.weight", matrix, false, false, &m->output, n_used, err) != 0) return KIN_FAIL;
    if (kin_model_find_tensor(m, of_rope, factors, true, hp->has_long_factors, &m->rope_factors, n_used, err) != 0)
        return KIN_FAIL;
    if (hp->has_long_factors &&
        kin_model_find_tensor(m, "rope_factors_long.weight", factors, true, true, &m->rope_factors_long, n_used, err) != 0)
        return KIN_FAIL;
    if (!m->output) m->output = m->token_embd;
    if (find_stream_ends(m, n_used, err) != 0 || (hp->ngram.size > 0 && find_ngrams(m, n_used, err) != 0)) return KIN_FAIL;
    return hp->n_input > 0 ? find_inputs(m, n_used, err) : 0;
}

// True for a tensor of a draft block, which is not a layer of the model.
static bool is_draft_tensor(const kin_model *m, const kin_gguf_tensor *t) {
    for (int i = 0; i < m->hp.n_draft_layer; i++) {
        char prefix[32];
        size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", m->hp.n_layer + i);
        if (t->name.len > n && memcmp(t->name.at, prefix, n) == 0) return true;
    }
    return false;
}

// Returns the name of a layer's tensor without "blk.N."; empty if it belongs to no layer.
static kin_str name_in_layer(kin_str name) {
    size_t at = 4;
    if (name.len <= at || memcmp(name.at, "blk.", at) != 0) return (kin_str){name.at, 0};
    while (at < name.len && name.at[at] >= '0' && name.at[at] <= '9') at++;
    if (at == 4 || at == name.len || name.at[at] != '.') return (kin_str){name.at, 0};
    return (kin_str){name.at + at + 1, name.len - at - 1};
}

// Returns the N of "blk.N.", which the name has; any large number if it is large.
static int layer_of_name(kin_str name) {
    int n = 0;
    for (size_t at = 4; name.at[at] != '.' && n < 1 << 20; at++) n = 10 * n + (name.at[at] - '0');
    return n;
}

bool kin_model_ignores(const kin_model *m, const kin_gguf_tensor *t) {
    const kin_str name = name_in_layer(t->name);
    const char *const *at = m->hp.arch->ignored;
    while (at && *at && !kin_str_eq(name, *at)) at++;
    if (!at || !*at) return false;
    const int weight = kin_weight_find(*at);
    for (int il = 0; il < m->hp.n_layer && weight >= 0; il++)
        if (m->layers[il].w[weight] == t) return false;
    if (weight < 0 || m->hp.arch->drafts_ignore) return true;
    return layer_of_name(t->name) < m->hp.n_layer; // a draft block's may be needed
}

// A recurrent layer must have its products in one of the forms that families write.
static int check_delta_net(const kin_gguf_tensor *const *w, int il, kin_err *err) {
    const bool inputs =
        w[KIN_W_DELTA_IN] ? !w[KIN_W_DELTA_QKV] && !w[KIN_W_DELTA_GATE] : w[KIN_W_DELTA_QKV] && w[KIN_W_DELTA_GATE];
    if (inputs) return 0;
    return kin_err_set(err, "layer %d needs either the tensor ssm_in or attn_qkv and attn_gate", il);
}

// Every layer must have its query, key and value matrices in one of two forms. Values that are normalised may be made of the
// keys' products.
static int check_qkv(const kin_model *m, int il, kin_err *err) {
    const kin_gguf_tensor *const *w = m->layers[il].w;
    if (kin_layer_of(&m->hp, il).kv_back > 0) return 0;
    if (kin_layer_of(&m->hp, il).has_no_attention || w[KIN_W_STATE_IN] || w[KIN_W_KDA_Q]) return 0; // its family requires all
    if (kin_layer_of(&m->hp, il).is_recurrent) return m->hp.conv.n_taps > 0 ? 0 : check_delta_net(w, il, err);
    if (kin_layer_of(&m->hp, il).is_latent || kin_layer_of(&m->hp, il).is_compressed) return 0; // its family requires all
    if (w[KIN_W_ATTN_Q_GATE]) return 0; // with K and V, which the family requires
    if (w[KIN_W_ATTN_QKV] ? !w[KIN_W_ATTN_Q] && !w[KIN_W_ATTN_K] && !w[KIN_W_ATTN_V]
                          : w[KIN_W_ATTN_Q] && w[KIN_W_ATTN_K] && (w[KIN_W_ATTN_V] || kin_layer_of(&m->hp, il).norms_values))
        return 0;
    return kin_err_set(err, "layer %d needs either the tensor attn_qkv or attn_q, attn_k and attn_v", il);
}

// Every layer with experts must have their gate and up matrices in one of two forms, unless the family's experts have no gate.
static int check_experts(const kin_model *m, int il, const kin_weight_set *known, kin_err *err) {
    const kin_gguf_tensor *const *w = m->layers[il].w;
    if (!kin_layer_of(&m->hp, il).has_experts || !kin_weight_set_has(known, KIN_W_FFN_GATE_EXPS)) return 0;
    if (w[KIN_W_FFN_GATE_UP_EXPS] && m->hp.n_ff_exp % 16 != 0) // up must begin with a panel of rows
        return kin_err_set(err, "experts whose gate and up are one matrix must have a width that is a multiple of 16, not %d",
                           m->hp.n_ff_exp);
    if (w[KIN_W_FFN_GATE_UP_EXPS] ? !w[KIN_W_FFN_GATE_EXPS] && !w[KIN_W_FFN_UP_EXPS]
                                  : w[KIN_W_FFN_GATE_EXPS] && w[KIN_W_FFN_UP_EXPS])
        return 0;
    return kin_err_set(err, "layer %d needs either the tensor ffn_gate_up_exps or ffn_gate_exps and ffn_up_exps", il);
}

// A tensor without a role implies arithmetic that kin would leave out: fail rather than be silently wrong.
static int refuse_unknown(const kin_model *m, size_t n_used, kin_err *err) {
    size_t n = kin_gguf_n_tensors(m->gguf);
    if (n == n_used) return 0;
    for (size_t i = 0; i < n; i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        bool used = t == m->token_embd || t == m->output_norm || t == m->output_norm_bias || t == m->output ||
                    t == m->rope_factors || t == m->rope_factors_long || t == m->input_embd || t == m->input_proj ||
                    t == m->input_norm || is_draft_tensor(m, t) || kin_model_ignores(m, t) || t == m->ngram_embd;
        for (int k = 0; k < KIN_STREAM_ENDS; k++) used = used || t == m->stream_ends[k];
        for (int il = 0; il < m->hp.n_layer && !used; il++) {
            for (int w = 0; w < KIN_W_COUNT; w++) used = used || m->layers[il].w[w] == t;
        }
        if (!used) {
            return kin_err_set(err, "the tensor '%.*s' is unknown in the architecture '%s'", (int)t->name.len, t->name.at,
                               m->hp.arch->name);
        }
    }
    return 0;
}

int kin_model_find_layer(kin_model *m, int il, int i_block, const kin_weight_set *also, size_t *n_used, kin_err *err) {
    const kin_layer layer = kin_layer_of(&m->hp, il);
    const kin_arch *arch = m->hp.arch;
    kin_weight_set required = arch->required(&m->hp, &layer);
    kin_weight_set known = arch->optional ? arch->optional(&m->hp, &layer) : (kin_weight_set){0};
    if (also) kin_weight_set_join(&required, also);
    kin_weight_set_join(&known, &required);
    if (find_weights(m, il, i_block, &required, &known, n_used, err) != 0) return KIN_FAIL;
    return check_qkv(m, il, err) == 0 ? check_experts(m, il, &known, err) : KIN_FAIL;
}

bool kin_model_lacks_layers(const kin_gguf *gguf) {
    kin_err ignored;
    kin_hparams hp = {.arch = kin_arch_of(gguf, &ignored)};
    if (!hp.arch) return false;
    kin_meta k = {.gguf = gguf, .family = hp.arch->name, .err = &ignored};
    kin_hparams_read_n_layer(&hp, &k);
    if (k.failed || hp.n_draft_layer == 0) return false;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_str name = kin_gguf_tensor_at(gguf, i)->name;
        if (name.len > 6 && memcmp(name.at, "blk.0.", 6) == 0) return false;
    }
    return true;
}

static int read_model(kin_model *m, kin_err *err) {
    const kin_arch *arch = kin_arch_of(m->gguf, err);
    if (!arch) return KIN_FAIL;
    if (kin_model_lacks_layers(m->gguf))
        return kin_err_set(err, "the file has only blocks for multi-token prediction; give it with the model: --draft mtp:FILE");
    m->hp.arch = arch;
    if (kin_arch_read(&m->hp, m->gguf, err) != 0) return KIN_FAIL;
    if ((uint64_t)m->hp.n_layer > kin_gguf_n_tensors(m->gguf)) {
        return kin_err_set(err, "the metadata announces %d layers, but there are only %zu tensors", m->hp.n_layer,
                           kin_gguf_n_tensors(m->gguf));
    }
    m->layers = calloc((size_t)m->hp.n_layer, sizeof *m->layers);
    if (!m->layers) return kin_err_set(err, "out of memory");

    size_t n_used = 0;
    if (find_ends(m, &n_used, err) != 0) return KIN_FAIL;
    for (int il = 0; il < m->hp.n_layer; il++) {
        if (kin_model_find_layer(m, il, il, NULL, &n_used, err) != 0) return KIN_FAIL;
    }
    return refuse_unknown(m, n_used, err);
}

static int finish_open(kin_model *m, const char *name, kin_err *err) {
    if (read_model(m, err) == 0) return 0;
    kin_model_close(m);
    // Errors of the metadata readers begin with the file's name already.
    return err && strncmp(err->text, name, strlen(name)) == 0 ? KIN_FAIL : kin_err_prefix(err, "%s", name);
}

int kin_model_open(kin_model *m, const char *path, kin_err *err) {
    *m = (kin_model){0};
    if (kin_gguf_open(&m->gguf, path, err) != 0) return KIN_FAIL;
    return finish_open(m, path, err);
}

int kin_model_open_bytes(kin_model *m, const char *name, const uint8_t *bytes, size_t size, kin_err *err) {
    *m = (kin_model){0};
    if (kin_gguf_open_bytes(&m->gguf, name, bytes, size, err) != 0) return KIN_FAIL;
    return finish_open(m, name, err);
}

void kin_model_close(kin_model *m) {
    if (!m) return;
    free(m->layers);
    free(m->hp.layers);
    kin_gguf_close(m->gguf);
    *m = (kin_model){0};
}

const kin_gguf_tensor *kin_model_rope_factors(const kin_model *m, int n_ctx) {
    return m->rope_factors_long && n_ctx > m->hp.ropes[0].n_ctx_orig ? m->rope_factors_long : m->rope_factors;
}

uint64_t kin_model_layer_bytes(const kin_model *m, int il) {
    uint64_t sum = 0;
    for (int w = 0; w < KIN_W_COUNT; w++) sum += m->layers[il].w[w] ? m->layers[il].w[w]->n_bytes : 0;
    return sum;
}

uint64_t kin_model_stream_end_bytes(const kin_model *m) {
    uint64_t sum = 0;
    for (int i = 0; i < KIN_STREAM_ENDS; i++) sum += m->stream_ends[i] ? m->stream_ends[i]->n_bytes : 0;
    return sum;
}

uint64_t kin_model_bytes_per_token(const kin_model *m) {
    const kin_hparams *hp = &m->hp;
    uint64_t sum = m->output->n_bytes + m->token_embd->n_bytes / (uint64_t)hp->n_vocab;
    if (m->output_norm) sum += m->output_norm->n_bytes;
    if (m->ngram_embd) sum += m->ngram_embd->n_bytes / (uint64_t)m->ngram_embd->ne[1] * (uint64_t)kin_ngram_n_rows(&hp->ngram);
    if (m->input_embd) sum += m->input_embd->n_bytes / (uint64_t)hp->n_vocab + m->input_proj->n_bytes;
    sum += kin_model_stream_end_bytes(m);
    for (int il = 0; il < hp->n_layer; il++) {
        for (int w = 0; w < KIN_W_COUNT; w++) {
            const kin_gguf_tensor *t = m->layers[il].w[w];
            if (!t) continue;
            sum += kin_weight_is_experts(w) ? t->n_bytes / (uint64_t)hp->n_expert * (uint64_t)hp->n_expert_used : t->n_bytes;
        }
    }
    return sum;
}

uint64_t kin_model_n_params(const kin_model *m) {
    uint64_t sum = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        sum += (uint64_t)t->ne[0] * (uint64_t)t->ne[1] * (uint64_t)t->ne[2] * (uint64_t)t->ne[3];
    }
    return sum;
}
