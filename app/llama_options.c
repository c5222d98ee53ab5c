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

#define NO_SAMPLER "not supported; samplers are penalties, top_k, top_p, min_p and temperature"
#define NO_SPLIT "kin uses at most one GPU per machine; add machines with --cluster"
#define FROM_FILE "kin takes this value from the model file"

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
    {"-cmoe", SAME, "--cpu-moe"},
    {"-ncmoe", SAME, "--n-cpu-moe"},
    {"-ctk", SAME, "--kv-type"},
    {"--cache-type-k", SAME, "--kv-type"},
    {"-s", SAME, "--seed"},
    {"--temperature", SAME, "--temp"},
    {"--repeat-last-n", REFUSED, "set repeat_last_n in the request"},
    {"--repeat-penalty", REFUSED, "set repeat_penalty in the request"},
    {"--presence-penalty", REFUSED, "set presence_penalty in the request"},
    {"--frequency-penalty", REFUSED, "set frequency_penalty in the request"},
    {"-ub", NOTHING_WITH_VALUE, "the physical batch is --batch"},
    {"--ubatch-size", NOTHING_WITH_VALUE, "the physical batch is --batch"},
    {"-ctv", NOTHING_WITH_VALUE, "--kv-type sets the type of both K and V"},
    {"--cache-type-v", NOTHING_WITH_VALUE, "--kv-type sets the type of both K and V"},
    {"-cb", NOTHING, "continuous batching is always on"},
    {"--cont-batching", NOTHING, "continuous batching is always on"},
    {"-nocb", REFUSED, "continuous batching is always on; use --parallel 1 for one request at a time"},
    {"--no-cont-batching", REFUSED, "continuous batching is always on; use --parallel 1 for one request at a time"},
    {"--no-kv-unified", REFUSED, "all sequences share one KV cache"},
    {"-no-kvu", REFUSED, "all sequences share one KV cache"},
    {"-kvu", NOTHING, "all sequences share one KV cache"},
    {"--kv-unified", NOTHING, "all sequences share one KV cache"},
    {"--kv-unified-per-slot", NOTHING, "all sequences share one KV cache"},
    {"-fa", NOTHING_WITH_VALUE, "attention is always fused"},
    {"--flash-attn", NOTHING_WITH_VALUE, "attention is always fused"},
    {"--jinja", NOTHING, "chat templates are always Jinja"},
    {"--no-jinja", NOTHING, "chat templates are always Jinja"},
    {"--chat-template-kwargs", REFUSED, "set chat_template_kwargs in the request"},
    {"--prefill-assistant", NOTHING, "a final assistant message is always continued"},
    {"--cache-prompt", NOTHING, "prefixes are always cached"},
    {"--no-prefill-assistant", REFUSED, "a final assistant message is always continued"},
    {"--no-cache-prompt", SAME, "--no-prefix-cache"},
    {"--cache-idle-slots", NOTHING, "prefixes are always cached"},
    {"-cram", NOTHING_WITH_VALUE, "prefixes are cached in the KV cache of --ctx"},
    {"--cache-ram", NOTHING_WITH_VALUE, "prefixes are cached in the KV cache of --ctx"},
    {"--cache-reuse", NOTHING_WITH_VALUE, "only whole prefixes are reused"},
    {"-sps", NOTHING_WITH_VALUE, "every common prefix is reused"},
    {"--slot-prompt-similarity", NOTHING_WITH_VALUE, "every common prefix is reused"},
    {"--ctx-checkpoints", NOTHING_WITH_VALUE, "the prefix cache needs no checkpoints"},
    {"-to", NOTHING_WITH_VALUE, "only stalled clients are disconnected"},
    {"--timeout", NOTHING_WITH_VALUE, "only stalled clients are disconnected"},
    {"--reuse-port", REFUSED, "SO_REUSEPORT is not supported"},
    {"--cors-methods", NOTHING_WITH_VALUE, "all methods are allowed"},
    {"--cors-headers", NOTHING_WITH_VALUE, "all requested headers are allowed"},
    {"--cors-credentials", NOTHING, "always allowed for --cors-origins"},
    {"--slots", NOTHING, "/slots is enabled by default; disable it with --no-slots"},
    {"--props", REFUSED, "properties cannot be changed while the server runs"},
    {"--threads-http", NOTHING_WITH_VALUE, "one thread handles all connections"},
    {"-tb", NOTHING_WITH_VALUE, "prompts use --threads"},
    {"--threads-batch", NOTHING_WITH_VALUE, "prompts use --threads"},
    {"--no-warmup", NOTHING, "kin does no warm-up run"},
    {"--warmup", NOTHING, "kin does no warm-up run"},
    {"--ui", NOTHING, "the web UI is on by default; disable it with --no-webui"},
    {"--webui", NOTHING, "the web UI is on by default; disable it with --no-webui"},
    {"--no-ui", SAME, "--no-webui"},
    {"--ui-config", NOTHING_WITH_VALUE, "the web UI keeps its settings in the browser"},
    {"--path", REFUSED, "the web UI is built into the program"},
    {"--load-mode", NOTHING_WITH_VALUE, "use --memory and --weights"},
    {"--mlock", NOTHING, "use --memory"},
    {"--no-mmap", NOTHING, "use --weights"},
    {"--mmap", NOTHING, "use --weights"},
    {"--direct-io", NOTHING, "streamed weights are always read with O_DIRECT"},
    {"--reasoning-effort", REFUSED, "set reasoning_effort in the request"},
    {"--samplers", REFUSED, "set samplers in the request"},
    {"--sampling-seq", REFUSED, "set samplers in the request"},
    {"--sampler-seq", REFUSED, "set samplers in the request"},
    {"--ignore-eos", REFUSED, "set ignore_eos in the request"},
    {"--logit-bias", REFUSED, "set logit_bias in the request"},
    {"--grammar", REFUSED, "set grammar in the request"},
    {"--grammar-file", REFUSED, "set grammar in the request"},
    {"-j", REFUSED, "set json_schema in the request"},
    {"--json-schema", REFUSED, "set json_schema in the request"},
    {"--typical", REFUSED, NO_SAMPLER},
    {"--top-nsigma", REFUSED, NO_SAMPLER},
    {"--xtc-probability", REFUSED, NO_SAMPLER},
    {"--dry-multiplier", REFUSED, NO_SAMPLER},
    {"--dynatemp-range", REFUSED, NO_SAMPLER},
    {"--mirostat", REFUSED, NO_SAMPLER},
    {"--keep", NOTHING_WITH_VALUE, "generation ends when the context is full"},
    {"-dev", REFUSED, "kin chooses the device; use --gpu-layers 0 for CPU only"},
    {"--device", REFUSED, "kin chooses the device; use --gpu-layers 0 for CPU only"},
    {"-sm", REFUSED, NO_SPLIT},
    {"--split-mode", REFUSED, NO_SPLIT},
    {"-ts", REFUSED, NO_SPLIT},
    {"--tensor-split", REFUSED, NO_SPLIT},
    {"-mg", REFUSED, NO_SPLIT},
    {"--main-gpu", REFUSED, NO_SPLIT},
    {"-ot", REFUSED, "kin places whole layers, and experts; use --gpu-layers, --n-cpu-moe and --memory"},
    {"--override-tensor", REFUSED, "kin places whole layers, and experts; use --gpu-layers, --n-cpu-moe and --memory"},
    {"-fit", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--fit", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--numa", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--prio", NOTHING_WITH_VALUE, "use nice(1)"},
    {"--poll", NOTHING_WITH_VALUE, "threads spin briefly, then sleep"},
    {"-C", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--cpu-mask", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"-Cr", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--cpu-range", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--cpu-strict", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--rope-scaling", REFUSED, FROM_FILE},
    {"--rope-scale", REFUSED, FROM_FILE},
    {"--rope-freq-base", REFUSED, FROM_FILE},
    {"--rope-freq-scale", REFUSED, FROM_FILE},
    {"--override-kv", REFUSED, FROM_FILE},
    {"--swa-full", NOTHING, "windowed layers keep only the window"},
    {"--log-file", REFUSED, "logs go to stderr; redirect them with 2> FILE"},
    {"-v", SAME, "--verbose"},
    {"-lv", NOTHING_WITH_VALUE, "set KIN_VERBOSE=1 for more messages"},
    {"--verbosity", NOTHING_WITH_VALUE, "set KIN_VERBOSE=1 for more messages"},
    {"--log-disable", NOTHING, "requests are never logged"},
    {"--no-mmproj", NOTHING, "kin supports text only"},
    {"--context-shift", REFUSED, "generation ends when the context is full"},
    {"--no-context-shift", NOTHING, "generation ends when the context is full"},
    {"--embedding", NOTHING, "embeddings are always enabled"},
    {"--embeddings", NOTHING, "embeddings are always enabled"},
    {"--rerank", REFUSED, "reranking is not supported"},
    {"--reranking", REFUSED, "reranking is not supported"},
    {"--lora", REFUSED, "LoRA is not supported"},
    {"--mmproj", REFUSED, "kin supports text only"},
    {"-md", SAME, "--draft"},
    {"--model-draft", SAME, "--draft"},
    {"--spec-draft-model", SAME, "--draft"},
    {"--draft-n", SAME, "--draft-max"},
    {"--draft-n-min", SAME, "--draft-min"},
    {"--spec-draft-n-max", SAME, "--draft-max"},
    {"--spec-draft-n-min", SAME, "--draft-min"},
    {"--draft-p-min", NOTHING_WITH_VALUE, "the threshold is learned at run time"},
    {"--spec-draft-p-min", NOTHING_WITH_VALUE, "the threshold is learned at run time"},
    {"--spec-type", NOTHING_WITH_VALUE,
     "use --draft: n-gram lookup and the blocks for multi-token prediction are on by default, a draft model is added"},
    {"--spec-default", NOTHING, "drafts are used where they are faster"},
    {"-cd", NOTHING_WITH_VALUE, "the draft model uses --ctx"},
    {"--ctx-size-draft", NOTHING_WITH_VALUE, "the draft model uses --ctx"},
    {"-ngld", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"--gpu-layers-draft", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"-hf", SAME, "--hf"},
    {"--hf-repo", SAME, "--hf"},
    {"--models-autoload", NOTHING, "models are loaded on first use"},
    {"--models-preset", REFUSED, "all models share the same options"},
    {"--perf", NOTHING, "every response contains timings"},
    {"--no-perf", NOTHING, "every response contains timings"},
    {"-e", NOTHING, "no option takes a prompt"},
    {"--escape", NOTHING, "no option takes a prompt"},
    {"--no-escape", NOTHING, "no option takes a prompt"},
    {"--yarn-orig-ctx", REFUSED, FROM_FILE},
    {"--yarn-ext-factor", REFUSED, FROM_FILE},
    {"--yarn-attn-factor", REFUSED, FROM_FILE},
    {"--yarn-beta-slow", REFUSED, FROM_FILE},
    {"--yarn-beta-fast", REFUSED, FROM_FILE},
    {"-kvo", NOTHING, "the KV cache is stored where its layer is computed"},
    {"--kv-offload", NOTHING, "the KV cache is stored where its layer is computed"},
    {"-nkvo", NOTHING, "the KV cache is stored where its layer is computed"},
    {"--no-kv-offload", NOTHING, "the KV cache is stored where its layer is computed"},
    {"--repack", NOTHING, "weights are repacked by default; disable it with --no-repack"},
    {"-nr", SAME, "--no-repack"},
    {"--no-host", NOTHING, "kin decides this itself"},
    {"--check-tensors", NOTHING, "kin decides this itself"},
    {"--op-offload", NOTHING, "kin decides this itself"},
    {"--no-op-offload", NOTHING, "kin decides this itself"},
    {"-dt", NOTHING_WITH_VALUE, "the KV cache is paged and needs no defragmentation"},
    {"--defrag-thold", NOTHING_WITH_VALUE, "the KV cache is paged and needs no defragmentation"},
    {"-dio", NOTHING, "streamed weights are always read with O_DIRECT"},
    {"-ndio", NOTHING, "streamed weights are always read with O_DIRECT"},
    {"--no-direct-io", NOTHING, "streamed weights are always read with O_DIRECT"},
    {"-fitt", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--fit-target", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"-fitc", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--fit-ctx", NOTHING_WITH_VALUE, "kin always fits the model into --memory"},
    {"--lora-scaled", REFUSED, "LoRA is not supported"},
    {"--lora-init-without-apply", REFUSED, "LoRA is not supported"},
    {"--control-vector", REFUSED, "control vectors are not supported"},
    {"--control-vector-scaled", REFUSED, "control vectors are not supported"},
    {"--control-vector-layer-range", REFUSED, "control vectors are not supported"},
    {"-hfr", SAME, "--hf"},
    {"-hff", REFUSED, "name the file with its repository: -hf OWNER/REPO/FILE.gguf"},
    {"--hf-file", REFUSED, "name the file with its repository: -hf OWNER/REPO/FILE.gguf"},
    {"-mu", SAME, "--model"},
    {"--model-url", SAME, "--model"},
    {"-dr", REFUSED, "kin fetches no models from Docker's registry; write -hf OWNER/REPO"},
    {"--docker-repo", REFUSED, "kin fetches no models from Docker's registry; write -hf OWNER/REPO"},
    {"-hfd", REFUSED, "fetch it with kin pull, then give its file to --draft"},
    {"--spec-draft-hf", REFUSED, "fetch it with kin pull, then give its file to --draft"},
    {"-hft", REFUSED, "set HF_TOKEN in the environment, where other users do not see it"},
    {"--hf-token", REFUSED, "set HF_TOKEN in the environment, where other users do not see it"},
    {"--log-verbose", SAME, "--verbose"},
    {"--log-prefix", NOTHING, "set KIN_VERBOSE=1 for more messages"},
    {"--no-log-prefix", NOTHING, "set KIN_VERBOSE=1 for more messages"},
    {"--log-timestamps", NOTHING, "set KIN_VERBOSE=1 for more messages"},
    {"--no-log-timestamps", NOTHING, "set KIN_VERBOSE=1 for more messages"},
    {"--log-verbosity", NOTHING_WITH_VALUE, "set KIN_VERBOSE=1 for more messages"},
    {"--log-colors", NOTHING_WITH_VALUE, "set KIN_VERBOSE=1 for more messages"},
    {"-ctkd", NOTHING_WITH_VALUE, "the draft model uses --kv-type"},
    {"--cache-type-k-draft", NOTHING_WITH_VALUE, "the draft model uses --kv-type"},
    {"--spec-draft-type-k", NOTHING_WITH_VALUE, "the draft model uses --kv-type"},
    {"-ctvd", NOTHING_WITH_VALUE, "the draft model uses --kv-type"},
    {"--cache-type-v-draft", NOTHING_WITH_VALUE, "the draft model uses --kv-type"},
    {"--spec-draft-type-v", NOTHING_WITH_VALUE, "the draft model uses --kv-type"},
    {"-td", NOTHING_WITH_VALUE, "drafts use --threads"},
    {"--threads-draft", NOTHING_WITH_VALUE, "drafts use --threads"},
    {"--spec-draft-threads", NOTHING_WITH_VALUE, "drafts use --threads"},
    {"-tbd", NOTHING_WITH_VALUE, "drafts use --threads"},
    {"--threads-batch-draft", NOTHING_WITH_VALUE, "drafts use --threads"},
    {"--draft-p-split", NOTHING_WITH_VALUE, "the threshold is learned at run time"},
    {"--spec-draft-p-split", NOTHING_WITH_VALUE, "the threshold is learned at run time"},
    {"-devd", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"--device-draft", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"--spec-draft-device", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"--spec-draft-ngl", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"--n-gpu-layers-draft", NOTHING_WITH_VALUE, "drafts are computed on the CPU"},
    {"-lcs", NOTHING_WITH_VALUE, "n-grams are looked up in the sequence itself"},
    {"--lookup-cache-static", NOTHING_WITH_VALUE, "n-grams are looked up in the sequence itself"},
    {"-lcd", NOTHING_WITH_VALUE, "n-grams are looked up in the sequence itself"},
    {"--lookup-cache-dynamic", NOTHING_WITH_VALUE, "n-grams are looked up in the sequence itself"},
    {"-bs", NOTHING, "sampling runs on the CPU"},
    {"--backend-sampling", NOTHING, "sampling runs on the CPU"},
    {"--top-n-sigma", REFUSED, NO_SAMPLER},
    {"--typical-p", REFUSED, NO_SAMPLER},
    {"--adaptive-target", REFUSED, NO_SAMPLER},
    {"--xtc-threshold", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--dry-base", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--dry-allowed-length", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--dry-penalty-last-n", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--dry-sequence-breaker", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--adaptive-decay", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--dynatemp-exp", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--mirostat-lr", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"--mirostat-ent", NOTHING_WITH_VALUE, "it belongs to a sampler that is not supported"},
    {"-l", REFUSED, "set logit_bias in the request"},
    {"-jf", REFUSED, "set json_schema in the request"},
    {"--json-schema-file", REFUSED, "set json_schema in the request"},
    {"-r", REFUSED, "set stop in the request"},
    {"--reverse-prompt", REFUSED, "set stop in the request"},
    {"-ctxcp", NOTHING_WITH_VALUE, "the prefix cache needs no checkpoints"},
    {"--swa-checkpoints", NOTHING_WITH_VALUE, "the prefix cache needs no checkpoints"},
    {"-cpent", NOTHING_WITH_VALUE, "the prefix cache needs no checkpoints"},
    {"--checkpoint-every-n-tokens", NOTHING_WITH_VALUE, "the prefix cache needs no checkpoints"},
    {"--no-cache-idle-slots", NOTHING, "prefixes are cached by default; disable it with --no-prefix-cache"},
    {"-sp", REFUSED, "use /detokenize or return_tokens to see special tokens"},
    {"--special", REFUSED, "use /detokenize or return_tokens to see special tokens"},
    {"--spm-infill", REFUSED, "the prefix always comes first"},
    {"-mm", REFUSED, "kin supports text only"},
    {"-mmu", REFUSED, "kin supports text only"},
    {"--mmproj-url", REFUSED, "kin supports text only"},
    {"--media-path", REFUSED, "kin supports text only"},
    {"--mmproj-auto", NOTHING, "kin supports text only"},
    {"--no-mmproj-auto", NOTHING, "kin supports text only"},
    {"--mmproj-offload", NOTHING, "kin supports text only"},
    {"--no-mmproj-offload", NOTHING, "kin supports text only"},
    {"--image-min-tokens", NOTHING_WITH_VALUE, "kin supports text only"},
    {"--image-max-tokens", NOTHING_WITH_VALUE, "kin supports text only"},
    {"--embd-normalize", REFUSED, "set embd_normalize in the request"},
    {"--webui-config", NOTHING_WITH_VALUE, "the web UI keeps its settings in the browser"},
    {"--webui-config-file", NOTHING_WITH_VALUE, "the web UI keeps its settings in the browser"},
    {"--ui-config-file", NOTHING_WITH_VALUE, "the web UI keeps its settings in the browser"},
    {"--no-webui-mcp-proxy", NOTHING, "kin has no MCP proxy"},
    {"--no-ui-mcp-proxy", NOTHING, "kin has no MCP proxy"},
    {"--webui-mcp-proxy", REFUSED, "the web UI has no tools, and the server starts no programs"},
    {"--ui-mcp-proxy", REFUSED, "the web UI has no tools, and the server starts no programs"},
    {"--tools", REFUSED, "the web UI has no tools, and the server starts no programs"},
    {"--no-models-autoload", REFUSED, "models are loaded on first use"},
    {"-rea", SAME, "--reasoning"},
    {"--reasoning-budget-message", REFUSED, "set reasoning_budget_message in the request"},
    {"--no-skip-chat-parsing", NOTHING, "responses are always parsed"},
    {"--skip-chat-parsing", REFUSED, "responses are always parsed"},
    {"-Cb", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--cpu-mask-batch", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"-Crb", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--cpu-range-batch", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--cpu-strict-batch", NOTHING_WITH_VALUE, "the operating system places threads"},
    {"--prio-batch", NOTHING_WITH_VALUE, "use nice(1)"},
    {"--poll-batch", NOTHING_WITH_VALUE, "threads spin briefly, then sleep"},
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
            kin_app_log("%s is ignored: %s", o->name, o->as);
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
