// make_drafts: what a model's draft blocks predict, by llama.cpp. Not built with kin; see README.md.
//
//   make_drafts MODEL OUT
//
// Computes N_IDS ids with the model (weights in F32). Its first block takes the state of each but the last one and the id behind
// it; further blocks take the states of the block before, and the ids one later. Writes all logits // f32 [N_IDS - 1 - k,
// n_vocab] of each block k.
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_IDS = 24 };

// Of llama.cpp's staging interface, in C++.
float *get_states(struct llama_context *context) __asm__("_Z26llama_get_embeddings_nextnP13llama_context");
void set_states(struct llama_context *context, _Bool value,
                _Bool masked) __asm__("_Z26llama_set_embeddings_nextnP13llama_contextbb");
void set_block(struct llama_context *context, int32_t block) __asm__("_Z28llama_set_nextn_layer_offsetP13llama_contexti");

static void fail(const char *text) {
    fprintf(stderr, "make_drafts: %s\n", text);
    exit(1);
}

static void print_warnings(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static struct llama_context *open_context(struct llama_model *model, enum llama_context_type type, struct llama_context *other) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = 256;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.ctx_type = type;
    p.ctx_other = other;
    struct llama_context *context = llama_init_from_model(model, p);
    if (!context) fail("a context cannot be opened");
    set_states(context, 1, 0);
    return context;
}

// states NULL: a step of the model itself.
static void decode(struct llama_context *context, const llama_token *ids, float *states, int n) {
    llama_pos pos[N_IDS];
    int32_t n_seq_id[N_IDS];
    llama_seq_id zero = 0, *seq_id[N_IDS];
    int8_t wanted[N_IDS];
    for (int i = 0; i < n; i++) pos[i] = i, n_seq_id[i] = 1, seq_id[i] = &zero, wanted[i] = 1;
    struct llama_batch batch = {n, (llama_token *)ids, states, pos, n_seq_id, seq_id, wanted};
    if (llama_decode(context, batch) != 0) fail("llama_decode has failed");
}

int main(int argc, char **argv) {
    static llama_token ids[N_IDS];
    struct llama_model_params p = llama_model_default_params();
    p.use_extra_bufts = 0;
    p.load_mtp = 1;
    llama_log_set(print_warnings, NULL);
    ggml_backend_load_all();
    if (argc != 3) fail("MODEL OUT");
    struct llama_model *model = llama_model_load_from_file(argv[1], p);
    if (!model) fail(argv[1]);
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), n_blocks = llama_model_n_layer_nextn(model);
    const int n_embd = llama_model_n_embd_out(model);
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + 11 + i / 7) % n_vocab;
    struct llama_context *whole = open_context(model, LLAMA_CONTEXT_TYPE_DEFAULT, NULL);
    decode(whole, ids, NULL, N_IDS);
    float *states = malloc((size_t)N_IDS * (size_t)n_embd * sizeof *states);
    FILE *f = fopen(argv[2], "wb");
    if (!states || !f) fail(argv[2]);
    memcpy(states, get_states(whole), (size_t)N_IDS * (size_t)n_embd * sizeof *states);
    for (int k = 0; k < n_blocks; k++) {
        const int n = N_IDS - 1 - k;
        struct llama_context *drafts = open_context(model, LLAMA_CONTEXT_TYPE_MTP, whole);
        set_block(drafts, k);
        decode(drafts, ids + 1 + k, states, n);
        for (int i = 0; i < n; i++)
            if (fwrite(llama_get_logits_ith(drafts, i), sizeof(float), (size_t)n_vocab, f) != (size_t)n_vocab) fail(argv[2]);
        memcpy(states, get_states(drafts), (size_t)n * (size_t)n_embd * sizeof *states);
        llama_free(drafts);
    }
    if (fclose(f) != 0) fail(argv[2]);
    return 0;
}
