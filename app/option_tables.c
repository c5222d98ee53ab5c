#include "app/option_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "app/model_source.h"

void kin_identity_option_table(kin_identity_options *o, kin_option table[KIN_IDENTITY_N_OPTIONS]) {
    const kin_option options[KIN_IDENTITY_N_OPTIONS] = {
        {KIN_OPTION_STRING, "name", 0, &o->name, "NAME", "device name shown to others (default: host name)", 0, 0},
        {KIN_OPTION_STRING, "key-file", 0, &o->key_file, "FILE", "cluster key file (default: in ~/.config/kin)", 0, 0},
        {KIN_OPTION_ADDRESS, "listen", 0, &o->listen, "ADDRESS", "address to listen on (default: all)", 0, 0},
        {KIN_OPTION_INT, "port", 0, &o->port, "N", "TCP port to listen on (default: 7577 on a head, any free port on a device)",
         0, 65535},
        {KIN_OPTION_STRING, "advertise", 0, &o->advertise, "A,B",
         "addresses announced to other devices (default: the address they see)", 0, 0},
    };
    memcpy(table, options, sizeof options);
}

static void fleet_table(kin_fleet_options *o, kin_option table[KIN_FLEET_N_OPTIONS]) {
    const kin_option own[] = {
        {KIN_OPTION_FLAG, "cluster", 0, &o->cluster, NULL, "share the model with other devices ('kin join' on each)", 0, 0},
        {KIN_OPTION_NEEDS, "cluster", 0, &o->cluster, NULL, NULL, 0, 0},
        {KIN_OPTION_INT, "devices", 0, &o->n_devices, "N",
         "number of devices to wait for (default: start with those that have joined)", 0, 32},
        {KIN_OPTION_STRING, "plan", 0, &o->plan, "auto|even|memory|tp|FILE",
         "how layers are assigned to devices (default: auto, the fastest plan; tp: tensor parallel; FILE: JSON written by hand)",
         0, 0},
        {KIN_OPTION_STRING, "scheduler", 0, &o->scheduler, "exact|halda|memsched|perfsched|fill-gpus|dp-sa",
         "algorithm of --plan auto (default: exact)", 0, 0},
        {KIN_OPTION_STRING, "halda", 0, &o->halda, "published|released",
         "objective of --scheduler halda: as in the paper (default), or as in the released prima.cpp", 0, 0},
        {KIN_OPTION_STRING, "accept", 0, &o->accept, "margin|thesis",
         "when to switch to a better plan: margin, if 5 % faster (default); thesis, the published rule, which counts the "
         "download",
         0, 0},
        {KIN_OPTION_INT, "rounds", 0, &o->n_rounds, "K",
         "passes around the ring per token (default: the fastest; 1 with --plan even or memory)", 0, KIN_MAX_WINDOWS},
        {KIN_OPTION_STRING, "wire", 0, &o->wire, "f32|f16|q8",
         "format of activations on the network: f32 (default, exact), f16 (half the bytes) or q8 (a quarter)", 0, 0},
        {KIN_OPTION_STRING, "allreduce", 0, &o->allreduce, "mesh|star|tree|ring",
         "all-reduce topology of --plan tp (default: mesh, each device sends to all others)", 0, 0},
        {KIN_OPTION_INT, "chunk", 0, &o->n_chunk, "N",
         "prompt tokens per pass around the ring (default: chosen to keep all devices busy)", 0, 8192},
        {KIN_OPTION_FLAG, "hidden", 0, &o->hidden, NULL, "do not answer discovery; devices must be given this head's address", 0,
         0},
        {0},
    };
    memcpy(table, own, sizeof own - sizeof own[0]);
    int n = (int)(sizeof own / sizeof own[0]) - 1;
    kin_identity_option_table(&o->net, table + n);
    table[n + KIN_IDENTITY_N_OPTIONS] = (kin_option){0};
}

void kin_session_option_tables(kin_session_options *o, kin_session_tables *tables) {
    const kin_option options[KIN_SESSION_N_OPTIONS] = {
        {KIN_OPTION_STRING, "model", 'm', &o->model, "FILE",
         "GGUF model, or a name as in 'kin pull' (default: the built-in demo model)", 0, 0},
        {KIN_OPTION_STRING, "hf", 0, &o->hf, "OWNER/REPO",
         "a model of Hugging Face, as -hf of llama.cpp's programs; the same as hf:OWNER/REPO", 0, 0},
        {KIN_OPTION_FLAG, "offline", 0, &o->offline, NULL, "download nothing; use only models that are already here", 0, 0},
        {KIN_OPTION_STRING, "mirror", 0, &o->mirror, "URL", "server to fetch models from, instead of their registries", 0, 0},
        {KIN_OPTION_THREADS, "threads", 't', &o->n_threads, "N", "CPU threads (default: physical cores)", 0, 1024},
        {KIN_OPTION_STRING, "gpu-layers", 0, &o->gpu_layers, "N|all|auto",
         "layers to offload to the GPU (default: auto, the fastest number)", 0, 0},
        {KIN_OPTION_INT, "n-cpu-moe", 0, &o->n_cpu_moe, "N",
         "of the layers on the GPU, keep the experts of the first N on the CPU", 1, 4096},
        {KIN_OPTION_FLAG, "cpu-moe", 0, &o->cpu_moe, NULL, "keep all experts on the CPU, and the rest of the GPU's layers there",
         0, 0},
        {KIN_OPTION_INT, "ctx", 'c', &o->n_ctx, "N", "context size in tokens (default: as needed, at most the model's)", 0,
         1 << 27},
        {KIN_OPTION_INT, "batch", 0, &o->n_batch, "N", "prompt tokens processed at once (default: 512)", 1, 8192},
        {KIN_OPTION_STRING, "kv-type", 0, &o->kv_type, "f16|q8_0", "KV cache: f16 (default) or q8_0 (half the memory)", 0, 0},
        {KIN_OPTION_SIZE, "memory", 0, &o->memory, "SIZE",
         "memory limit; weights beyond it are streamed from disk (default: free memory)", 0, 0},
        {KIN_OPTION_STRING, "weights", 0, &o->weights, "stream|mmap|mmap+willneed|window",
         "how weights are read (default: stream; the others are for comparison)", 0, 0},
        {KIN_OPTION_INT, "window", 0, &o->window, "N", "with --weights window: half layers kept in memory (default: 2)", 1, 1000},
        {KIN_OPTION_INT, "retain", 0, &o->retain, "N",
         "with --weights window: keep every Nth feed-forward block in memory (default: none)", 1, 1000},
        {KIN_OPTION_STRING, "cache", 0, &o->cache_dir, "DIR", "directory of prepacked weights (default: ~/.cache/kin)", 0, 0},
        {KIN_OPTION_SIZE, "cache-size", 0, &o->cache_size, "SIZE",
         "size limit of the prepacked weights (default: a fifth of the disk)", 0, 0},
        {KIN_OPTION_STRING, "profile", 0, &o->profile, "FILE",
         "machine profile, as printed by 'kin profile --json' (default: measured once)", 0, 0},
        {KIN_OPTION_FLAG, "no-cache", 0, &o->no_cache, NULL, "do not store prepacked weights on disk", 0, 0},
        {KIN_OPTION_FLAG, "no-repack", 0, &o->no_repack, NULL, "use the weights in the file's layout (slower, no preparation)", 0,
         0},
        {KIN_OPTION_STRING, "kernels", 0, &o->kernels, "kin|ggml", "CPU kernels: kin (default), or ggml for comparison", 0, 0},
        {KIN_OPTION_FLAG, "no-flash", 0, &o->no_flash, NULL, "disable fused attention", 0, 0},
        {0},
    };
    memcpy(tables->own, options, sizeof options);
    fleet_table(&o->fleet, tables->fleet);
}

void kin_draft_option_table(kin_session_options *o, kin_option table[KIN_DRAFT_N_OPTIONS]) {
    const kin_option options[KIN_DRAFT_N_OPTIONS] = {
        {KIN_OPTION_STRING, "draft", 0, &o->draft, "auto|off|ngram|mtp|mtp:FILE|FILE",
         "speculative decoding: auto (default: n-gram lookup, and the model's own block for multi-token prediction if its file "
         "has one, where they are faster), off, ngram (also on GPUs and with ggml's kernels, where the output may change), mtp "
         "(the file must have such a block), mtp:FILE (such blocks in a file of their own), FILE (a smaller draft model with the "
         "same vocabulary) or ngram,FILE",
         0, 0},
        {KIN_OPTION_INT, "draft-max", 0, &o->draft_max, "N", "maximum number of tokens drafted at once (default: 31)", 1,
         KIN_DRAFT_MAX},
        {KIN_OPTION_INT, "draft-min", 0, &o->draft_min, "N", "draft at least N tokens, even where it is slower (default: 0)", 0,
         KIN_DRAFT_MAX},
    };
    memcpy(table, options, sizeof options);
    o->drafts = true;
}

void kin_kv_disk_option_table(uint64_t *size, bool *none, kin_option table[KIN_KV_DISK_N_OPTIONS]) {
    const kin_option options[KIN_KV_DISK_N_OPTIONS] = {
        {KIN_OPTION_SIZE, "kv-disk", 0, size, "SIZE",
         "size limit of the encrypted on-disk KV cache (default: a twentieth of the disk)", 0, 0},
        {KIN_OPTION_FLAG, "no-kv-disk", 0, none, NULL, "disable the on-disk KV cache", 0, 0},
    };
    memcpy(table, options, sizeof options);
}

void kin_json_option_table(bool *json, kin_option table[KIN_JSON_N_OPTIONS]) {
    const kin_option options[KIN_JSON_N_OPTIONS] = {{KIN_OPTION_FLAG, "json", 0, json, NULL, "print JSON", 0, 0}, {0}};
    memcpy(table, options, sizeof options);
}

kin_option kin_session_timeline_option(kin_session_options *o) {
    return (kin_option){KIN_OPTION_STRING,
                        "timeline",
                        0,
                        &o->timeline,
                        "FILE",
                        "write a timeline of all devices over the first 8 tokens: SVG, or a Chrome trace if FILE ends in .json",
                        0,
                        0};
}

// ---- operands

bool kin_session_is_model(const char *word) {
    struct stat st;
    size_t n = strlen(word);
    bool is_named_so = n > 5 && strcasecmp(word + n - 5, ".gguf") == 0;
    bool is_path = strchr(word, '/') && !strpbrk(word, " \n");
    return is_named_so || is_path || (stat(word, &st) == 0 && !S_ISDIR(st.st_mode));
}

static int check_drafts(const kin_session_options *o, kin_err *err) {
    kin_draft_mode mode;
    const char *file;
    if (o->draft_max > 0 && o->draft_min > o->draft_max)
        return kin_err_set(err, "--draft-min %d is larger than --draft-max %d", o->draft_min, o->draft_max);
    return o->draft ? kin_draft_words_read(o->draft, &mode, &file, err) : 0;
}

int kin_session_end_parsing(kin_session_options *o, const char *operand, kin_err *err) {
    kin_fleet_options *fleet = &o->fleet;
    bool is_for_others = fleet->halda && kin_options_is_preset("halda", fleet->halda) && strcmp(fleet->scheduler, "halda") != 0;
    if (is_for_others) fleet->halda = NULL; // a setting for the commands that use this scheduler
    if (check_drafts(o, err) != 0) return KIN_FAIL;
    if ((o->window || o->retain) && strcmp(o->weights, "window") != 0)
        return kin_err_set(err, "--%s needs --weights window", o->window ? "window" : "retain");
    static char hf_name[KIN_REF_TEXT];
    bool is_given = o->model && !kin_options_is_preset("model", o->model); // the command line wins over settings
    bool is_hf_given = o->hf && !kin_options_is_preset("hf", o->hf);
    if (is_hf_given && operand) return kin_err_set(err, "two models were given: --hf %s and '%s'", o->hf, operand);
    if (is_hf_given || (o->hf && !is_given && !operand)) {
        snprintf(hf_name, sizeof hf_name, "hf:%s", o->hf);
        o->model = hf_name;
    }
    if (!operand) return 0;
    struct stat st;
    if (stat(operand, &st) != 0 && !kin_session_is_model(operand) && !kin_model_source_is_name(operand))
        return kin_err_set(err, "unexpected argument '%s': there is no such file, and no model of that name ('kin pull --names')",
                           operand);
    if (is_given) return kin_err_set(err, "two models were given: '%s' and '%s'", o->model, operand);
    o->model = operand;
    return 0;
}
