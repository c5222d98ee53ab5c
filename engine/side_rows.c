#include "engine/side_rows.h"

#include <stdlib.h>
#include <string.h>

// Returns the border with everything that crosses any of them: of the first layer the inputs, of all layers the sources and the
// choice.
static kin_border all_of(const kin_hparams *hp) {
    kin_border all = kin_border_before(hp, 0);
    for (int il = 1; il < hp->n_layer; il++) {
        const kin_border b = kin_border_before(hp, il);
        if (b.choice > all.choice) all.choice = b.choice;
        for (int i = 0; i < b.n_sources; i++) {
            int at = 0;
            while (at < all.n_sources && all.sources[at] != b.sources[i]) at++;
            if (at < all.n_sources) continue;
            kin_assert(at < KIN_BORDER_SOURCES);
            all.sources[all.n_sources] = b.sources[i];
            all.keys[all.n_sources++] = b.keys[i];
        }
    }
    return all;
}

uint64_t kin_side_rows_bytes(const kin_hparams *hp, int n_batch) {
    const kin_border all = all_of(hp);
    uint64_t n = (uint64_t)all.inputs + (uint64_t)all.ngrams + (uint64_t)all.choice;
    for (int i = 0; i < all.n_sources; i++) n += (uint64_t)all.keys[i];
    return n > 0 ? ((uint64_t)all.stream + n) * (uint64_t)n_batch * sizeof(float) : 0;
}

int kin_side_rows_open(kin_side_rows *s, const kin_hparams *hp, int n_batch, kin_err *err) {
    *s = (kin_side_rows){.all = all_of(hp)};
    if (kin_border_is_plain(hp)) return 0;
    const size_t bytes = (size_t)n_batch * sizeof(float);
    s->x = malloc(bytes * (size_t)s->all.stream);
    s->inputs = s->all.inputs > 0 ? malloc(bytes * (size_t)s->all.inputs) : NULL;
    s->ngrams = s->all.ngrams > 0 ? malloc(bytes * (size_t)s->all.ngrams) : NULL;
    s->choice = s->all.choice > 0 ? malloc(bytes * (size_t)s->all.choice) : NULL;
    bool ok = s->x && (s->inputs || s->all.inputs == 0) && (s->ngrams || s->all.ngrams == 0) && (s->choice || s->all.choice == 0);
    for (int i = 0; i < s->all.n_sources; i++) {
        s->keys[i] = malloc(bytes * (size_t)s->all.keys[i]);
        ok = ok && s->keys[i];
    }
    if (ok) return 0;
    kin_side_rows_close(s);
    return kin_err_set(err, "out of memory");
}

void kin_side_rows_close(kin_side_rows *s) {
    free(s->x);
    free(s->inputs);
    free(s->ngrams);
    free(s->choice);
    for (int i = 0; i < KIN_BORDER_SOURCES; i++) free(s->keys[i]);
    *s = (kin_side_rows){0};
}

float *kin_side_rows_keys(const kin_side_rows *s, int source, int token) {
    int i = 0;
    while (s->all.sources[i] != source) i++;
    return s->keys[i] + (size_t)token * (size_t)s->all.keys[i];
}

// Calls copy(row, field, floats) for each field of each row at the border.
static void for_fields(const kin_side_rows *s, const kin_hparams *hp, int il, int n, float *rows,
                       void (*copy)(float *row, float *field, size_t n)) {
    const kin_border b = kin_border_before(hp, il);
    const size_t skipped = (size_t)(s->all.inputs - b.inputs);
    for (int i = 0; i < n; i++) {
        copy(rows, s->x + (size_t)i * (size_t)b.stream, (size_t)b.stream);
        rows += b.stream;
        if (b.inputs > 0) copy(rows, s->inputs + (size_t)i * (size_t)s->all.inputs + skipped, (size_t)b.inputs);
        rows += b.inputs;
        if (b.ngrams > 0) copy(rows, s->ngrams + (size_t)i * (size_t)b.ngrams, (size_t)b.ngrams);
        rows += b.ngrams;
        for (int k = 0; k < b.n_sources; k++) {
            copy(rows, kin_side_rows_keys(s, b.sources[k], i), (size_t)b.keys[k]);
            rows += b.keys[k];
        }
        if (b.choice > 0) copy(rows, s->choice + (size_t)i * (size_t)b.choice, (size_t)b.choice);
        rows += b.choice;
    }
}

static void copy_out(float *row, float *field, size_t n) {
    memcpy(field, row, n * sizeof *row);
}

static void copy_in(float *row, float *field, size_t n) {
    memcpy(row, field, n * sizeof *row);
}

void kin_side_rows_take(kin_side_rows *s, const kin_hparams *hp, int il, int n, const float *rows) {
    for_fields(s, hp, il, n, (float *)rows, copy_out);
}

void kin_side_rows_give(const kin_side_rows *s, const kin_hparams *hp, int il, int n, float *rows) {
    for_fields(s, hp, il, n, rows, copy_in);
}
