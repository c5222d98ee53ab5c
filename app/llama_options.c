#include "app/llama_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"

typedef enum treatment {
    SAME,    // kin has it under the name `as`
    NOTHING, // kin does so anyway, or it has no effect here
    NOTHING_WITH_VALUE,
    REFUSED,
} treatment;

typedef struct llama_option {
    const char *name;
    treatment treatment;
    const char *as; // kin's name, why it does nothing, or why it is not supported
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
    {"--no-jinja", NOTHING, "chat templates are always Jinja"},
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
    {"--poll", NOTHING_WITH_VALUE, "threads wait for a moment and then sleep"},
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
    {"-v", SAME, "--verbose"},
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
    {"--perf", NOTHING, "timings are in every answer"},
    {"--no-perf", NOTHING, "timings are in every answer"},
    {"-e", NOTHING, "no option here is a prompt"},
    {"--escape", NOTHING, "no option here is a prompt"},
    {"--no-escape", NOTHING, "no option here is a prompt"},
    {"--yarn-orig-ctx", REFUSED, FROM_FILE},
    {"--yarn-ext-factor", REFUSED, FROM_FILE},
    {"--yarn-attn-factor", REFUSED, FROM_FILE},
    {"--yarn-beta-slow", REFUSED, FROM_FILE},
    {"--yarn-beta-fast", REFUSED, FROM_FILE},
    {"-kvo", NOTHING, "keys and values are where their layer is computed"},
    {"--kv-offload", NOTHING, "keys and values are where their layer is computed"},
    {"-nkvo", NOTHING, "keys and values are where their layer is computed"},
    {"--no-kv-offload", NOTHING, "keys and values are where their layer is computed"},
    {"--repack", NOTHING, "weights are always repacked, unless --no-repack"},
    {"-nr", SAME, "--no-repack"},
    {"--no-host", NOTHING, "kin decides it"},
    {"--check-tensors", NOTHING, "kin decides it"},
    {"--op-offload", NOTHING, "kin decides it"},
    {"--no-op-offload", NOTHING, "kin decides it"},
    {"-dt", NOTHING_WITH_VALUE, "a cache of blocks needs none"},
    {"--defrag-thold", NOTHING_WITH_VALUE, "a cache of blocks needs none"},
    {"-dio", NOTHING, "what is streamed is always read past the page cache"},
    {"-ndio", NOTHING, "what is streamed is always read past the page cache"},
    {"--no-direct-io", NOTHING, "what is streamed is always read past the page cache"},
    {"-fitt", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--fit-target", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"-fitc", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--fit-ctx", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--lora-scaled", REFUSED, "kin has no LoRA"},
    {"--lora-init-without-apply", REFUSED, "kin has no LoRA"},
    {"--control-vector", REFUSED, "kin has no control vectors"},
    {"--control-vector-scaled", REFUSED, "kin has no control vectors"},
    {"--control-vector-layer-range", REFUSED, "kin has no control vectors"},
    {"-hfr", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"-hff", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"--hf-file", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"-mu", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"--model-url", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"-dr", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"--docker-repo", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"-hfd", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"--spec-draft-hf", REFUSED, "kin reads files; fetch it first (curl -LO ADDRESS)"},
    {"-hft", NOTHING_WITH_VALUE, "kin asks nobody for models"},
    {"--hf-token", NOTHING_WITH_VALUE, "kin asks nobody for models"},
    {"--log-verbose", SAME, "--verbose"},
    {"--log-prefix", NOTHING, "KIN_VERBOSE=1 says more"},
    {"--no-log-prefix", NOTHING, "KIN_VERBOSE=1 says more"},
    {"--log-timestamps", NOTHING, "KIN_VERBOSE=1 says more"},
    {"--no-log-timestamps", NOTHING, "KIN_VERBOSE=1 says more"},
    {"--log-verbosity", NOTHING_WITH_VALUE, "KIN_VERBOSE=1 says more"},
    {"--log-colors", NOTHING_WITH_VALUE, "KIN_VERBOSE=1 says more"},
    {"-ctkd", NOTHING_WITH_VALUE, "the draft model has the same --kv-type"},
    {"--cache-type-k-draft", NOTHING_WITH_VALUE, "the draft model has the same --kv-type"},
    {"--spec-draft-type-k", NOTHING_WITH_VALUE, "the draft model has the same --kv-type"},
    {"-ctvd", NOTHING_WITH_VALUE, "the draft model has the same --kv-type"},
    {"--cache-type-v-draft", NOTHING_WITH_VALUE, "the draft model has the same --kv-type"},
    {"--spec-draft-type-v", NOTHING_WITH_VALUE, "the draft model has the same --kv-type"},
    {"-td", NOTHING_WITH_VALUE, "drafts use the same threads"},
    {"--threads-draft", NOTHING_WITH_VALUE, "drafts use the same threads"},
    {"--spec-draft-threads", NOTHING_WITH_VALUE, "drafts use the same threads"},
    {"-tbd", NOTHING_WITH_VALUE, "drafts use the same threads"},
    {"--threads-batch-draft", NOTHING_WITH_VALUE, "drafts use the same threads"},
    {"--draft-p-split", NOTHING_WITH_VALUE, "how likely a token must be is learnt"},
    {"--spec-draft-p-split", NOTHING_WITH_VALUE, "how likely a token must be is learnt"},
    {"-devd", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"--device-draft", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"--spec-draft-device", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"--spec-draft-ngl", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"--n-gpu-layers-draft", NOTHING_WITH_VALUE, "the CPU computes drafts"},
    {"-lcs", NOTHING_WITH_VALUE, "n-grams are looked up in the text itself"},
    {"--lookup-cache-static", NOTHING_WITH_VALUE, "n-grams are looked up in the text itself"},
    {"-lcd", NOTHING_WITH_VALUE, "n-grams are looked up in the text itself"},
    {"--lookup-cache-dynamic", NOTHING_WITH_VALUE, "n-grams are looked up in the text itself"},
    {"-bs", NOTHING, "the CPU samples"},
    {"--backend-sampling", NOTHING, "the CPU samples"},
    {"--top-n-sigma", REFUSED, NO_SAMPLER},
    {"--typical-p", REFUSED, NO_SAMPLER},
    {"--adaptive-target", REFUSED, NO_SAMPLER},
    {"--xtc-threshold", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--dry-base", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--dry-allowed-length", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--dry-penalty-last-n", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--dry-sequence-breaker", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--adaptive-decay", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--dynatemp-exp", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--mirostat-lr", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"--mirostat-ent", NOTHING_WITH_VALUE, "it belongs to a sampler that kin has not"},
    {"-l", REFUSED, "a request says logit_bias"},
    {"-jf", REFUSED, "a request says json_schema"},
    {"--json-schema-file", REFUSED, "a request says json_schema"},
    {"-r", REFUSED, "a request says stop"},
    {"--reverse-prompt", REFUSED, "a request says stop"},
    {"-ctxcp", NOTHING_WITH_VALUE, "prefixes need none"},
    {"--swa-checkpoints", NOTHING_WITH_VALUE, "prefixes need none"},
    {"-cpent", NOTHING_WITH_VALUE, "prefixes need none"},
    {"--checkpoint-every-n-tokens", NOTHING_WITH_VALUE, "prefixes need none"},
    {"--no-cache-idle-slots", NOTHING, "prefixes are always kept, unless --no-prefix-cache"},
    {"-sp", REFUSED, "/detokenize and return_tokens show special tokens"},
    {"--special", REFUSED, "/detokenize and return_tokens show special tokens"},
    {"--spm-infill", REFUSED, "the prefix always comes first"},
    {"-mm", REFUSED, "kin reads text only"},
    {"-mmu", REFUSED, "kin reads text only"},
    {"--mmproj-url", REFUSED, "kin reads text only"},
    {"--media-path", REFUSED, "kin reads text only"},
    {"--mmproj-auto", NOTHING, "kin reads text only"},
    {"--no-mmproj-auto", NOTHING, "kin reads text only"},
    {"--mmproj-offload", NOTHING, "kin reads text only"},
    {"--no-mmproj-offload", NOTHING, "kin reads text only"},
    {"--image-min-tokens", NOTHING_WITH_VALUE, "kin reads text only"},
    {"--image-max-tokens", NOTHING_WITH_VALUE, "kin reads text only"},
    {"--embd-normalize", REFUSED, "a request says embd_normalize"},
    {"--webui-config", NOTHING_WITH_VALUE, "the page keeps its settings in the browser"},
    {"--webui-config-file", NOTHING_WITH_VALUE, "the page keeps its settings in the browser"},
    {"--ui-config-file", NOTHING_WITH_VALUE, "the page keeps its settings in the browser"},
    {"--no-webui-mcp-proxy", NOTHING, "there is none"},
    {"--no-ui-mcp-proxy", NOTHING, "there is none"},
    {"--webui-mcp-proxy", REFUSED, "the page has no tools, and the server starts no programs"},
    {"--ui-mcp-proxy", REFUSED, "the page has no tools, and the server starts no programs"},
    {"--tools", REFUSED, "the page has no tools, and the server starts no programs"},
    {"--no-models-autoload", REFUSED, "a model is loaded when it is asked for"},
    {"-rea", SAME, "--reasoning"},
    {"--reasoning-budget-message", REFUSED, "a request says reasoning_budget_message"},
    {"--no-skip-chat-parsing", NOTHING, "replies are always parsed"},
    {"--skip-chat-parsing", REFUSED, "replies are always parsed"},
    {"-Cb", NOTHING_WITH_VALUE, "the system places threads"},
    {"--cpu-mask-batch", NOTHING_WITH_VALUE, "the system places threads"},
    {"-Crb", NOTHING_WITH_VALUE, "the system places threads"},
    {"--cpu-range-batch", NOTHING_WITH_VALUE, "the system places threads"},
    {"--cpu-strict-batch", NOTHING_WITH_VALUE, "the system places threads"},
    {"--prio-batch", NOTHING_WITH_VALUE, "nice says it"},
    {"--poll-batch", NOTHING_WITH_VALUE, "threads wait for a moment and then sleep"},
};

enum { N_OPTIONS = sizeof options / sizeof *options };

// llama-server's environment variables with an equivalent in kin, or whose absence would be noticed; others are ignored.
typedef struct llama_variable {
    const char *name; // after LLAMA_
    const char *option;
    bool is_flag;
    const char *opposite; // for a flag that is off, or LLAMA_ARG_NO_...; NULL: ignored
} llama_variable;

static const llama_variable variables[] = {
    {"API_KEY", "--api-key", false, NULL},
    {"ARG_MODEL", "--model", false, NULL},
    {"ARG_ALIAS", "--alias", false, NULL},
    {"ARG_HOST", "--host", false, NULL},
    {"ARG_PORT", "--port", false, NULL},
    {"ARG_API_PREFIX", "--api-prefix", false, NULL},
    {"ARG_SSL_KEY_FILE", "--ssl-key-file", false, NULL},
    {"ARG_SSL_CERT_FILE", "--ssl-cert-file", false, NULL},
    {"ARG_CTX_SIZE", "--ctx-size", false, NULL},
    {"ARG_N_PREDICT", "--predict", false, NULL},
    {"ARG_N_PARALLEL", "--parallel", false, NULL},
    {"ARG_THREADS", "--threads", false, NULL},
    {"ARG_BATCH", "--batch-size", false, NULL},
    {"ARG_N_GPU_LAYERS", "--n-gpu-layers", false, NULL},
    {"ARG_CACHE_TYPE_K", "--cache-type-k", false, NULL},
    {"ARG_REPACK", NULL, true, "--no-repack"},
    {"ARG_TOP_K", "--top-k", false, NULL},
    {"ARG_POOLING", "--pooling", false, NULL},
    {"ARG_CHAT_TEMPLATE", "--chat-template", false, NULL},
    {"ARG_CHAT_TEMPLATE_FILE", "--chat-template-file", false, NULL},
    {"CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs", false, NULL},
    {"ARG_JINJA", NULL, true, "--no-jinja"},
    {"ARG_REASONING", "--reasoning", false, NULL},
    {"ARG_THINK", "--reasoning-format", false, NULL},
    {"ARG_THINK_BUDGET", "--reasoning-budget", false, NULL},
    {"ARG_PREFILL_ASSISTANT", NULL, true, "--no-prefill-assistant"},
    {"ARG_CACHE_PROMPT", NULL, true, "--no-cache-prompt"},
    {"ARG_CONTEXT_SHIFT", "--context-shift", true, NULL},
    {"ARG_CONT_BATCHING", NULL, true, "--no-cont-batching"},
    {"ARG_KV_UNIFIED", NULL, true, "--no-kv-unified"},
    {"ARG_ENDPOINT_METRICS", "--metrics", true, NULL},
    {"ARG_ENDPOINT_SLOTS", NULL, true, "--no-slots"},
    {"ARG_ENDPOINT_PROPS", "--props", true, NULL},
    {"ARG_UI", NULL, true, "--no-ui"},
    {"ARG_WEBUI", NULL, true, "--no-webui"},
    {"ARG_STATIC_PATH", "--path", false, NULL},
    {"ARG_RERANKING", "--rerank", true, NULL},
    {"ARG_MMPROJ", "--mmproj", false, NULL},
    {"ARG_HF_REPO", "--hf-repo", false, NULL},
    {"ARG_MODELS_DIR", "--models-dir", false, NULL},
    {"ARG_MODELS_MAX", "--models-max", false, NULL},
    {"ARG_MODELS_PRESET", "--models-preset", false, NULL},
    {"ARG_SPEC_DRAFT_MODEL", "--spec-draft-model", false, NULL},
    {"ARG_DRAFT_MAX", "--draft-n", false, NULL},
    {"ARG_DRAFT_MIN", "--draft-n-min", false, NULL},
};

enum { N_VARIABLES = sizeof variables / sizeof *variables };

// Finds an option by name, with or without "=value".
static const llama_option *find(const char *word) {
    size_t n = strcspn(word, "=");
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strlen(options[i].name) == n && memcmp(options[i].name, word, n) == 0) return &options[i];
    }
    return NULL;
}

// True if the value is llama-server's -1 for "automatic" or "any seed" in these options, or requests what kin does anyway.
static bool is_left_open(const char *name, const char *value) {
    static const char *const names[] = {"-np",  "--parallel",     "-t",          "--threads", "-s", "--seed",
                                        "-ngl", "--n-gpu-layers", "--gpu-layers"};
    if (strcmp(name, "--embd-normalize") == 0) return strcmp(value, "2") == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) return strcmp(value, "-1") == 0;
    }
    return false;
}

// True if the word is a value, not an option; it may be a negative number.
static bool is_value(const char *word) {
    return word[0] != '-' || (word[1] >= '0' && word[1] <= '9');
}

// ---- environment

// Returns the variable's value. NULL: not set, or empty.
static const char *value_of(const char *kind, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "LLAMA_%s%s", kind, name);
    const char *value = getenv(full);
    return value && value[0] ? value : NULL;
}

static const char *flag_of(const llama_variable *v, bool *is_known) {
    static const char *const words[] = {"0", "1", "false", "true", "off", "on", "disabled", "enabled"};
    const char *value = value_of("", v->name);
    bool is_off = strncmp(v->name, "ARG_", 4) == 0 && value_of("ARG_NO_", v->name + 4);
    *is_known = is_off || !value;
    for (size_t i = 0; value && !is_off && i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], value) != 0) continue;
        *is_known = true;
        return i % 2 ? v->option : v->opposite;
    }
    return is_off ? v->opposite : NULL;
}

// Appends the words for the variables; they precede the command line's, so that it wins.
static int read_variables(char **words, int *n, kin_err *err) {
    for (int i = 0; i < N_VARIABLES; i++) {
        const llama_variable *v = &variables[i];
        bool is_known = true;
        const char *value = v->is_flag ? NULL : value_of("", v->name);
        const char *word = v->is_flag ? flag_of(v, &is_known) : value ? v->option : NULL;
        if (!is_known) return kin_err_set(err, "environment variable LLAMA_%s: must be 1 or 0", v->name);
        if (word) words[(*n)++] = (char *)word;
        if (value) words[(*n)++] = (char *)value;
        const llama_option *o = word ? find(word) : NULL;
        if (o && o->treatment == REFUSED && !(value && is_left_open(word, value)))
            return kin_err_set(err, "environment variable LLAMA_%s: %s", v->name, o->as);
    }
    return 0;
}

// ---- the command line

static int translate(int argc, char **argv, char ***out, int *n, char **texts, kin_err *err) {
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

int kin_llama_options_translate(int argc, char **argv, char ***out, int *n, char **texts, kin_err *err) {
    char **words = calloc((size_t)argc + 2 * N_VARIABLES, sizeof *words);
    int n_words = 0;
    *out = NULL;
    *texts = NULL;
    int rc = words ? read_variables(words, &n_words, err) : kin_err_set(err, "out of memory");
    for (int i = 0; i < argc && rc == 0; i++) words[n_words++] = argv[i];
    if (rc == 0) rc = translate(n_words, words, out, n, texts, err);
    free(words);
    return rc;
}

// True if this variable's value alone causes the same error.
static bool fails_alone(const llama_variable *v, kin_option_tables tables, const kin_err *err) {
    const char *value = v->is_flag ? NULL : value_of("", v->name);
    const llama_option *o = value ? find(v->option) : NULL;
    if (!value || (o && o->treatment != SAME)) return false;
    char *words[] = {(char *)(o ? o->as : v->option), (char *)value};
    kin_err alone;
    return kin_options_parse(tables, 2, words, NULL, &alone) != 0 && strcmp(alone.text, err->text) == 0;
}

void kin_llama_options_explain(kin_option_tables tables, kin_err *err) {
    kin_err other;
    if (kin_options_parse(tables, 0, NULL, NULL, &other) != 0) return; // the error is in kin's own environment
    for (int i = 0; i < N_VARIABLES; i++) {
        if (!fails_alone(&variables[i], tables, err)) continue;
        kin_err_prefix(err, "environment variable LLAMA_%s", variables[i].name);
        return;
    }
}

void kin_llama_options_names(kin_option table[KIN_LLAMA_N_NAMES]) {
    int n = 0;
    _Static_assert((int)N_OPTIONS < (int)KIN_LLAMA_N_NAMES, "with the table's end");
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strncmp(options[i].name, "--", 2) == 0)
            table[n++] = (kin_option){.kind = KIN_OPTION_NAME, .name = options[i].name + 2};
    }
    table[n] = (kin_option){0};
}
