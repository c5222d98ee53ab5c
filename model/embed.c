#include "model/embed.h"

#include <ggml.h>
#include <math.h>
#include <string.h>

enum { PART_BYTES = 8 << 10 }; // bytes of a row read at once

// x // f32 [n_embd]: one row, read and dequantized in parts of whole blocks.
static int embed_row(const kin_model *model, int32_t token, float *x, kin_err *err) {
    const kin_gguf_tensor *t = model->token_embd;
    enum ggml_type type = (enum ggml_type)t->type;
    ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
    int64_t n_embd = model->hp.n_embd, block = ggml_blck_size(type);
    int64_t part = PART_BYTES / (int64_t)ggml_type_size(type) * block;
    uint64_t at = (uint64_t)token * ggml_row_size(type, n_embd);
    uint8_t bytes[PART_BYTES];

    for (int64_t done = 0; done < n_embd; done += part) {
        int64_t n = n_embd - done < part ? n_embd - done : part;
        size_t n_bytes = ggml_row_size(type, n);
        if (kin_gguf_read(model->gguf, t, at, bytes, n_bytes, err) != 0) return KIN_FAIL;
        if (type == GGML_TYPE_F32)
            memcpy(x + done, bytes, n_bytes);
        else
            to_float(bytes, x + done, n);
        at += n_bytes;
    }
    return 0;
}

// x /= sqrt(mean(x^2) + eps)
static void normalize(const kin_hparams *hp, float *x) {
    double squares = 0;
    for (int i = 0; i < hp->n_embd; i++) squares += (double)x[i] * (double)x[i];
    const float scale = (float)(1 / sqrt(squares / hp->n_embd + (double)hp->rms_eps));
    for (int i = 0; i < hp->n_embd; i++) x[i] *= scale;
}

int kin_embed(const kin_model *model, const int32_t *tokens, int n, float *x, kin_err *err) {
    for (int i = 0; i < n; i++, x += model->hp.n_embd) {
        if (tokens[i] < 0 || tokens[i] >= model->hp.n_vocab) {
            return kin_err_set(err, "token %d is not in the vocabulary (0..%d)", tokens[i], model->hp.n_vocab - 1);
        }
        if (embed_row(model, tokens[i], x, err) != 0) return KIN_FAIL;
        if (model->hp.norms_embedding) normalize(&model->hp, x);
        for (int k = 0; k < model->hp.n_embd && model->hp.embedding_scale != 1; k++) x[k] *= model->hp.embedding_scale;
    }
    return 0;
}
