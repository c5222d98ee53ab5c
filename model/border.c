#include "model/border.h"

enum { CHOICE_UNIT = 32 }; // numbers of a choice are a multiple of it, as activations on the wire may have to be

// Adds the layer whose keys and values layer `il` reads, if it lies before the border and is not known yet.
static void add_source(const kin_hparams *hp, kin_border *b, int il) {
    const kin_layer layer = kin_layer_of(hp, il);
    const int of = il - layer.kv_back;
    int at = 0;
    if (layer.kv_back == 0 || of >= b->il) return;
    while (at < b->n_sources && b->sources[at] < of) at++;
    if (at < b->n_sources && b->sources[at] == of) return;
    kin_assert(b->n_sources < KIN_BORDER_SOURCES);
    for (int i = b->n_sources++; i > at; i--) {
        b->sources[i] = b->sources[i - 1];
        b->keys[i] = b->keys[i - 1];
    }
    b->sources[at] = of;
    b->keys[at] = kin_layer_n_embd_k(&layer) + kin_layer_n_embd_v(&layer);
    b->width += b->keys[at];
}

kin_border kin_border_before(const kin_hparams *hp, int il) {
    kin_border b = {.il = il, .stream = kin_hparams_stream_width(hp), .inputs = hp->n_input * (hp->n_layer - il)};
    if (hp->ngram.size > 0 && il <= hp->ngram.layer) b.ngrams = kin_ngram_width(&hp->ngram);
    b.width = b.stream + b.inputs + b.ngrams;
    for (int k = il; k < hp->n_layer; k++) add_source(hp, &b, k);
    if (il < hp->n_layer && kin_layer_of(hp, il).choice_back > 0)
        b.choice = (KIN_CHOICE_DIGITS * hp->indexer.n_chosen + CHOICE_UNIT - 1) / CHOICE_UNIT * CHOICE_UNIT;
    b.width += b.choice;
    return b;
}

int kin_border_most(const kin_hparams *hp) {
    int most = 0;
    for (int il = 0; il <= hp->n_layer; il++) {
        const int width = kin_border_before(hp, il).width;
        if (width > most) most = width;
    }
    return most;
}

int kin_border_mean(const kin_hparams *hp) {
    int64_t sum = 0;
    for (int il = 0; il <= hp->n_layer; il++) sum += kin_border_before(hp, il).width;
    return (int)((sum + hp->n_layer) / (hp->n_layer + 1));
}

bool kin_border_is_plain(const kin_hparams *hp) {
    return kin_border_most(hp) == kin_hparams_stream_width(hp);
}
