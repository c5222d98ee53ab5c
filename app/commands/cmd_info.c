// kin info: describes a model file and its memory requirements.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "base/units.h"
#include "cluster/session.h"
#include "engine/expert_history.h"
#include "engine/kv.h"
#include "model/arch.h"
#include "pure/text/escape.h"
#include "sys/memory.h"

typedef struct info_options {
    kin_session_options session;
    bool all;
} info_options;

enum { N_INFO_OPTIONS = 3, MAX_TYPES = 256 };

static void fill_info_table(info_options *o, kin_option table[N_INFO_OPTIONS]) {
    o->session = kin_session_options_defaults();
    o->session.console = &kin_app_console;
    const kin_option own[N_INFO_OPTIONS] = {
        {KIN_OPTION_STRING, "model", 'm', &o->session.model, "FILE", "GGUF model (default: the built-in demo model)", 0, 0},
        {KIN_OPTION_FLAG, "all", 'a', &o->all, NULL, "show all metadata and tensors", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

static void print_types(const kin_gguf *gguf) {
    uint64_t bytes[MAX_TYPES] = {0}, total = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        if (t->type < MAX_TYPES) bytes[t->type] += t->n_bytes;
        total += t->n_bytes;
    }
    char size[32];
    printf("weights      %s\n", kin_size_format(total, size, sizeof size));
    for (int type = 0; type < MAX_TYPES; type++) {
        if (!bytes[type]) continue;
        printf("  %-10s %10s  %5.1f %%\n", kin_gguf_type_name(type), kin_size_format(bytes[type], size, sizeof size),
               100.0 * (double)bytes[type] / (double)total);
    }
}

// Predicts which share of a token's experts is found in memory: by counts of earlier runs if there are any, else as many as are
// in memory. Texts use the same ones again soon, so a token finds more.
static void print_expert_hits(const kin_model *m, uint64_t experts, uint64_t others) {
    const kin_memory memory = kin_memory_read();
    const double room = memory.available > others ? (double)(memory.available - others) / (double)experts : 0;
    const double in_memory[] = {0.25, 0.5, 0.75, room < 1 ? room : 1};
    double hits[4];
    char folder[1024];
    kin_err err;
    const int rc = kin_expert_history_hits(kin_session_default_cache(folder, sizeof folder), m, in_memory, hits, 4, &err);
    if (rc == 0)
        printf("hits         by earlier runs a token finds about %.0f %% of its experts in memory with a quarter of them there, "
               "%.0f %% with a half, %.0f %% with three quarters; on this machine %.0f %%\n",
               100 * hits[0], 100 * hits[1], 100 * hits[2], 100 * hits[3]);
    else
        printf("hits         not counted yet: on this machine a token finds at least %.0f %% of its experts in memory, if it "
               "uses all "
               "alike\n",
               100 * in_memory[3]);
}

// A model whose experts do not all fit: what a part of them needs.
static void print_experts(const kin_model *m, uint64_t weights) {
    static const int shares[] = {50, 75, 98};
    char size[32];
    uint64_t experts = 0;
    for (int il = 0; il < m->hp.n_layer; il++)
        for (int id = 0; id < KIN_W_COUNT; id++)
            experts += m->layers[il].w[id] && kin_weight_is_experts((kin_weight)id) ? m->layers[il].w[id]->n_bytes : 0;
    if (experts == 0) return;
    printf("of these     %s of experts. In memory,", kin_size_format(experts, size, sizeof size));
    for (int i = 0; i < 3; i++)
        printf("%s %d %% of them need %s", i ? "," : "", shares[i],
               kin_size_format(weights - experts + experts / 100 * (uint64_t)shares[i], size, sizeof size));
    printf("\n");
    print_expert_hits(m, experts, weights - experts);
}

static void print_needs(const kin_model *m) {
    enum { N_BATCH = 512 };
    char a[32], b[32], c[32];
    kin_kv_options kv = {.windows = kin_windows_one(0, m->hp.n_layer, 0), .n_ctx = 4096, .type = GGML_TYPE_F16};
    if (kv.n_ctx > m->hp.n_ctx_train) kv.n_ctx = m->hp.n_ctx_train;
    const uint64_t per_token = kin_kv_bytes(&m->hp, &kv) - kin_kv_states_bytes(&m->hp, &kv.windows, kv.n_ctx);
    kv.window = kin_kv_window_of(&m->hp, kv.n_ctx, N_BATCH, 1);
    kin_memory mem = kin_memory_read();
    uint64_t states = kin_kv_states_bytes(&m->hp, &kv.windows, kv.n_ctx), kv_bytes = kin_kv_bytes(&m->hp, &kv), weights = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        const bool is_read_by_row = t == m->input_embd || t == m->ngram_embd;
        if (!is_read_by_row && !kin_model_ignores(m, t)) weights += t->n_bytes;
    }
    printf("per token    %s of weights read; %s of KV cache (f16)\n", kin_size_format(kin_model_bytes_per_token(m), a, sizeof a),
           kin_size_format(per_token / (uint64_t)kv.n_ctx, b, sizeof b));
    if (kv.window.n_blocks > 0)
        printf("window       %d tokens in some layers, which keep %d of the context's %d\n", kv.window.size,
               kv.window.n_blocks * KIN_KV_CELLS, kv.n_ctx);
    if (states > 0)
        printf("per sequence %s of states of recurrent layers; %d sequences can have them\n",
               kin_size_format(states / (uint64_t)kin_kv_n_states(&m->hp, kv.n_ctx), a, sizeof a),
               kin_kv_n_states(&m->hp, kv.n_ctx));
    if (kin_kv_checkpoint_gap(&m->hp, &kv) > 0)
        printf("checkpoints  %s of states on disk, every %d tokens and at the ends of turns\n",
               kin_size_format(kin_kv_checkpoint_bytes(&m->hp, &kv), a, sizeof a), kin_kv_checkpoint_gap(&m->hp, &kv));
    printf("needs        %s of weights in memory to run at full speed, %s for a context of %d\n",
           kin_size_format(weights, a, sizeof a), kin_size_format(kv_bytes, b, sizeof b), kv.n_ctx);
    print_experts(m, weights);
    printf("this machine %s available: %s\n", kin_size_format(mem.available, c, sizeof c),
           weights + kv_bytes < mem.available ? "it fits" : "it does not fit; the rest is read from disk for every token");
}

static void print_draft_blocks(const kin_model *m) {
    kin_draft_blocks blocks;
    kin_err why;
    char size[32];
    if (!kin_draft_blocks_are_in(m)) return;
    const bool drafts = kin_draft_blocks_open(&blocks, m, NULL, &why) == 0;
    if (!drafts)
        printf("drafts       none: %s\n", why.text);
    else if (blocks.n == 1)
        printf("drafts       by a block for multi-token prediction, %s\n",
               kin_size_format(kin_draft_blocks_bytes(&blocks), size, sizeof size));
    else
        printf("drafts       by %d blocks for multi-token prediction, %s\n", blocks.n,
               kin_size_format(kin_draft_blocks_bytes(&blocks), size, sizeof size));
    if (drafts) kin_draft_blocks_close(&blocks);
}

static void print_model(const kin_model *m, const char *name, const kin_vocab *vocab, const kin_err *vocab_err) {
    static const char *const kinds[] = {
        [KIN_VOCAB_SPM] = "SentencePiece", [KIN_VOCAB_BPE] = "byte-level BPE", [KIN_VOCAB_SPACED_BPE] = "BPE of characters"};
    const kin_hparams *hp = &m->hp;
    char size[32], shown[1024];
    printf("model        %s\n", kin_escape(shown, sizeof shown, name, strlen(name)));
    printf("family       %s (%s)\n", hp->arch->name, hp->arch->title);
    printf("parameters   %.3g billion\n", (double)kin_model_n_params(m) / 1e9);
    printf("layers       %d of width %d; %d heads (%d for keys and values) of %d; feed-forward %d\n", hp->n_layer, hp->n_embd,
           hp->n_head, hp->n_head_kv, hp->head_dim, hp->n_expert ? hp->n_ff_exp : hp->n_ff);
    if (hp->n_expert) printf("experts      %d, of which a token uses %d\n", hp->n_expert, hp->n_expert_used);
    printf("layer bytes  %s\n", kin_size_format(kin_model_layer_bytes(m, hp->n_layer / 2), size, sizeof size));
    if (hp->n_ctx_max > 0)
        printf("context      %d tokens; beyond them the model chooses which ones it sees, which kin does not compute\n",
               hp->n_ctx_train);
    else
        printf("context      %d tokens in training\n", hp->n_ctx_train);
    if (hp->indexer.n_chosen > 0)
        printf("indexer      %d heads of %d choose the %d %s that a token sees, if there are more\n", hp->indexer.n_head,
               hp->indexer.key_dim, hp->indexer.n_chosen, hp->compressed.window > 0 ? "compressed rows" : "tokens");
    if (m->ngram_embd)
        printf("on disk      %s of n-gram embeddings stay in the file: %d rows of them are read for a token, before layer %d\n",
               kin_size_format(m->ngram_embd->n_bytes, size, sizeof size), kin_ngram_n_rows(&hp->ngram), hp->ngram.layer);
    if (vocab)
        printf("vocabulary   %d tokens (%s)\n", hp->n_vocab, kinds[kin_vocab_get_kind(vocab)]);
    else
        printf("vocabulary   %d tokens; not usable for text: %s\n", hp->n_vocab,
               kin_escape(shown, sizeof shown, vocab_err->text, strlen(vocab_err->text)));
    print_draft_blocks(m);
    print_types(m->gguf);
    print_needs(m);
}

static void print_all(const kin_gguf *gguf) {
    char text[256], name[1024], value[4 * sizeof text];
    printf("\n");
    for (size_t i = 0; i < kin_gguf_n_meta(gguf); i++) {
        kin_str key = kin_gguf_meta_key(gguf, i);
        kin_gguf_meta_text(gguf, i, text, sizeof text);
        printf("%s = %s\n", kin_escape(name, sizeof name, key.at, key.len), kin_escape(value, sizeof value, text, strlen(text)));
    }
    printf("\n");
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        printf("%-40s %-8s %lld", kin_escape(name, sizeof name, t->name.at, t->name.len), kin_gguf_type_name(t->type),
               (long long)t->ne[0]);
        for (int d = 1; d < t->n_dims; d++) printf(" x %lld", (long long)t->ne[d]);
        printf("\n");
    }
}

static int command_info(int argc, char **argv) {
    info_options o = {0};
    kin_option table[N_INFO_OPTIONS];
    kin_err err;
    kin_session s = {0};
    const char *operand = NULL;
    fill_info_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, &operand, &err) != 0 ||
        kin_session_end_parsing(&o.session, operand, &err) != 0)
        return kin_app_usage("info", &err);
    if (kin_model_source_resolve(&o.session, &err) != 0) return kin_app_fail(&err);
    if (kin_session_open_model(&s, &o.session, &err) != 0) return kin_app_fail(&err);
    print_model(&s.model, s.model_name, s.vocab, &s.vocab_err);
    if (o.all) print_all(s.model.gguf);
    kin_session_close(&s);
    return KIN_EXIT_OK;
}

static void with_info_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    info_options o = {0};
    kin_option table[N_INFO_OPTIONS];
    fill_info_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_info = {
    .name = "info",
    .args = "MODEL",
    .summary = "describe a model file and its memory needs",
    .run = command_info,
    .options = with_info_options,
};
