#include "engine/shared_choice.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

uint64_t kin_shared_choice_bytes(const kin_hparams *hp, int n_batch) {
    const uint64_t bytes = (uint64_t)hp->indexer.n_chosen * (uint64_t)n_batch * sizeof(int32_t);
    return kin_hparams_shares_choices(hp) ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
}

int kin_shared_choice_open(kin_shared_choice *c, const kin_hparams *hp, int n_batch, kin_err *err) {
    const size_t bytes = (size_t)kin_shared_choice_bytes(hp, n_batch);
    *c = (kin_shared_choice){0};
    if (bytes == 0) return 0;
    c->ctx = ggml_init((struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    c->memory = aligned_alloc(ALIGNMENT, bytes);
    if (c->ctx && c->memory) {
        memset(c->memory, 0, bytes);
        c->buffer = ggml_backend_cpu_buffer_from_ptr(c->memory, bytes);
        c->at = ggml_new_tensor_2d(c->ctx, GGML_TYPE_I32, hp->indexer.n_chosen, n_batch);
    }
    if (c->buffer && ggml_backend_tensor_alloc(c->buffer, c->at, c->memory) == GGML_STATUS_SUCCESS) return 0;
    kin_shared_choice_close(c);
    return kin_err_set(err, "out of memory");
}

void kin_shared_choice_close(kin_shared_choice *c) {
    ggml_backend_buffer_free(c->buffer);
    if (c->ctx) ggml_free(c->ctx);
    free(c->memory);
    *c = (kin_shared_choice){0};
}

static int32_t *choice_of(const kin_shared_choice *c, int token) {
    return (int32_t *)((char *)c->at->data + (size_t)token * c->at->nb[1]);
}

void kin_shared_choice_give(const kin_shared_choice *c, int n, const int32_t *n_seen, int width, float *rows) {
    const int n_chosen = (int)c->at->ne[0];
    memset(rows, 0, (size_t)n * (size_t)width * sizeof *rows);
    for (int token = 0; token < n; token++, rows += width) {
        const int32_t *at = choice_of(c, token);
        for (int i = 0; i < n_chosen && n_seen[token] > n_chosen; i++) {
            int32_t left = at[i];
            for (int digit = 0; digit < KIN_CHOICE_DIGITS; digit++, left /= KIN_CHOICE_BASE)
                rows[digit * n_chosen + i] = (float)(left % KIN_CHOICE_BASE);
        }
    }
}

// Returns the position that the digits encode, or KIN_FAIL if one is out of range. Rounding on the wire changes a digit by less
// than a half.
static int32_t position_of(const float *digits, int apart) {
    int32_t pos = 0;
    for (int digit = KIN_CHOICE_DIGITS - 1; digit >= 0; digit--) {
        const float x = digits[digit * apart];
        if (!(x > -0.5f && x < KIN_CHOICE_BASE - 0.5f)) return KIN_FAIL;
        pos = pos * KIN_CHOICE_BASE + (int32_t)(x + 0.5f);
    }
    return pos;
}

int kin_shared_choice_take(const kin_shared_choice *c, int n, const int32_t *n_seen, int width, const float *rows, kin_err *err) {
    const int n_chosen = (int)c->at->ne[0];
    for (int token = 0; token < n; token++, rows += width) {
        int32_t *at = choice_of(c, token), before = -1;
        for (int i = 0; i < n_chosen && n_seen[token] > n_chosen; i++) {
            at[i] = position_of(rows + i, n_chosen);
            if (at[i] <= before || at[i] >= n_seen[token])
                return kin_err_set(err, "a step whose token %d does not see a choice of the %d tokens up to it", token,
                                   (int)n_seen[token]);
            before = at[i];
        }
    }
    return 0;
}
