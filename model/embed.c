#include "model/embed.h"

#include <ggml.h>
#include <string.h>

int kin_embed(const kin_model *model, const int32_t *tokens, int n, float *x, kin_err *err) {
    const kin_gguf_tensor *t = model->token_embd;
    int64_t n_embd = model->hp.n_embd;
    size_t row_bytes = ggml_row_size((enum ggml_type)t->type, n_embd);
    ggml_to_float_t to_float = ggml_get_type_traits((enum ggml_type)t->type)->to_float;

    for (int i = 0; i < n; i++, x += n_embd) {
        if (tokens[i] < 0 || tokens[i] >= model->hp.n_vocab) {
            return kin_err_set(err, "token %d is not in the vocabulary (0..%d)", tokens[i], model->hp.n_vocab - 1);
        }
        const uint8_t *row = t->data + (size_t)tokens[i] * row_bytes;
        if (t->type == GGML_TYPE_F32)
            memcpy(x, row, row_bytes);
        else
            to_float(row, x, n_embd);
    }
    return 0;
}
