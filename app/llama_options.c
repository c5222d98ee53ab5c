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

#define NO_SAMPLER "the sampler has penalties, top_k, top_p, min_p and temperature only"
#define NO_SPLIT "at most one GPU is used; with --cluster others compute on theirs"
#define FROM_FILE "this is as the model's file says"

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
    {"-nocb", REFUSED, "texts are always computed together; --parallel 1 is one at a time"},
    {"--no-cont-batching", REFUSED, "texts are always computed together; --parallel 1 is one at a time"},
    {"--no-kv-unified", REFUSED, "texts always share the context"},
    {"-no-kvu", REFUSED, "texts always share the context"},
    {"-kvu", NOTHING, "texts always share the context"},
    {"--kv-unified", NOTHING, "texts always share the context"},
    {"--kv-unified-per-slot", NOTHING, "texts always share the context"},
    {"-fa", NOTHING_WITH_VALUE, "attention is always fused"},
    {"--flash-attn", NOTHING_WITH_VALUE, "attention is always fused"},
    {"--jinja", NOTHING, "chat templates are always Jinja"},
    {"--no-jinja", REFUSED, "chat templates are always Jinja"},
    {"--chat-template", REFUSED, "give the template as a file, --chat-template-file"},
    {"--chat-template-kwargs", REFUSED, "a request says chat_template_kwargs"},
    {"--prefill-assistant", NOTHING, "a last message of the assistant is always gone on with"},
    {"--cache-prompt", NOTHING, "prefixes are always kept"},
    {"--no-prefill-assistant", REFUSED, "a last message of the assistant is always gone on with"},
    {"--no-cache-prompt", SAME, "--no-prefix-cache"},
    {"--cache-idle-slots", NOTHING, "prefixes are always kept"},
    {"-cram", NOTHING_WITH_VALUE, "prefixes are kept within the context"},
    {"--cache-ram", NOTHING_WITH_VALUE, "prefixes are kept within the context"},
    {"--cache-reuse", NOTHING_WITH_VALUE, "only whole prefixes are used again"},
    {"-sps", NOTHING_WITH_VALUE, "every common prefix is used"},
    {"--slot-prompt-similarity", NOTHING_WITH_VALUE, "every common prefix is used"},
    {"--ctx-checkpoints", NOTHING_WITH_VALUE, "prefixes need none"},
    {"-to", NOTHING_WITH_VALUE, "only clients that stall are cut off"},
    {"--timeout", NOTHING_WITH_VALUE, "only clients that stall are cut off"},
    {"--reuse-port", REFUSED, "one process has a port"},
    {"--cors-methods", NOTHING_WITH_VALUE, "all that there are"},
    {"--cors-headers", NOTHING_WITH_VALUE, "those that a page asks for"},
    {"--cors-credentials", NOTHING, "pages of --cors-origins may send them"},
    {"--slots", NOTHING, "/slots is always there, unless --no-slots"},
    {"--props", REFUSED, "what the server was started with does not change"},
    {"--tags", NOTHING_WITH_VALUE, "models have no tags"},
    {"--threads-http", NOTHING_WITH_VALUE, "one thread serves all connections"},
    {"-tb", NOTHING_WITH_VALUE, "prompts use the same threads"},
    {"--threads-batch", NOTHING_WITH_VALUE, "prompts use the same threads"},
    {"--no-warmup", NOTHING, "there is none"},
    {"--warmup", NOTHING, "there is none"},
    {"--ui", NOTHING, "the page is always there, unless --no-webui"},
    {"--webui", NOTHING, "the page is always there, unless --no-webui"},
    {"--no-ui", SAME, "--no-webui"},
    {"--ui-config", NOTHING_WITH_VALUE, "the page keeps its settings in the browser"},
    {"--path", REFUSED, "the page is in the program"},
    {"--load-mode", NOTHING_WITH_VALUE, "see --memory and --weights"},
    {"--mlock", NOTHING, "see --memory"},
    {"--no-mmap", NOTHING, "see --weights"},
    {"--mmap", NOTHING, "see --weights"},
    {"--direct-io", NOTHING, "what is streamed is always read past the page cache"},
    {"--reasoning-format", NOTHING_WITH_VALUE, "reasoning is always told apart; a request may say reasoning_format none"},
    {"--reasoning", REFUSED, "a request says reasoning_effort (none turns it off)"},
    {"--reasoning-effort", REFUSED, "a request says reasoning_effort"},
    {"--samplers", REFUSED, "a request says samplers"},
    {"--sampling-seq", REFUSED, "a request says samplers"},
    {"--sampler-seq", REFUSED, "a request says samplers"},
    {"--ignore-eos", REFUSED, "a request says ignore_eos"},
    {"--logit-bias", REFUSED, "a request says logit_bias"},
    {"--grammar", REFUSED, "a request says grammar"},
    {"--grammar-file", REFUSED, "a request says grammar"},
    {"-j", REFUSED, "a request says json_schema"},
    {"--json-schema", REFUSED, "a request says json_schema"},
    {"--typical", REFUSED, NO_SAMPLER},
    {"--top-nsigma", REFUSED, NO_SAMPLER},
    {"--xtc-probability", REFUSED, NO_SAMPLER},
    {"--dry-multiplier", REFUSED, NO_SAMPLER},
    {"--dynatemp-range", REFUSED, NO_SAMPLER},
    {"--mirostat", REFUSED, NO_SAMPLER},
    {"--keep", NOTHING_WITH_VALUE, "a text ends when its context is full"},
    {"-dev", REFUSED, "kin chooses the device; --gpu-layers 0 is the CPU alone"},
    {"--device", REFUSED, "kin chooses the device; --gpu-layers 0 is the CPU alone"},
    {"-sm", REFUSED, NO_SPLIT},
    {"--split-mode", REFUSED, NO_SPLIT},
    {"-ts", REFUSED, NO_SPLIT},
    {"--tensor-split", REFUSED, NO_SPLIT},
    {"-mg", REFUSED, NO_SPLIT},
    {"--main-gpu", REFUSED, NO_SPLIT},
    {"-ot", REFUSED, "layers are whole on a GPU or not; --memory says what else is in memory"},
    {"--override-tensor", REFUSED, "layers are whole on a GPU or not; --memory says what else is in memory"},
    {"-cmoe", REFUSED, "layers are whole on a GPU or not; --memory says what else is in memory"},
    {"--cpu-moe", REFUSED, "layers are whole on a GPU or not; --memory says what else is in memory"},
    {"-ncmoe", REFUSED, "layers are whole on a GPU or not; --memory says what else is in memory"},
    {"--n-cpu-moe", REFUSED, "layers are whole on a GPU or not; --memory says what else is in memory"},
    {"-fit", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--fit", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--numa", NOTHING_WITH_VALUE, "the system places threads"},
    {"--prio", NOTHING_WITH_VALUE, "nice says it"},
    {"--poll", NOTHING_WITH_VALUE, "OMP_WAIT_POLICY says how threads wait"},
    {"-C", NOTHING_WITH_VALUE, "the system places threads"},
    {"--cpu-mask", NOTHING_WITH_VALUE, "the system places threads"},
    {"-Cr", NOTHING_WITH_VALUE, "the system places threads"},
    {"--cpu-range", NOTHING_WITH_VALUE, "the system places threads"},
    {"--cpu-strict", NOTHING_WITH_VALUE, "the system places threads"},
    {"--rope-scaling", REFUSED, FROM_FILE},
    {"--rope-scale", REFUSED, FROM_FILE},
    {"--rope-freq-base", REFUSED, FROM_FILE},
    {"--rope-freq-scale", REFUSED, FROM_FILE},
    {"--override-kv", REFUSED, FROM_FILE},
    {"--swa-full", NOTHING, "there is no attention of a window"},
    {"--log-file", REFUSED, "what kin says goes to stderr: 2> FILE"},
    {"--sleep-idle-seconds", NOTHING_WITH_VALUE, "with --models-dir, /models/unload takes a model out of memory"},
    {"-v", NOTHING, "KIN_VERBOSE=1 says more"},
    {"--verbose", NOTHING, "KIN_VERBOSE=1 says more"},
    {"-lv", NOTHING_WITH_VALUE, "KIN_VERBOSE=1 says more"},
    {"--verbosity", NOTHING_WITH_VALUE, "KIN_VERBOSE=1 says more"},
    {"--log-disable", NOTHING, "what clients send is never logged"},
    {"--offline", NOTHING, "kin asks nobody for models"},
    {"--no-mmproj", NOTHING, "kin reads text only"},
    {"--context-shift", REFUSED, "a text ends when its context is full"},
    {"--no-context-shift", NOTHING, "a text ends when its context is full"},
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
    {"--spec-draft-n-max", SAME, "--draft-max"},
    {"--spec-draft-n-min", SAME, "--draft-min"},
    {"--draft-p-min", NOTHING_WITH_VALUE, "how likely a token must be is learnt"},
    {"--spec-draft-p-min", NOTHING_WITH_VALUE, "how likely a token must be is learnt"},
    {"--spec-type", NOTHING_WITH_VALUE, "n-gram lookup drafts unless --draft says off, a draft model beside it"},
    {"--spec-default", NOTHING, "texts have drafts wherever these make them faster"},
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

// Of these -1 is llama-server's word for what it finds right, and for any seed.
static bool is_left_open(const char *name, const char *value) {
    static const char *const names[] = {"-np",  "--parallel",     "-t",          "--threads", "-s", "--seed",
                                        "-ngl", "--n-gpu-layers", "--gpu-layers"};
    if (strcmp(name, "--reasoning") == 0) return strcmp(value, "auto") == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) return strcmp(value, "-1") == 0;
    }
    return false;
}

// Another option is none; a number below 0 is.
static bool is_value(const char *word) {
    return word[0] != '-' || (word[1] >= '0' && word[1] <= '9');
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
        if (i + 1 < argc && is_left_open(argv[i], argv[i + 1])) {
            i++;
        } else if (!o) {
            (*out)[(*n)++] = argv[i];
        } else if (o->treatment == REFUSED) {
            return kin_err_set(err, "%s: %s", o->name, o->as);
        } else if (o->treatment == SAME) {
            char *text = *texts + at;
            at += (size_t)snprintf(text, n_text - at, "%s%s", o->as, value ? value : "") + 1;
            (*out)[(*n)++] = text;
        } else {
            kin_app_say("%s does nothing here: %s", o->name, o->as);
            if (o->treatment == NOTHING_WITH_VALUE && !value && i + 1 < argc && is_value(argv[i + 1])) i++;
        }
    }
    return 0;
}
