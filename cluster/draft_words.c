#include "cluster/draft_words.h"

#include <string.h>

static const double ACCEPTED = 0.7; // published for one token by such blocks: 0.7 to 0.9

int kin_draft_words_read(const char *text, kin_draft_mode *mode, const char **file, kin_err *err) {
    static const char *const words[] = {
        [KIN_DRAFT_AUTO] = "auto", [KIN_DRAFT_OFF] = "off", [KIN_DRAFT_ALSO_INEXACT] = "ngram", [KIN_DRAFT_BLOCK] = "mtp"};
    *file = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        *mode = (kin_draft_mode)i;
        if (strcmp(text, words[i]) == 0) return 0;
        if (strncmp(text, words[i], n) != 0 || (text[n] != ',' && (text[n] != ':' || i != KIN_DRAFT_BLOCK))) continue;
        if (text[n] == ':' && text[n + 1]) {
            *file = text + n + 1;
            return 0;
        }
        if (text[n] == ':') return kin_err_set(err, "--draft %s: the file of the draft blocks is missing after the colon", text);
        if (i == KIN_DRAFT_OFF || i == KIN_DRAFT_BLOCK)
            return kin_err_set(err, "--draft %s: %s cannot be combined with a draft model", text, words[i]);
        if (text[n + 1] == '\0') return kin_err_set(err, "--draft %s: the draft model file is missing after the comma", text);
        *file = text + n + 1;
        return 0;
    }
    *mode = KIN_DRAFT_AUTO;
    *file = text;
    if (strchr(text, '.') || strchr(text, '/')) return 0;
    return kin_err_set(err, "--draft %s: must be auto, off, ngram, mtp, mtp:FILE, or a draft model file", text);
}

// Returns the bytes that a token reads of a model's layers, and of these the experts' in *experts.
static double layer_bytes(const kin_model *m, double *experts) {
    double sum = 0;
    *experts = 0;
    for (int il = 0; il < m->hp.n_layer; il++) {
        for (int w = 0; w < KIN_W_COUNT; w++) {
            const kin_gguf_tensor *t = m->layers[il].w[w];
            if (!t) continue;
            const double share = kin_weight_is_experts((kin_weight)w) ? (double)m->hp.n_expert_used / m->hp.n_expert : 1;
            sum += share * (double)t->n_bytes;
            if (kin_weight_is_experts((kin_weight)w)) *experts += share * (double)t->n_bytes;
        }
    }
    return sum;
}

static double all_bytes(const kin_model *m) {
    double sum = (double)m->output->n_bytes;
    for (int il = 0; il < m->hp.n_layer; il++) sum += (double)kin_model_layer_bytes(m, il);
    return sum;
}

double kin_draft_block_gain(const kin_model *m, const kin_draft_block *b, uint64_t memory) {
    double experts, of_block;
    const double token = layer_bytes(m, &experts) + (double)m->output->n_bytes;
    const double block = layer_bytes(&b->view, &of_block) + (double)b->view.output->n_bytes;
    const double more = all_bytes(m) > (double)memory ? experts / token : 0;
    return (1 + ACCEPTED) / (1 + more + block / token);
}

bool kin_draft_block_fits(const kin_model *m, uint64_t bytes, uint64_t room, uint64_t fixed) {
    const double left = room > fixed ? (double)(room - fixed) : 0, block = (double)bytes, weights = all_bytes(m);
    if (block > (double)room / 10 || block > left / 2) return false;
    if (weights <= left) return weights + block <= left;
    return weights - left >= 4 * block;
}
