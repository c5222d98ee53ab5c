// kin demo: shows kin's main use on one machine: a ring of processes that generates a story.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/local_cluster.h"
#include "app/option_tables.h"

typedef struct demo_options {
    const char *prompt;
    uint64_t seed;
    int n_devices;
} demo_options;

enum { N_DEMO_OPTIONS = 4, MAX_WORDS = 40 };

static void fill_demo_table(demo_options *o, kin_option table[N_DEMO_OPTIONS]) {
    *o = (demo_options){.prompt = "Once upon a time", .seed = 2, .n_devices = 3};
    const kin_option own[N_DEMO_OPTIONS] = {
        {KIN_OPTION_STRING, "prompt", 'p', &o->prompt, "TEXT", "beginning of the story (default: Once upon a time)", 0, 0},
        {KIN_OPTION_U64, "seed", 0, &o->seed, "N", "random seed (default: 2)", 0, 0},
        {KIN_OPTION_INT, "devices", 0, &o->n_devices, "N", "number of devices besides the head (default: 3)", 1, 7},
        {0},
    };
    memcpy(table, own, sizeof own);
}

// Clears settings of other commands and paths of this user's files, which must not affect the demo.
static void clear_environment(void) {
    extern char **environ;
    char name[128];
    for (char **e = environ; *e;) {
        size_t n = strcspn(*e, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, *e);
        bool is_ours = strncmp(name, "KIN_", 4) == 0 || strncmp(name, "XDG_", 4) == 0;
        if (!is_ours || n >= sizeof name || unsetenv(name) != 0) e++;
    }
}

// Runs the head, which is kin run, in this process. Returns its exit status.
static int run_head(const kin_local_cluster *h, const demo_options *o) {
    char home[KIN_LOCAL_CLUSTER_PATH], key[KIN_LOCAL_CLUSTER_PATH], cache[KIN_LOCAL_CLUSTER_PATH], port[16], n_devices[16],
        seed[32];
    snprintf(port, sizeof port, "%u", h->port);
    snprintf(n_devices, sizeof n_devices, "%d", h->n_devices);
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    setenv("HOME", kin_local_cluster_path(h, "", home), 1);
    const char *words[] = {"--cluster",
                           "--devices",
                           n_devices,
                           "--plan",
                           "even",
                           "--name",
                           "desk",
                           "--key-file",
                           kin_local_cluster_path(h, "key", key),
                           "--listen",
                           "127.0.0.1",
                           "--port",
                           port,
                           "--hidden",
                           "--cache",
                           kin_local_cluster_path(h, "cache", cache),
                           "--no-cache",
                           "--threads",
                           "1",
                           "--stats",
                           "--n",
                           "400",
                           "--seed",
                           seed,
                           "--prompt",
                           o->prompt};
    char *argv[MAX_WORDS];
    int argc = (int)(sizeof words / sizeof words[0]);
    for (int i = 0; i < argc; i++) argv[i] = (char *)words[i];
    return kin_command_run.run(argc, argv);
}

static void print_next_steps(int n_machines) {
    fprintf(stderr,
            "\nThat was one model on %d devices, each a process of this machine. A model this small is faster on one machine;\n"
            "a model larger than the memory of one machine is faster on several. Next:\n\n"
            "  %s chat qwen3-4b\n      a larger model, which is fetched the first time ('kin pull --names' lists more)\n"
            "  %s run -m model.gguf -p \"The sea is\"\n      your own model, a GGUF file\n"
            "  %s chat --cluster -m model.gguf\n      with a second machine that runs 'kin join'\n",
            n_machines, kin_app_name, kin_app_name, kin_app_name);
}

static int demo(const demo_options *o) {
    kin_local_cluster h;
    kin_err err;
    if (kin_local_cluster_open(&h, o->n_devices, &err) != 0) return kin_app_fail(&err);
    kin_app_log("starting %d devices as processes of this machine, in %s", h.n_devices, h.folder);
    int status = run_head(&h, o);
    bool is_lost = kin_local_cluster_lost(&h, &err);
    int n_devices = h.n_devices;
    kin_local_cluster_close(&h);
    if (atomic_load(&kin_app_interrupted))
        // Takes precedence over whatever else ended because of it.
        return KIN_EXIT_INTERRUPTED;
    if (is_lost) {
        kin_app_log("%s; the story is incomplete", err.text);
        return KIN_EXIT_FAILED;
    }
    if (status == KIN_EXIT_OK) print_next_steps(n_devices + 1);
    return status;
}

static int command_demo(int argc, char **argv) {
    demo_options o;
    kin_option table[N_DEMO_OPTIONS];
    kin_err err;
    fill_demo_table(&o, table);
    clear_environment();
    if (kin_options_parse((kin_option_tables){table}, argc, argv, NULL, &err) != 0) return kin_app_usage("demo", &err);
    return demo(&o);
}

static void with_demo_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    demo_options o;
    kin_option table[N_DEMO_OPTIONS];
    fill_demo_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_demo = {
    .name = "demo",
    .args = "[-p TEXT] [--devices N]",
    .summary = "run a ring of devices on this machine that tells a story",
    .help =
        "Starts the devices as processes of this machine, each with its own home directory, joins them into a ring on the "
        "loopback\n"
        "interface with the demo model, and shows which device ran which layers and where the time went. Needs no network and\n"
        "leaves no files behind.",
    .run = command_demo,
    .options = with_demo_options,
};
