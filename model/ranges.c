#include "model/ranges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum part {
    PART_EMBEDDING,
    PART_SHARED,
    PART_LAYER,
    PART_OUTPUT,
} part;

typedef struct placed {
    part part;
    int il; // for PART_LAYER
    const kin_gguf_tensor *tensor;
    kin_slice slice;
} placed;

// "blk.17.attn_q.weight" -> 17, else -1
static int layer_of(kin_str name) {
    char text[16] = "";
    int il, end = 0;
    memcpy(text, name.at, name.len < sizeof text - 1 ? name.len : sizeof text - 1);
    return sscanf(text, "blk.%8d.%n", &il, &end) == 1 && end > 0 && il >= 0 ? il : -1;
}

static part part_of(const kin_gguf_tensor *t, bool tied, bool output_wanted) {
    if (layer_of(t->name) >= 0) return PART_LAYER;
    if (kin_str_eq(t->name, "token_embd.weight")) return tied && output_wanted ? PART_OUTPUT : PART_EMBEDDING;
    if (t->name.len > 10 && memcmp(t->name.at, "per_layer_", 10) == 0) return PART_EMBEDDING;
    if (kin_str_eq(t->name, "output.weight") || (t->name.len > 7 && memcmp(t->name.at, "output_", 7) == 0)) return PART_OUTPUT;
    return PART_SHARED;
}

static bool is_wanted(const placed *p, const kin_ranges_wanted *w) {
    switch (p->part) {
    case PART_EMBEDDING: return w->embedding;
    case PART_SHARED: return true;
    case PART_LAYER: return p->il >= w->layer_begin && p->il < w->layer_end;
    case PART_OUTPUT: return w->output;
    }
    return false;
}

static int compare_ranges(const void *left, const void *right) {
    const placed *a = left, *b = right;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (a->il != b->il) return a->il < b->il ? -1 : 1;
    const kin_gguf_tensor *s = a->tensor, *t = b->tensor;
    if (s->i_file != t->i_file) return s->i_file < t->i_file ? -1 : 1;
    return (s->offset > t->offset) - (s->offset < t->offset);
}

// Returns the name of a layer's tensor after "blk.17."
static const char *name_in_layer(kin_str name, char *text, size_t n) {
    memset(text, 0, n);
    memcpy(text, name.at, name.len < n - 1 ? name.len : n - 1);
    const char *dot = strchr(text + strlen("blk."), '.');
    return dot ? dot + 1 : "";
}

// Families use some names for different weights, of which a model has one: slices are those of the one that is sliced.
static kin_slice slice_of(const kin_slices *slices, const char *name) {
    for (int id = 0; id < KIN_W_COUNT; id++)
        if (slices->of[id].dim != KIN_SLICE_FULL && strcmp(kin_weight_name(id), name) == 0) return slices->of[id];
    return (kin_slice){0};
}

// Collects the wanted tensors in the order of need; returns their number.
static size_t pick(const kin_gguf *gguf, const kin_ranges_wanted *w, placed *out) {
    bool tied = !kin_gguf_find_tensor(gguf, "output.weight");
    size_t n = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        int il = layer_of(t->name);
        placed p = {.part = part_of(t, tied, w->output), .il = il, .tensor = t};
        if (p.part == PART_LAYER) {
            char text[80];
            const char *name = name_in_layer(t->name, text, sizeof text);
            if (kin_weight_find(name) < 0) continue; // kin never reads it
            p.slice = slice_of(&w->slices, name);
        }
        // A tied output and the embedding are the same tensor: it is fetched when the embedding is needed.
        if (p.part == PART_OUTPUT && w->embedding && kin_str_eq(t->name, "token_embd.weight")) p.part = PART_EMBEDDING;
        if (is_wanted(&p, w)) out[n++] = p;
    }
    qsort(out, n, sizeof *out, compare_ranges);
    return n;
}

static int expect_layers(const kin_ranges_wanted *w, const placed *picked, size_t n, kin_err *err) {
    int il = w->layer_begin; // the next expected layer; tensors are sorted by layer
    if (w->layer_begin < 0 || w->layer_end < w->layer_begin) {
        return kin_err_set(err, "invalid range of layers, %d to %d", w->layer_begin, w->layer_end);
    }
    for (size_t i = 0; i < n; i++) il += picked[i].part == PART_LAYER && picked[i].il == il;
    return il == w->layer_end ? 0 : kin_err_set(err, "the model has no tensors of layer %d", il);
}

static int check_slices(const placed *picked, size_t n, kin_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (kin_slice_check(&picked[i].slice, picked[i].tensor, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Returns the runs of a slice.
static kin_slice_view view_of(const placed *p) {
    kin_slice_view v = kin_slice_view_of(&p->slice, p->tensor);
    if (v.n_runs > KIN_RANGES_RUNS_MAX)
        v = (kin_slice_view){.first = v.first, .run = (v.n_runs - 1) * v.stride + v.run, .n_runs = 1};
    return v;
}

static size_t count_runs(const placed *picked, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += view_of(&picked[i]).n_runs;
    return sum;
}

// over_padding: the bytes between the last range and this one belong to no tensor.
static void add_range(kin_range *ranges, size_t *n, kin_range r, bool over_padding) {
    const uint64_t gap_end = over_padding ? 4096 : 1;
    kin_range *last = *n > 0 ? &ranges[*n - 1] : NULL;
    if (last && last->i_file == r.i_file && r.offset >= last->offset + last->bytes &&
        r.offset - (last->offset + last->bytes) < gap_end) {
        last->bytes = r.offset + r.bytes - last->offset;
    } else {
        ranges[(*n)++] = r;
    }
}

static void add_tensors(kin_range *ranges, size_t *n, const placed *picked, size_t n_picked) {
    bool ended = true; // the last range ends where a tensor does
    for (size_t i = 0; i < n_picked; i++) {
        const kin_gguf_tensor *t = picked[i].tensor;
        kin_slice_view v = view_of(&picked[i]);
        for (uint64_t k = 0; k < v.n_runs; k++) {
            uint64_t at = v.first + k * v.stride;
            add_range(ranges, n, (kin_range){.i_file = t->i_file, .offset = t->offset + at, .bytes = v.run}, ended && at == 0);
            ended = at + v.run == t->n_bytes;
        }
    }
}

// Returns the range up to the first tensor's data; a file without tensors is all header.
static kin_range header_of(const kin_gguf *gguf, int i_file) {
    uint64_t end = kin_gguf_file_size(gguf, i_file);
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        if (t->i_file == i_file && t->offset < end) end = t->offset;
    }
    return (kin_range){.i_file = i_file, .bytes = end};
}

int kin_ranges_list(const kin_gguf *gguf, const kin_ranges_wanted *w, kin_range **ranges, size_t *n, kin_err *err) {
    size_t n_files = (size_t)kin_gguf_n_files(gguf), n_tensors = kin_gguf_n_tensors(gguf);
    placed *picked = calloc(n_tensors + 1, sizeof *picked);
    *ranges = NULL;
    *n = 0;
    int rc = picked ? 0 : kin_err_set(err, "out of memory for the ranges of %zu tensors", n_tensors);
    size_t n_picked = rc == 0 ? pick(gguf, w, picked) : 0;
    if (rc == 0) rc = expect_layers(w, picked, n_picked, err);
    if (rc == 0) rc = check_slices(picked, n_picked, err);
    if (rc == 0) *ranges = calloc(n_files + count_runs(picked, n_picked), sizeof **ranges);
    if (rc == 0 && !*ranges) rc = kin_err_set(err, "out of memory for the ranges of %zu tensors", n_tensors);
    for (size_t i = 0; i < n_files && w->header && rc == 0; i++) add_range(*ranges, n, header_of(gguf, (int)i), true);
    if (rc == 0) add_tensors(*ranges, n, picked, n_picked);
    free(picked);
    return rc;
}

uint64_t kin_ranges_bytes(const kin_range *ranges, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += ranges[i].bytes;
    return sum;
}

int kin_ranges_chunks(const kin_manifest *m, const kin_range *ranges, size_t n, uint32_t **chunks, size_t *n_chunks,
                      kin_err *err) {
    bool *seen = calloc(m->n_chunks, sizeof *seen);
    *chunks = calloc(m->n_chunks, sizeof **chunks);
    *n_chunks = 0;
    int rc = seen && *chunks ? 0 : kin_err_set(err, "out of memory for a list of %u chunks", (unsigned)m->n_chunks);
    for (size_t i = 0; i < n && rc == 0; i++) {
        uint32_t begin = 0, end = 0;
        rc = kin_manifest_chunks_of_range(m, ranges[i].i_file, ranges[i].offset, ranges[i].bytes, &begin, &end, err);
        for (uint32_t c = begin; c < end && rc == 0; c++) {
            if (!seen[c]) (*chunks)[(*n_chunks)++] = c;
            seen[c] = true;
        }
    }
    free(seen);
    if (rc == 0) return 0;
    free(*chunks);
    *chunks = NULL;
    return KIN_FAIL;
}

static int mark_needed(const kin_manifest *m, const kin_range *r, bool *is_private, kin_err *err) {
    uint32_t begin, end;
    if (kin_manifest_chunks_of_range(m, r->i_file, r->offset, r->bytes, &begin, &end, err) != 0) return KIN_FAIL;
    for (uint32_t c = begin; c < end; c++) is_private[c] = false;
    return 0;
}

int kin_ranges_private(const kin_gguf *gguf, const kin_manifest *m, bool *is_private, kin_err *err) {
    for (uint32_t c = 0; c < m->n_chunks; c++) is_private[c] = true;
    for (int i = 0; i < kin_gguf_n_files(gguf); i++) {
        kin_range r = header_of(gguf, i);
        if (mark_needed(m, &r, is_private, err) != 0) return KIN_FAIL;
    }
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        part p = part_of(t, false, false);
        kin_range r = {.i_file = t->i_file, .offset = t->offset, .bytes = t->n_bytes};
        if (p != PART_EMBEDDING && p != PART_OUTPUT && mark_needed(m, &r, is_private, err) != 0) return KIN_FAIL;
    }
    return 0;
}
