// mkmodel: writes a GGUF model of random weights for measurements.
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/units.h"
#include "model/gguf.h"
#include "testkit/model_gen.h"
#include "testkit/model_tensors.h"

#define EXIT_USAGE 2

static const char usage[] = "usage: mkmodel [--preset NAME] [option...] -o FILE\n"
                            "\n"
                            "Writes a model of random weights. Options change the preset (default: tiny).\n"
                            "\n"
                            "  --preset NAME        %s\n"
                            "  --type MIX           %s\n"
                            "  --arch NAME          llama, qwen2, qwen3, qwen3moe, qwen35\n"
                            "  --layers N           --embd N           --ff N\n"
                            "  --heads N            --heads-kv N       --head-dim N (0: embd / heads)\n"
                            "  --vocab N            --ctx N\n"
                            "  --experts N          --experts-used N   --ff-exp N (qwen3moe)\n"
                            "  --tied               the embedding is the output\n"
                            "  --untied             it is not\n"
                            "  --rope-freqs         the rope_freqs tensor of Llama 3.1\n"
                            "  --endless            no text ends at temperature 0\n"
                            "  --rope-base X        frequency base\n"
                            "  --routes-by-token    experts depend on each token alone\n"
                            "  --layer-change X     the same, and the less foreseeable the larger X is; 0.02: next to always\n"
                            "  --router-skew X      some experts are preferred; 0.3: a little, 1: much\n"
                            "  --pooling-type N     of embeddings: 1 mean, 2 first, 3 last, 4 rank\n"
                            "  --interval N         qwen35: every n-th layer is attention, the others are delta nets\n"
                            "  --state-dim N        qwen35: rows and columns of a head's state (32; 128 in published files)\n"
                            "  --draft-block        qwen35: a block for multi-token prediction\n"
                            "  --draft-blocks N     number of draft blocks\n"
                            "  --draft-right X      the same, right in that share of its tokens; the text is known\n"
                            "  --draft-part PART    only the model without them (trunk), or these alone (blocks)\n"
                            "  --keys FILE          another family, from a text of its metadata (bench/families)\n"
                            "  --hollow             zeros in place of weights, which take no space: for kin plan and kin info\n"
                            "  --seed N\n"
                            "  --split N            N files, FILE being their prefix\n"
                            "  -o, --out FILE\n";

typedef struct options {
    kin_model_spec spec;
    const char *out;
    int n_parts; // 0: one file
} options;

enum {
    OPT_PRESET = 256,
    OPT_TYPE,
    OPT_ARCH,
    OPT_KEYS,
    OPT_TIED,
    OPT_UNTIED,
    OPT_ROPE_FREQS,
    OPT_ROPE_BASE,
    OPT_ROUTES_BY_TOKEN,
    OPT_LAYER_CHANGE,
    OPT_ROUTER_SKEW,
    OPT_ENDLESS,
    OPT_DRAFT_BLOCK,
    OPT_DRAFT_RIGHT,
    OPT_DRAFT_PART,
    OPT_HOLLOW,
    OPT_SEED,
    OPT_INT
};

// Options that set a single number: OPT_INT + index in this table.
static const struct {
    const char *name;
    size_t offset;
} ints[] = {
    {"layers", offsetof(options, spec.n_layer)},
    {"pooling-type", offsetof(options, spec.pooling_type)},
    {"embd", offsetof(options, spec.n_embd)},
    {"ff", offsetof(options, spec.n_ff)},
    {"heads", offsetof(options, spec.n_head)},
    {"heads-kv", offsetof(options, spec.n_head_kv)},
    {"head-dim", offsetof(options, spec.head_dim)},
    {"vocab", offsetof(options, spec.n_vocab)},
    {"ctx", offsetof(options, spec.n_ctx)},
    {"experts", offsetof(options, spec.n_expert)},
    {"experts-used", offsetof(options, spec.n_expert_used)},
    {"ff-exp", offsetof(options, spec.n_ff_exp)},
    {"interval", offsetof(options, spec.attention_interval)},
    {"state-dim", offsetof(options, spec.state_dim)},
    {"draft-blocks", offsetof(options, spec.draft_blocks)},
    {"split", offsetof(options, n_parts)},
};
#define N_INTS (sizeof ints / sizeof ints[0])

static const struct option others[] = {
    {"preset", required_argument, NULL, OPT_PRESET},
    {"type", required_argument, NULL, OPT_TYPE},
    {"arch", required_argument, NULL, OPT_ARCH},
    {"keys", required_argument, NULL, OPT_KEYS},
    {"tied", no_argument, NULL, OPT_TIED},
    {"untied", no_argument, NULL, OPT_UNTIED},
    {"rope-freqs", no_argument, NULL, OPT_ROPE_FREQS},
    {"rope-base", required_argument, NULL, OPT_ROPE_BASE},
    {"routes-by-token", no_argument, NULL, OPT_ROUTES_BY_TOKEN},
    {"layer-change", required_argument, NULL, OPT_LAYER_CHANGE},
    {"router-skew", required_argument, NULL, OPT_ROUTER_SKEW},
    {"endless", no_argument, NULL, OPT_ENDLESS},
    {"draft-block", no_argument, NULL, OPT_DRAFT_BLOCK},
    {"draft-right", required_argument, NULL, OPT_DRAFT_RIGHT},
    {"draft-part", required_argument, NULL, OPT_DRAFT_PART},
    {"hollow", no_argument, NULL, OPT_HOLLOW},
    {"seed", required_argument, NULL, OPT_SEED},
    {"out", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
};
#define N_OTHERS (sizeof others / sizeof others[0])

static int parse_int(options *o, size_t i, const char *text, kin_err *err) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < 0 || value > 99999999)
        return kin_err_set(err, "--%s: '%s' is not a count", ints[i].name, text);
    int n = (int)value;
    memcpy((char *)o + ints[i].offset, &n, sizeof n);
    return 0;
}

static int apply(options *o, int opt, char *arg, kin_err *err) {
    char *end = NULL;
    if (opt >= OPT_INT) return parse_int(o, (size_t)(opt - OPT_INT), arg, err);
    switch (opt) {
    case OPT_PRESET: return kin_model_spec_preset(&o->spec, arg, err);
    case OPT_TYPE: o->spec.mix = arg; return 0;
    case OPT_ARCH: o->spec.arch = arg; return 0;
    case OPT_KEYS: o->spec.keys = arg; return 0;
    case OPT_TIED:
    case OPT_UNTIED: o->spec.tied = opt == OPT_TIED; return 0;
    case OPT_ROPE_FREQS: o->spec.rope_freqs = true; return 0;
    case OPT_ENDLESS: o->spec.endless = true; return 0;
    case OPT_HOLLOW: o->spec.hollow = true; return 0;
    case OPT_DRAFT_BLOCK: o->spec.draft_blocks = 1; return 0;
    case OPT_DRAFT_PART:
        if (strcmp(arg, "trunk") != 0 && strcmp(arg, "blocks") != 0)
            return kin_err_set(err, "--draft-part: '%s' is neither trunk nor blocks", arg);
        o->spec.part = strcmp(arg, "trunk") == 0 ? KIN_MODEL_WITHOUT_DRAFTS : KIN_MODEL_DRAFTS;
        return 0;
    case OPT_DRAFT_RIGHT:
        if (o->spec.draft_blocks == 0) o->spec.draft_blocks = 1;
        o->spec.draft_right = strtof(arg, &end);
        return *end || end == arg ? kin_err_set(err, "--draft-right: '%s' is not a number", arg) : 0;
    case OPT_ROUTES_BY_TOKEN: o->spec.routes_by_token = true; return 0;
    case OPT_LAYER_CHANGE:
        o->spec.routes_by_token = true;
        o->spec.layer_change = strtof(arg, &end);
        return *end || end == arg ? kin_err_set(err, "--layer-change: '%s' is not a number", arg) : 0;
    case OPT_ROUTER_SKEW:
        o->spec.router_skew = strtof(arg, &end);
        return *end || end == arg ? kin_err_set(err, "--router-skew: '%s' is not a number", arg) : 0;
    case OPT_ROPE_BASE:
        o->spec.rope_freq_base = strtof(arg, &end);
        return *end || end == arg ? kin_err_set(err, "--rope-base: '%s' is not a number", arg) : 0;
    case OPT_SEED:
        o->spec.seed = strtoull(arg, &end, 10);
        return *end || end == arg ? kin_err_set(err, "--seed: '%s' is not a number", arg) : 0;
    case 'o': o->out = arg; return 0;
    default: return kin_err_set(err, "see mkmodel --help");
    }
}

// Returns 0, KIN_FAIL, or 1 if help was requested.
static int parse_options(options *o, int argc, char **argv, kin_err *err) {
    struct option all[N_INTS + N_OTHERS + 1] = {{0}};
    for (size_t i = 0; i < N_INTS; i++) {
        all[i] = (struct option){ints[i].name, required_argument, NULL, OPT_INT + (int)i};
    }
    memcpy(all + N_INTS, others, sizeof others);
    *o = (options){.spec = kin_model_spec_defaults()};
    for (int pass = 0; pass < 2; pass++) { // the preset first, wherever it is on the command line
        optind = 1;
        opterr = pass == 0;
        for (int opt; (opt = getopt_long(argc, argv, "o:h", all, NULL)) != -1;) {
            if (opt == 'h') return 1;
            if ((opt == OPT_PRESET) == (pass == 0) && apply(o, opt, optarg, err) != 0) return KIN_FAIL;
        }
    }
    if (optind < argc) return kin_err_set(err, "what is '%s'?", argv[optind]);
    if (!o->out) return kin_err_set(err, "no output file; see mkmodel --help");
    return 0;
}

static int make(const options *o, kin_err *err) {
    kin_time begin = kin_clock_now();
    char path[4096], size[32];
    if (o->n_parts > 0) {
        if (kin_model_gen_split(&o->spec, o->out, o->n_parts, err) != 0) return KIN_FAIL;
        snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", o->out, 1, o->n_parts);
    } else {
        if (kin_model_gen(&o->spec, o->out, err) != 0) return KIN_FAIL;
        snprintf(path, sizeof path, "%s", o->out);
    }
    double ms = kin_clock_ms(begin, kin_clock_now());

    kin_gguf *gguf; // read back what was written
    if (kin_gguf_open(&gguf, path, err) != 0) return KIN_FAIL;
    uint64_t n_bytes = 0, n_weights = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        n_bytes += t->n_bytes;
        n_weights += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    }
    printf("%s: %zu tensors, %.1f million weights, %" PRIu64 " bytes (%s), %.1f s\n", path, kin_gguf_n_tensors(gguf),
           (double)n_weights / 1e6, n_bytes, kin_size_format(n_bytes, size, sizeof size), ms / 1e3);
    kin_gguf_close(gguf);
    return 0;
}

int main(int argc, char **argv) {
    options o;
    kin_err err;
    int parsed = parse_options(&o, argc, argv, &err);
    if (parsed == 1) {
        printf(usage, kin_model_presets(), kin_model_mixes());
        return 0;
    }
    if (parsed == 0 && make(&o, &err) == 0) return 0;
    fprintf(stderr, "mkmodel: %s\n", err.text);
    return parsed == 0 ? 1 : EXIT_USAGE;
}
