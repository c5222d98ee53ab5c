// kin join: makes this machine a device of a ring.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "cluster/join.h"
#include "cluster/profile_store.h"
#include "cluster/session.h"
#include "sys/notify.h"
#include "sys/whole_file.h"

typedef struct join_options {
    kin_identity_options net;
    const char *model;
    int n_threads;
    uint64_t memory, cache_size, standby_disk, kv_disk_size;
    const char *cache_dir, *profile, *code_file;
    bool no_cache, no_kv_disk, no_gpu, ask_code;
} join_options;

enum { N_OPTIONS = KIN_IDENTITY_N_OPTIONS + KIN_KV_DISK_N_OPTIONS + 12 };

static void fill_join_table(join_options *o, kin_option table[N_OPTIONS]) {
    const kin_option own[] = {
        {KIN_OPTION_STRING, "model", 'm', &o->model, "FILE",
         "GGUF model, if this machine has it (default: fetch it from other devices)", 0, 0},
        {KIN_OPTION_SIZE, "memory", 0, &o->memory, "SIZE", "memory to lend (default: free memory)", 0, 0},
        {KIN_OPTION_THREADS, "threads", 't', &o->n_threads, "N", "CPU threads (default: physical cores)", 0, 1024},
        {KIN_OPTION_FLAG, "no-gpu", 0, &o->no_gpu, NULL, "do not lend the GPU", 0, 0},
        {KIN_OPTION_STRING, "cache", 0, &o->cache_dir, "DIR",
         "directory of fetched and prepacked weights (default: ~/.cache/kin)", 0, 0},
        {KIN_OPTION_SIZE, "cache-size", 0, &o->cache_size, "SIZE",
         "size limit of the prepacked weights and of the fetched weights (default: a fifth of the disk, and half of it)", 0, 0},
        {KIN_OPTION_SIZE, "spare-disk", 0, &o->standby_disk, "SIZE",
         "size limit of standby layers, fetched in case another device fails (default: a tenth of the free disk; 0: none)", 0, 0},
        {KIN_OPTION_STRING, "profile", 0, &o->profile, "FILE",
         "machine profile, as printed by 'kin profile --json' (default: measured once)", 0, 0},
        {KIN_OPTION_FLAG, "no-cache", 0, &o->no_cache, NULL, "do not store prepacked weights on disk", 0, 0},
        {KIN_OPTION_FLAG, "ask-code", 0, &o->ask_code, NULL, "ask for the cluster code even if a key is stored", 0, 0},
        {KIN_OPTION_STRING, "code-file", 0, &o->code_file, "FILE",
         "file with the cluster code, readable by its owner only; for services, which have no terminal", 0, 0},
        {0},
    };
    int n = (int)(sizeof own / sizeof own[0]) - 1;
    memcpy(table, own, sizeof own - sizeof own[0]);
    kin_kv_disk_option_table(&o->kv_disk_size, &o->no_kv_disk, table + n);
    n += KIN_KV_DISK_N_OPTIONS;
    kin_identity_option_table(&o->net, table + n);
    table[n + KIN_IDENTITY_N_OPTIONS] = (kin_option){0};
}

static void show_join_status(void *user, const char *line) {
    (void)user;
    kin_app_log("%s", line);
}

static void show_join_progress(void *user, const char *what, uint64_t done, uint64_t total, uint64_t rate) {
    static char line[128]; // at one address: otherwise each line would count as new work
    if (rate == 0 || total < done) {
        kin_app_progress(user, what, done, total);
        return;
    }
    snprintf(line, sizeof line, "%s at %.0f MB/s, %.0f s left", what, (double)rate / 1e6, (double)(total - done) / (double)rate);
    kin_app_progress(user, line, done, total);
}

// Measures this machine the first time: heads plan with the result.
static int measure_machine(const join_options *o, const kin_identity *self, const char *cache_dir, kin_device_facts *facts,
                           kin_err *err) {
    kin_devices devices;
    kin_device_options dopts = kin_device_options_defaults();
    dopts.n_threads = o->n_threads;
    dopts.gpu_if_any = !o->no_gpu;
    dopts.stop = &kin_app_stop;
    if (kin_devices_open(&devices, &dopts, err) != 0) return KIN_FAIL;
    int rc = o->profile ? kin_profile_read(facts, &devices, self->name, o->profile, err)
                        : kin_profile_obtain(facts, &devices, self->name, cache_dir, false, &kin_app_console, err);
    kin_devices_close(&devices);
    if (rc == 0 && o->memory && (double)o->memory < facts->memory_bytes) facts->memory_bytes = (double)o->memory;
    return rc;
}

// Without a model file the weights are fetched and need space on disk.
static int check_cache(const join_options *o, const char *dir, kin_err *err) {
    if (o->model) return 0;
    int rc = kin_folder_make(dir, err);
    if (rc == 0 && access(dir, W_OK | X_OK) != 0) rc = kin_err_set(err, "%s: %s", dir, strerror(errno));
    return rc == 0 ? 0 : kin_err_prefix(err, "cannot store fetched weights; set another directory with --cache DIR");
}

typedef struct typed_key {
    const kin_identity_options *net;
    const kin_key *key;
    bool is_typed; // not saved yet
} typed_key;

static void keep_key(void *user) {
    typed_key *typed = user;
    kin_err err;
    if (typed->is_typed && kin_identity_keep_key(typed->key, typed->net, &err) != 0)
        kin_app_log("the key was not stored: %s", err.text);
    typed->is_typed = false;
}

// Takes part in the cluster until stopped. If the head has another key, asks for the code again, provided that it can be typed.
static int join_cluster(kin_join_options *jo, typed_key *typed, const char *code_file, kin_err *err) {
    bool has_other_key = true;
    int rc = 0;
    jo->has_other_key = &has_other_key;
    jo->accepted = keep_key;
    jo->user = typed;
    while (rc == 0 && has_other_key) {
        has_other_key = false;
        rc = kin_join_run(jo, err);
        if (!has_other_key) return rc;
        kin_err why = *err;
        if (code_file)
            return kin_err_set(err, "%s; write the code that 'kin code' shows on the head into %s", why.text, code_file);
        if (!isatty(STDIN_FILENO))
            return kin_err_set(err, "%s; run 'kin code' on the head, then 'kin join --ask-code' here", why.text);
        kin_app_progress_clear();
        kin_app_log("%s; run 'kin code' on the head to see it", why.text);
        rc = kin_identity_ask_key(&jo->key, &kin_app_console, err);
        typed->is_typed = true;
    }
    return rc;
}

static int get_key(const join_options *o, typed_key *typed, kin_key *key, kin_err *err) {
    typed->is_typed = o->ask_code || o->code_file;
    if (o->code_file) return kin_identity_file_key(key, o->code_file, err) == 0 ? 0 : kin_err_prefix(err, "--code-file");
    return o->ask_code ? kin_identity_ask_key(key, &kin_app_console, err)
                       : kin_identity_device_key(key, &typed->is_typed, &o->net, &kin_app_console, err);
}

static int run_join(const join_options *o, const kin_head_address *head) {
    char cache[1000];
    kin_device_facts facts;
    kin_identity self;
    kin_model model = {0};
    kin_manifest manifest = {0};
    const char *paths[KIN_PROTO_MAX_FILES];
    kin_err err;
    kin_join_options jo = {.version = KIN_VERSION,
                           .listen = o->net.listen,
                           .port = (uint16_t)o->net.port,
                           .model_path = o->model,
                           .cache_dir = o->cache_dir ? o->cache_dir : kin_session_default_cache(cache, sizeof cache),
                           .no_cache = o->no_cache,
                           .cache_cap = o->cache_size,
                           .standby_disk = o->standby_disk,
                           .keeps_kv = !o->no_kv_disk,
                           .kv_cap = o->kv_disk_size,
                           .memory = o->memory,
                           .n_threads = o->n_threads,
                           .no_gpu = o->no_gpu,
                           .stop = &kin_app_stop,
                           .status = show_join_status,
                           .progress = show_join_progress};
    typed_key typed = {.net = &o->net, .key = &jo.key};
    int rc = kin_identity_open(&self, &o->net, &err);
    if (rc == 0) rc = get_key(o, &typed, &jo.key, &err);
    if (rc == 0 && !jo.cache_dir) rc = kin_err_set(&err, "there is no home directory for the weights; set --cache");
    if (rc == 0) rc = check_cache(o, jo.cache_dir, &err);
    if (rc == 0) rc = measure_machine(o, &self, jo.cache_dir, &facts, &err);
    if (rc == 0 && o->model) rc = kin_model_open(&model, o->model, &err);
    if (rc == 0 && o->model) rc = kin_fleet_hash(&manifest, paths, &model, jo.cache_dir, &kin_app_console, &err);
    if (rc == 0) {
        jo.facts = &facts;
        jo.head = head->name[0] ? head->name : NULL;
        jo.head_port = head->port;
        if (o->model) memcpy(jo.model_hash.bytes, manifest.hash, sizeof jo.model_hash.bytes);
        jo.model = model.gguf;
        jo.id = self.id;
        jo.run = self.run;
        jo.name = self.name;
        jo.n_advertise = self.n_advertise;
        memcpy(jo.advertise, self.advertise, sizeof jo.advertise);
        kin_notify("READY=1"); // from now on it waits for a head by itself
        rc = join_cluster(&jo, &typed, o->code_file, &err);
        kin_notify("STOPPING=1");
    }
    kin_key_wipe(&jo.key);
    kin_manifest_fini(&manifest);
    kin_model_close(&model);
    kin_app_progress_clear();
    if (rc != 0) return kin_app_fail(&err);
    return KIN_EXIT_OK;
}

static int read_join_options(join_options *o, kin_head_address *head, int argc, char **argv, kin_err *err) {
    kin_option table[N_OPTIONS];
    const char *operand = NULL;
    fill_join_table(o, table);
    kin_option_tables tables = {table};
    if (kin_options_parse(tables, argc, argv, &operand, err) != 0) return KIN_FAIL;
    if (kin_options_gives_way(tables, argc, argv, "code-file", "ask-code")) o->code_file = NULL;
    if (kin_options_gives_way(tables, argc, argv, "ask-code", "code-file")) o->ask_code = false;
    if (o->ask_code && o->code_file) return kin_err_set(err, "--ask-code and --code-file exclude each other");
    return kin_head_address_parse(operand, head, err);
}

// A service cannot ask for the code.
static int check_join(int argc, char **argv, kin_err *err) {
    join_options o = {.standby_disk = KIN_JOIN_STANDBY_DISK};
    kin_head_address head;
    char code[KIN_CODE_TEXT];
    if (read_join_options(&o, &head, argc, argv, err) != 0) return KIN_FAIL;
    if (o.ask_code) return kin_err_set(err, "--ask-code needs a terminal, which a service has not: use --code-file FILE");
    int rc = o.code_file ? kin_code_read(code, o.code_file, err) : 0;
    kin_code_wipe(code, sizeof code);
    if (!o.code_file && !kin_identity_has_key(&o.net))
        kin_app_log("no code of a cluster is stored here yet: run 'kin join' once on a terminal, or add --code-file FILE");
    return rc == 0 ? 0 : kin_err_prefix(err, "--code-file");
}

static int command_join(int argc, char **argv) {
    join_options o = {.standby_disk = KIN_JOIN_STANDBY_DISK};
    kin_head_address head;
    kin_err err;
    return read_join_options(&o, &head, argc, argv, &err) == 0 ? run_join(&o, &head) : kin_app_usage("join", &err);
}

static void with_join_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    join_options o = {.standby_disk = KIN_JOIN_STANDBY_DISK};
    kin_option table[N_OPTIONS];
    fill_join_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_join = {
    .name = "join",
    .args = "[HEAD[:PORT]]",
    .summary = "lend this machine to a head ('kin run --cluster' on another machine)",
    .help = "Without HEAD, searches the local network for it. The first time, asks for the code that 'kin code' shows on the "
            "head, and\n"
            "stores it once a head has accepted it. Needs no model file. Ctrl-C stops.\n"
            "As a service: kin service install join --code-file FILE.",
    .run = command_join,
    .check = check_join,
    .options = with_join_options,
};
