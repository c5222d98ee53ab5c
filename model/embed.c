#include "model/embed.h"

#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/panel.h"
#include "model/row.h"

// x /= sqrt(mean(x^2) + eps)
static void normalize(const kin_hparams *hp, int n, float *x) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    const float scale = (float)(1 / sqrt(squares / n + (double)hp->rms_eps));
    for (int i = 0; i < n; i++) x[i] *= scale;
}

int kin_embed(const kin_model *model, const int32_t *tokens, int n, float *x, kin_err *err) {
    for (int i = 0; i < n; i++, x += kin_hparams_stream_width(&model->hp)) {
        if (tokens[i] < 0 || tokens[i] >= model->hp.n_vocab) {
            return kin_err_set(err, "token %d is not in the vocabulary (0..%d)", tokens[i], model->hp.n_vocab - 1);
        }
        if (kin_row_read(model->gguf, model->token_embd, (uint64_t)tokens[i], x, err) != 0) return KIN_FAIL;
        if (model->hp.norms_embedding) normalize(&model->hp, model->hp.n_embd, x);
        for (int k = 0; k < model->hp.n_embd && model->hp.embedding_scale != 1; k++) x[k] *= model->hp.embedding_scale;
        for (int s = 1; s < model->hp.n_streams; s++) memcpy(x + s * model->hp.n_embd, x, (size_t)model->hp.n_embd * sizeof *x);
    }
    return 0;
}

// ---- inputs of the layers

size_t kin_embed_n_inputs(const kin_model *model) {
    return (size_t)model->hp.n_input * (size_t)model->hp.n_layer;
}

// y // f32 [n, t->ne[1]] = products of x // f32 [n, t->ne[0]] with the rows of a matrix, a panel of rows at a time.
static int multiply(const kin_gguf_tensor *t, int n, const float *x, float *y, kin_err *err) {
    const kin_kernels *kernels = kin_kernels_choose(err);
    const size_t row_bytes = ggml_row_size((enum ggml_type)t->type, t->ne[0]);
    const bool is_plain = kin_kernel_act_kind((int)t->type) == KIN_ACT_F32 && !kin_kernel_packs((int)t->type);
    const ggml_to_float_t to_float = ggml_get_type_traits((enum ggml_type)t->type)->to_float;
    if (!kernels) return KIN_FAIL;
    float *rows = is_plain ? NULL : malloc((size_t)(KIN_PANEL_ROWS * t->ne[0]) * sizeof *rows);
    if (!is_plain && !rows) return kin_err_set(err, "out of memory");
    for (int64_t r = 0; r < t->ne[1]; r += KIN_PANEL_ROWS) {
        kin_matrix m = {
            .type = is_plain ? (int)t->type : KIN_TYPE_F32, .columns = t->ne[0], .data = t->data + (size_t)r * row_bytes};
        m.rows = t->ne[1] - r < KIN_PANEL_ROWS ? t->ne[1] - r : KIN_PANEL_ROWS;
        for (int64_t i = 0; i < m.rows && rows; i++)
            to_float(t->data + (size_t)(r + i) * row_bytes, rows + i * t->ne[0], t->ne[0]);
        if (rows) m.data = rows;
        kernels->matmul(&m, NULL, x, n, y + r, t->ne[1], 0, 1);
    }
    free(rows);
    return 0;
}

// input = (rms(proj x / sqrt(n_embd)) norm + sqrt(n_input) row(token)) / sqrt(2), for each layer
int kin_embed_inputs(const kin_model *model, const int32_t *tokens, int n, const float *x, float *inputs, kin_err *err) {
    const kin_hparams *hp = &model->hp;
    const size_t all = kin_embed_n_inputs(model);
    const float *norm = (const float *)model->input_norm->data, of_width = 1 / sqrtf((float)hp->n_embd);
    const float of_row = sqrtf((float)hp->n_input), of_sum = 1 / sqrtf(2);
    float *row = malloc(all * sizeof *row);
    int rc = row ? multiply(model->input_proj, n, x, inputs, err) : kin_err_set(err, "out of memory");
    for (int i = 0; i < n && rc == 0; i++) {
        rc = kin_row_read(model->gguf, model->input_embd, (uint64_t)tokens[i], row, err);
        for (size_t k = 0; k < all; k++) inputs[k] *= of_width;
        for (int il = 0; il < hp->n_layer; il++) normalize(hp, hp->n_input, inputs + il * hp->n_input);
        for (size_t k = 0; k < all; k++) inputs[k] = (inputs[k] * norm[k % (size_t)hp->n_input] + row[k] * of_row) * of_sum;
        inputs += all;
    }
    free(row);
    return rc;
}
