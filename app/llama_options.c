#include "app/llama_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"

typedef enum treatment {
    SAME,    // kin has it under the name `as`
    NOTHING, // kin does so anyway, or it does not matter
    NOTHING_WITH_VALUE,
    REFUSED,
} treatment;

typedef struct llama_option {
    const char *name;
    treatment treatment;
    const char *as; // kin's name, why it does nothing, or why it cannot be
} llama_option;

static const llama_option options[] = {
    {"-c", SAME, "--ctx"},
    {"--ctx-size", SAME, "--ctx"},
    {"-n", SAME, "--n-predict"},
    {"--predict", SAME, "--n-predict"},
    {"-b", SAME, "--batch"},
    {"--batch-size", SAME, "--batch"},
    {"-np", SAME, "--parallel"},
    {"-a", SAME, "--alias"},
    {"-ngl", SAME, "--gpu-layers"},
    {"--n-gpu-layers", SAME, "--gpu-layers"},
    {"-ctk", SAME, "--kv-type"},
    {"--cache-type-k", SAME, "--kv-type"},
    {"-s", SAME, "--seed"},
    {"--temperature", SAME, "--temp"},
    {"--repeat-last-n", REFUSED, "a request says repeat_last_n"},
    {"--repeat-penalty", REFUSED, "a request says repeat_penalty"},
    {"--presence-penalty", REFUSED, "a request says presence_penalty"},
    {"--frequency-penalty", REFUSED, "a request says frequency_penalty"},
    {"-ub", NOTHING_WITH_VALUE, "steps are as large as --batch"},
    {"--ubatch-size", NOTHING_WITH_VALUE, "steps are as large as --batch"},
    {"-ctv", NOTHING_WITH_VALUE, "keys and values have the type of --kv-type"},
    {"--cache-type-v", NOTHING_WITH_VALUE, "keys and values have the type of --kv-type"},
    {"-cb", NOTHING, "texts are always computed together"},
    {"--cont-batching", NOTHING, "texts are always computed together"},
    {"-kvu", NOTHING, "texts always share the context"},
    {"--kv-unified", NOTHING, "texts always share the context"},
    {"-fa", NOTHING_WITH_VALUE, "attention is always fused"},
    {"--flash-attn", NOTHING_WITH_VALUE, "attention is always fused"},
    {"--jinja", NOTHING, "chat templates are always Jinja"},
    {"--cache-prompt", NOTHING, "prefixes are always kept"},
    {"-cram", NOTHING_WITH_VALUE, "prefixes are kept within the context"},
    {"--cache-ram", NOTHING_WITH_VALUE, "prefixes are kept within the context"},
    {"--cache-reuse", NOTHING_WITH_VALUE, "only whole prefixes are used again"},
    {"-sps", NOTHING_WITH_VALUE, "every common prefix is used"},
    {"--slot-prompt-similarity", NOTHING_WITH_VALUE, "every common prefix is used"},
    {"--ctx-checkpoints", NOTHING_WITH_VALUE, "prefixes need none"},
    {"--threads-http", NOTHING_WITH_VALUE, "one thread serves all connections"},
    {"-tb", NOTHING_WITH_VALUE, "prompts use the same threads"},
    {"--threads-batch", NOTHING_WITH_VALUE, "prompts use the same threads"},
    {"--no-warmup", NOTHING, "there is none"},
    {"--warmup", NOTHING, "there is none"},
    {"--no-ui", SAME, "--no-webui"},
    {"--load-mode", NOTHING_WITH_VALUE, "see --memory and --weights"},
    {"--mlock", NOTHING, "see --memory"},
    {"--no-mmap", NOTHING, "see --weights"},
    {"--mmap", NOTHING, "see --weights"},
    {"--reasoning-format", NOTHING_WITH_VALUE, "reasoning is always told apart; a request may say reasoning_format none"},
    {"-v", NOTHING, "KIN_VERBOSE=1 says more"},
    {"--context-shift", REFUSED, "a text ends when its context is full"},
    {"--embedding", NOTHING, "embeddings are always there"},
    {"--embeddings", NOTHING, "embeddings are always there"},
    {"--rerank", REFUSED, "kin has no reranking"},
    {"--reranking", REFUSED, "kin has no reranking"},
    {"--lora", REFUSED, "kin has no LoRA"},
    {"--mmproj", REFUSED, "kin reads text only"},
    {"-md", SAME, "--draft"},
    {"--model-draft", SAME, "--draft"},
    {"--spec-draft-model", SAME, "--draft"},
    {"--draft-n", SAME, "--draft-max"},
    {"--draft-n-min", SAME, "--draft-min"},
    {"--draft-p-min", NOTHING_WITH_VALUE, "how likely a token must be is learnt"},
    {"-cd", NOTHING_WITH_VALUE, "the draft model has the same --ctx"},
    {"--ctx-size-draft", NOTHING_WITH_VALUE, "the draft model has the same --ctx"},
    {"-ngld", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"--gpu-layers-draft", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"-hf", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"--hf-repo", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"--models-autoload", NOTHING, "a model is loaded when it is asked for"},
    {"--models-preset", REFUSED, "all models have the same options"},
};

enum { N_OPTIONS = sizeof options / sizeof *options };

// By its name, with or without "=value".
static const llama_option *find(const char *word) {
    size_t n = strcspn(word, "=");
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strlen(options[i].name) == n && memcmp(options[i].name, word, n) == 0) return &options[i];
    }
    return NULL;
}

int kin_llama_options_translate(int argc, char **argv, char ***out, int *n, char **texts, kin_err *err) {
    size_t n_text = 1, at = 0;
    for (int i = 0; i < argc; i++) n_text += strlen(argv[i]) + 64;
    *out = calloc((size_t)argc + 1, sizeof **out);
    *texts = malloc(n_text);
    *n = 0;
    if (!*out || !*texts) return kin_err_set(err, "out of memory");
    for (int i = 0; i < argc; i++) {
        const llama_option *o = argv[i][0] == '-' ? find(argv[i]) : NULL;
        const char *value = strchr(argv[i], '=');
        if (!o) {
            (*out)[(*n)++] = argv[i];
        } else if (o->treatment == REFUSED) {
            return kin_err_set(err, "%s: %s", o->name, o->as);
        } else if (o->treatment == SAME) {
            char *text = *texts + at;
            at += (size_t)snprintf(text, n_text - at, "%s%s", o->as, value ? value : "") + 1;
            (*out)[(*n)++] = text;
        } else {
            kin_app_say("%s does nothing here: %s", o->name, o->as);
            if (o->treatment == NOTHING_WITH_VALUE && !value && i + 1 < argc && argv[i + 1][0] != '-') i++;
        }
    }
    return 0;
}
