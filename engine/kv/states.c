#include "engine/kv/states.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// The parts of a state other than its log.
typedef struct bare_state {
    size_t n_history, n_matrices, matrix; // floats of the convolution's inputs; matrices, and floats of each
    size_t at, step;                      // the first matrix's place, and from each to the next
    size_t n_ngrams, ngrams_at;           // floats of the rows for an embedding of the last tokens, and their place
} bare_state;

typedef struct layer_states {
    float *at;     // NULL: the layer is not recurrent, or not here
    size_t floats; // of a state
    bare_state bare;
} layer_states;

struct kin_kv_states {
    int n_layer;
    layer_states *layers; // [n_layer] of the model
    void *memory;
    size_t bytes;
};

static bare_state bare_of(const kin_hparams *hp, int il) {
    const kin_delta_net *d = &hp->delta;
    if (hp->conv.n_taps > 0) return (bare_state){.n_history = (size_t)(hp->conv.n_taps - 1) * (size_t)hp->n_embd};
    return (bare_state){.n_history = (size_t)(d->n_taps - 1) * (size_t)kin_delta_n_channels(d),
                        .n_matrices = (size_t)d->n_value_heads,
                        .matrix = (size_t)d->key_dim * (size_t)d->head_dim,
                        .at = kin_delta_history_floats(d),
                        .step = kin_delta_head_floats(d),
                        .n_ngrams = kin_ngram_state_floats(hp, il) / (size_t)(KIN_STATE_LOG + kin_ngram_n_before(hp)) *
                                    (size_t)kin_ngram_n_before(hp),
                        .ngrams_at = kin_delta_state_floats(d)};
}

static size_t bare_floats(const bare_state *b) {
    return b->n_history + b->n_matrices * b->matrix + b->n_ngrams;
}

size_t kin_kv_states_bare_floats(const kin_hparams *hp) {
    const bool has_ngrams = hp->ngram.size > 0;
    const bare_state b = bare_of(hp, has_ngrams ? hp->ngram.layer : 0);
    return kin_hparams_has_states(hp) ? bare_floats(&b) : 0;
}

int kin_kv_n_states(const kin_hparams *hp, int n_ctx) {
    enum { LEAST = 4, MOST = 64, TOKENS_EACH = 2048 };
    if (!kin_hparams_has_states(hp)) return 0;
    int n = LEAST + n_ctx / TOKENS_EACH;
    return n < MOST ? n : MOST;
}

uint64_t kin_kv_states_bytes(const kin_hparams *hp, const kin_windows *windows, int n_ctx) {
    uint64_t floats = 0;
    for (int i = 0; i < windows->n; i++) {
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++)
            if (kin_layer_of(hp, il).is_recurrent) floats += kin_state_floats(hp, il);
    }
    return floats ? (uint64_t)kin_kv_n_states(hp, n_ctx) * floats * sizeof(float) : 0;
}

// New pages from the OS take no memory until a sequence uses its state.
int kin_kv_states_open(kin_kv_states **out, const kin_hparams *hp, const kin_windows *windows, int n_ctx, kin_err *err) {
    *out = NULL;
    const size_t bytes = (size_t)kin_kv_states_bytes(hp, windows, n_ctx);
    if (bytes == 0) return 0;
    kin_kv_states *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->n_layer = hp->n_layer;
    s->bytes = bytes;
    s->layers = calloc((size_t)hp->n_layer, sizeof *s->layers);
    s->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->memory == MAP_FAILED) s->memory = NULL;
    if (!s->layers || !s->memory) {
        kin_kv_states_close(s);
        return kin_err_set(err, "out of memory: %zu MiB for the states of recurrent layers", bytes >> 20);
    }
    float *at = s->memory;
    for (int i = 0; i < windows->n; i++) {
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++) {
            if (!kin_layer_of(hp, il).is_recurrent) continue;
            s->layers[il] = (layer_states){at, kin_state_floats(hp, il), bare_of(hp, il)};
            at += s->layers[il].floats * (size_t)kin_kv_n_states(hp, n_ctx);
        }
    }
    *out = s;
    return 0;
}

void kin_kv_states_close(kin_kv_states *s) {
    if (!s) return;
    if (s->memory) munmap(s->memory, s->bytes);
    free(s->layers);
    free(s);
}

float *kin_kv_states_layer(const kin_kv_states *s, int il) {
    return s ? s->layers[il].at : NULL;
}

// Returns the place in a state of float `at` of its form without a log, and sets *n to how many floats follow each other there.
static size_t place_of(const bare_state *b, size_t at, size_t *n) {
    if (at < b->n_history) {
        *n = b->n_history - at;
        return at;
    }
    const size_t n_before = b->n_history + b->n_matrices * b->matrix;
    if (at >= n_before) {
        *n = b->n_ngrams - (at - n_before);
        return b->ngrams_at + at - n_before;
    }
    const size_t i = (at - b->n_history) / b->matrix, in_matrix = (at - b->n_history) % b->matrix;
    *n = b->matrix - in_matrix;
    return b->at + i * b->step + in_matrix;
}

// Returns how many of the n floats from `at` on there are.
static size_t n_there(const bare_state *b, size_t at, size_t n) {
    const size_t all = bare_floats(b), left = at < all ? all - at : 0;
    return n < left ? n : left;
}

void kin_kv_states_get(const kin_kv_states *s, int il, int state, size_t at, size_t n, float *to) {
    const layer_states *layer = &s->layers[il];
    const float *from = layer->at + (size_t)state * layer->floats;
    const size_t there = n_there(&layer->bare, at, n);
    for (size_t done = 0, some; done < there; done += some) {
        const size_t place = place_of(&layer->bare, at + done, &some);
        if (some > there - done) some = there - done;
        memcpy(to + done, from + place, some * sizeof *to);
    }
    memset(to + there, 0, (n - there) * sizeof *to);
}

void kin_kv_states_set(kin_kv_states *s, int il, int state, size_t at, size_t n, const float *from) {
    const layer_states *layer = &s->layers[il];
    float *to = layer->at + (size_t)state * layer->floats;
    const size_t there = n_there(&layer->bare, at, n);
    for (size_t done = 0, some; done < there; done += some) {
        const size_t place = place_of(&layer->bare, at + done, &some);
        if (some > there - done) some = there - done;
        memcpy(to + place, from + done, some * sizeof *to);
    }
}

int kin_state_copies_add(kin_state_copies *c, int from, int to, kin_err *err) {
    if (c->n == c->cap) {
        const int cap = c->cap ? 2 * c->cap : 8;
        void *larger = realloc(c->at, (size_t)cap * sizeof *c->at);
        if (!larger) return kin_err_set(err, "out of memory");
        c->at = larger;
        c->cap = cap;
    }
    c->at[c->n].from = from;
    c->at[c->n++].to = to;
    return 0;
}

void kin_kv_states_copy(kin_kv_states *s, int il, const kin_state_copies *c) {
    float *at = kin_kv_states_layer(s, il);
    const size_t floats = at ? s->layers[il].floats : 0;
    for (int i = 0; i < c->n && at; i++)
        memcpy(at + (size_t)c->at[i].to * floats, at + (size_t)c->at[i].from * floats, floats * sizeof *at);
}
