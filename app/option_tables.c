#include "app/option_tables.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

void kin_identity_option_table(kin_identity_options *o, kin_option table[KIN_IDENTITY_N_OPTIONS]) {
    const kin_option options[KIN_IDENTITY_N_OPTIONS] = {
        {KIN_OPTION_STRING, "name", 0, &o->name, "NAME", "what others call this machine (default: its host name)", 0, 0},
        {KIN_OPTION_STRING, "key-file", 0, &o->key_file, "FILE", "the cluster's key (default: in the user's configuration)", 0,
         0},
        {KIN_OPTION_ADDRESS, "listen", 0, &o->listen, "ADDRESS", "where to listen (default: on all addresses)", 0, 0},
        {KIN_OPTION_INT, "port", 0, &o->port, "N", "TCP port to listen on (default: 7577 for a head, any for a device)", 0,
         65535},
        {KIN_OPTION_STRING, "advertise", 0, &o->advertise, "A,B",
         "addresses where others reach this machine (default: where they see it)", 0, 0},
    };
    memcpy(table, options, sizeof options);
}

static void fleet_table(kin_fleet_options *o, kin_option table[KIN_FLEET_N_OPTIONS]) {
    const kin_option own[] = {
        {KIN_OPTION_FLAG, "cluster", 0, &o->cluster, NULL, "share the model with other devices ('kin join' on each)", 0, 0},
        {KIN_OPTION_NEEDS, "cluster", 0, &o->cluster, NULL, NULL, 0, 0},
        {KIN_OPTION_INT, "devices", 0, &o->n_devices, "N", "devices to wait for (default: whoever has joined)", 0, 32},
        {KIN_OPTION_STRING, "plan", 0, &o->plan, "auto|even|memory|tp|FILE",
         "who gets which layers (default: auto, what is fastest; tp: all devices share each layer; FILE: by hand, JSON)", 0, 0},
        {KIN_OPTION_STRING, "scheduler", 0, &o->scheduler, "exact|halda|memsched|perfsched|dp-sa",
         "what plan auto is made by (default: exact)", 0, 0},
        {KIN_OPTION_STRING, "accept", 0, &o->accept, "margin|thesis",
         "when a better plan auto comes: margin, 5 % (default), or as published with live repartitioning, which counts fetching",
         0, 0},
        {KIN_OPTION_INT, "rounds", 0, &o->n_rounds, "K",
         "times round the ring per token (default: what is fastest; 1 with plan even or memory)", 0, KIN_MAX_WINDOWS},
        {KIN_OPTION_STRING, "wire", 0, &o->wire, "f32|f16|q8",
         "activations between devices: f32 (default, exact), f16 (half) or q8 (a quarter)", 0, 0},
        {KIN_OPTION_STRING, "allreduce", 0, &o->allreduce, "mesh|star|tree|ring",
         "how devices that share layers add up their parts (default: mesh, each sends its part to all)", 0, 0},
        {KIN_OPTION_INT, "chunk", 0, &o->n_chunk, "N",
         "tokens of a prompt that go round together (default: what keeps all devices busy)", 0, 8192},
        {KIN_OPTION_FLAG, "hidden", 0, &o->hidden, NULL, "do not answer devices that search: they need this head's address", 0,
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
        {KIN_OPTION_STRING, "model", 'm', &o->model, "FILE", "GGUF model (default: the built-in demo model)", 0, 0},
        {KIN_OPTION_THREADS, "threads", 't', &o->n_threads, "N", "CPU threads (default: physical cores)", 0, 1024},
        {KIN_OPTION_STRING, "gpu-layers", 0, &o->gpu_layers, "N|all|auto",
         "layers to put on the GPU (default: auto, as many as make it fastest)", 0, 0},
        {KIN_OPTION_INT, "ctx", 'c', &o->n_ctx, "N", "tokens of context (default: what is needed, up to the model's)", 0,
         1 << 27},
        {KIN_OPTION_INT, "batch", 0, &o->n_batch, "N", "prompt tokens processed at once (default: 512)", 1, 8192},
        {KIN_OPTION_STRING, "kv-type", 0, &o->kv_type, "f16|q8_0", "KV cache: f16 (default) or q8_0 (half the memory)", 0, 0},
        {KIN_OPTION_SIZE, "memory", 0, &o->memory, "SIZE",
         "memory to use; weights beyond it are streamed (default: what is free)", 0, 0},
        {KIN_OPTION_STRING, "weights", 0, &o->weights, "stream|mmap|mmap+willneed|window",
         "how they are read (default: stream; the others for comparison)", 0, 0},
        {KIN_OPTION_INT, "window", 0, &o->window, "N",
         "with --weights window: so many halves of layers are in memory (default: 2)", 1, 1000},
        {KIN_OPTION_INT, "retain", 0, &o->retain, "N",
         "with --weights window: one feed-forward block in so many stays in memory (default: none)", 1, 1000},
        {KIN_OPTION_STRING, "cache", 0, &o->cache_dir, "DIR",
         "where prepacked weights are kept (default: the user's cache directory)", 0, 0},
        {KIN_OPTION_SIZE, "cache-size", 0, &o->cache_size, "SIZE",
         "what they may take there in all (default: a fifth of the disk)", 0, 0},
        {KIN_OPTION_STRING, "profile", 0, &o->profile, "FILE",
         "what this machine can do, as 'kin profile --json' prints it (default: measured once)", 0, 0},
        {KIN_OPTION_FLAG, "no-cache", 0, &o->no_cache, NULL, "keep no prepacked weights on disk", 0, 0},
        {KIN_OPTION_FLAG, "no-repack", 0, &o->no_repack, NULL,
         "use the weights as the file has them (slower, nothing to prepare)", 0, 0},
        {KIN_OPTION_STRING, "kernels", 0, &o->kernels, "kin|ggml",
         "what computes on the CPU: kin (default), or for comparison ggml", 0, 0},
        {KIN_OPTION_FLAG, "no-flash", 0, &o->no_flash, NULL, "do not use the fused attention operator", 0, 0},
        {0},
    };
    memcpy(tables->own, options, sizeof options);
    fleet_table(&o->fleet, tables->fleet);
}

void kin_draft_option_table(kin_session_options *o, kin_option table[KIN_DRAFT_N_OPTIONS]) {
    const kin_option options[KIN_DRAFT_N_OPTIONS] = {
        {KIN_OPTION_STRING, "draft", 0, &o->draft, "auto|off|ngram|FILE",
         "guess several tokens and check them together, where that is faster: auto (default: from the text, which never changes "
         "it), FILE (also with a smaller model of the same vocabulary), ngram or ngram,FILE (also on GPUs and with ggml's "
         "kernels, "
         "where texts may change)",
         0, 0},
        {KIN_OPTION_INT, "draft-max", 0, &o->draft_max, "N", "guess at most N tokens of a text at once (default 31)", 1,
         KIN_DRAFT_MAX},
        {KIN_OPTION_INT, "draft-min", 0, &o->draft_min, "N", "check N of them even where it is slower (default 0)", 0,
         KIN_DRAFT_MAX},
    };
    memcpy(table, options, sizeof options);
}

void kin_kv_disk_option_table(uint64_t *size, bool *none, kin_option table[KIN_KV_DISK_N_OPTIONS]) {
    const kin_option options[KIN_KV_DISK_N_OPTIONS] = {
        {KIN_OPTION_SIZE, "kv-disk", 0, size, "SIZE",
         "what keys and values of texts may take on the disk, encrypted, for when they go on later (default: a twentieth of it)",
         0, 0},
        {KIN_OPTION_FLAG, "no-kv-disk", 0, none, NULL, "keep nothing of texts on this disk", 0, 0},
    };
    memcpy(table, options, sizeof options);
}

kin_option kin_session_timeline_option(kin_session_options *o) {
    return (kin_option){KIN_OPTION_STRING,
                        "timeline",
                        0,
                        &o->timeline,
                        "FILE",
                        "write what each device did for the first 8 tokens: a picture (SVG), or in FILE.json a trace",
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
        return kin_err_set(err, "--draft-min %d is more than --draft-max %d", o->draft_min, o->draft_max);
    return o->draft ? kin_draft_words_read(o->draft, &mode, &file, err) : 0;
}

int kin_session_end_parsing(kin_session_options *o, const char *operand, kin_err *err) {
    if (check_drafts(o, err) != 0) return KIN_FAIL;
    if ((o->window || o->retain) && strcmp(o->weights, "window") != 0)
        return kin_err_set(err, "--%s needs --weights window", o->window ? "window" : "retain");
    if (!operand) return 0;
    struct stat st;
    bool is_given = o->model && o->model != getenv("KIN_MODEL"); // the command line wins over the environment
    if (stat(operand, &st) != 0 && !kin_session_is_model(operand))
        return kin_err_set(err, "unexpected argument '%s': no file of that name", operand);
    if (is_given) return kin_err_set(err, "two models are given, '%s' and '%s'", o->model, operand);
    o->model = operand;
    return 0;
}
