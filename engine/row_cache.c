#include "engine/row_cache.h"

#include <stdlib.h>
#include <string.h>

#include "model/row.h"

enum { N_PLACES = KIN_ROW_CACHE_PLACES };

struct kin_row_cache {
    const kin_gguf *gguf;
    const kin_gguf_tensor *table;
    size_t width;
    uint64_t *numbers; // [N_PLACES] the row's number plus 1; 0: none
    float *rows;       // [N_PLACES, width]
    uint64_t n_read;
};

int kin_row_cache_open(kin_row_cache **out, const kin_gguf *gguf, const kin_gguf_tensor *table, kin_err *err) {
    kin_row_cache *c = *out = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->gguf = gguf;
    c->table = table;
    c->width = (size_t)table->ne[0];
    c->numbers = calloc(N_PLACES, sizeof *c->numbers);
    c->rows = malloc(N_PLACES * c->width * sizeof *c->rows);
    if (c->numbers && c->rows) return 0;
    kin_row_cache_close(c);
    *out = NULL;
    return kin_err_set(err, "out of memory");
}

void kin_row_cache_close(kin_row_cache *c) {
    if (!c) return;
    free(c->numbers);
    free(c->rows);
    free(c);
}

int kin_row_cache_read(kin_row_cache *c, const uint64_t *rows, size_t n, float *to, kin_err *err) {
    for (size_t i = 0; i < n; i++)
        if (c->numbers[rows[i] % N_PLACES] != rows[i] + 1) kin_row_prefetch(c->gguf, c->table, rows[i]);
    for (size_t i = 0; i < n; i++) {
        const size_t place = rows[i] % N_PLACES;
        float *row = c->rows + place * c->width;
        if (c->numbers[place] != rows[i] + 1) {
            c->numbers[place] = 0;
            if (kin_row_read(c->gguf, c->table, rows[i], row, err) != 0) return KIN_FAIL;
            c->numbers[place] = rows[i] + 1;
            c->n_read++;
        }
        memcpy(to + i * c->width, row, c->width * sizeof *to);
    }
    return 0;
}

uint64_t kin_row_cache_n_read(const kin_row_cache *c) {
    return c->n_read;
}
