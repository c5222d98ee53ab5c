#include "cluster/fleet.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/border.h"
#include "observe/plan_file.h"
#include "sys/cond.h"

#define SHOW_EVERY_NS UINT64_C(100000000) // for progress

kin_fleet_options kin_fleet_options_defaults(void) {
    kin_planner_options planner = kin_planner_options_defaults();
    return (kin_fleet_options){
        .plan = planner.plan, .scheduler = planner.scheduler, .accept = planner.accept, .wire = "f32", .allreduce = "mesh"};
}

// ---- the content hash

typedef struct hashing {
    kin_manifest *manifest;
    const char **paths;
    int n_paths, rc;
    kin_manifest_options o;
    kin_err *err;
    pthread_mutex_t mutex; // guards done
    pthread_cond_t ended;
    bool done;
} hashing;

static void *hash(void *arg) {
    hashing *h = arg;
    h->rc = kin_manifest_make(h->manifest, h->paths, h->n_paths, &h->o, h->err);
    pthread_mutex_lock(&h->mutex);
    h->done = true;
    pthread_cond_signal(&h->ended);
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

// Shows progress until the hashing has ended.
static void show_hashing(hashing *h, const kin_console *console) {
    kin_manifest_progress *p = h->o.progress;
    pthread_mutex_lock(&h->mutex);
    while (!h->done) {
        if (atomic_load(console->stop)) atomic_store(&p->stop, true);
        console->progress(NULL, "hashing the model", atomic_load(&p->done), atomic_load(&p->total));
        kin_cond_wait_for(&h->ended, &h->mutex, SHOW_EVERY_NS);
    }
    pthread_mutex_unlock(&h->mutex);
    console->clear_progress();
}

int kin_fleet_hash(kin_manifest *manifest, const char **paths, const kin_model *model, const char *cache_dir,
                   const kin_console *console, kin_err *err) {
    kin_manifest_progress progress = {0};
    hashing h = {.manifest = manifest, .paths = paths, .o = kin_manifest_options_defaults(), .err = err};
    h.n_paths = kin_gguf_n_files(model->gguf);
    if (h.n_paths > KIN_PROTO_MAX_FILES)
        return kin_err_set(err, "the model has %d files, at most %d are supported", h.n_paths, KIN_PROTO_MAX_FILES);
    for (int i = 0; i < h.n_paths; i++) paths[i] = kin_gguf_file_path(model->gguf, i);
    h.o.cache_dir = cache_dir;
    h.o.progress = &progress;
    pthread_t thread;
    pthread_mutex_init(&h.mutex, NULL);
    kin_cond_init(&h.ended);
    if (pthread_create(&thread, NULL, hash, &h) != 0) {
        h.rc = kin_err_set(err, "cannot start a thread");
    } else {
        show_hashing(&h, console);
        pthread_join(thread, NULL);
    }
    pthread_cond_destroy(&h.ended);
    pthread_mutex_destroy(&h.mutex);
    // The hash was made by file name: checks that these are still the open files.
    if (h.rc == 0 && kin_gguf_check_names(model->gguf, err) != 0) {
        kin_manifest_fini(manifest);
        h.rc = KIN_FAIL;
    }
    return h.rc;
}

static void show_status(void *user, const char *line) {
    const kin_fleet *f = user;
    f->console->status(line);
}

// ---- opening

static int open_planner(kin_fleet *f, const kin_fleet_base *base, kin_err *err) {
    kin_planner_options o = kin_planner_options_defaults();
    kin_manual_plan manual;
    if (!kin_planner_is_word(f->o.plan)) {
        if (kin_plan_file_read(f->o.plan, f->self.name, &manual, err) != 0) return KIN_FAIL;
        o.manual = &manual;
    }
    o.plan = f->o.plan;
    o.scheduler = f->o.scheduler;
    o.halda = f->o.halda;
    o.accept = f->o.accept;
    o.n_rounds = f->o.n_rounds;
    o.head_name = f->self.name;
    o.begins_alone = f->o.begins_alone && f->o.n_devices == 0;
    o.dry_run = base->dry_run;
    return kin_planner_open(&f->planner, &o, base->model_facts, base->work, err);
}

// Opens on the default port if it is free; else, if no port was requested, on any.
static int open_cluster(kin_fleet *f, kin_cluster_options *co, kin_err *err) {
    co->port = (uint16_t)(f->o.net.port ? f->o.net.port : KIN_DEFAULT_PORT);
    int rc = kin_cluster_open(&f->cluster, co, err);
    if (rc == 0) return 0;
    if (f->o.net.port) return rc;
    co->port = 0;
    rc = kin_cluster_open(&f->cluster, co, err);
    if (rc == 0)
        kin_log(KIN_LOG_WARN,
                "port %d is in use, perhaps by another head on this machine, whose devices cannot join this one. "
                "Run 'kin status' for details; stop that head, or use it over HTTP if it is 'kin serve'",
                KIN_DEFAULT_PORT);
    return rc;
}

static int find_allreduce(const char *name, kin_proto_allreduce *out, kin_err *err) {
    static const char *const names[KIN_PROTO_ALLREDUCE_N] = {"mesh", "star", "tree", "ring"};
    for (int i = 0; i < KIN_PROTO_ALLREDUCE_N; i++) {
        *out = i;
        if (strcmp(name, names[i]) == 0) return 0;
    }
    return kin_err_set(err, "--allreduce %s: must be mesh, star, tree or ring", name);
}

kin_activation_type kin_fleet_wire_type(const kin_fleet_options *o) {
    return strcmp(o->wire, "q8") == 0 ? KIN_ACTIVATION_Q8 : strcmp(o->wire, "f16") == 0 ? KIN_ACTIVATION_F16 : KIN_ACTIVATION_F32;
}

static int check_wire(const kin_cluster_options *co, kin_err *err) {
    int unit = (int)kin_activation_unit(co->wire_type);
    for (int il = 0; il <= co->model->hp.n_layer; il++) {
        const int width = kin_border_before(&co->model->hp, il).width;
        if (width % unit != 0)
            return kin_err_set(err, "--wire q8 needs a hidden size that is a multiple of %d, but this model's is %d", unit,
                               width);
    }
    return 0;
}

int kin_fleet_open(kin_fleet *f, const kin_fleet_options *o, const kin_fleet_base *base, kin_err *err) {
    *f = (kin_fleet){.o = *o, .console = base->console};
    kin_cluster_options co = {.version = KIN_VERSION,
                              .listen = o->net.listen,
                              .hidden = o->hidden,
                              .model = base->model,
                              .manifest = &f->manifest,
                              .paths = f->paths,
                              .devices = base->devices,
                              .shard = base->shard,
                              .wire_type = kin_fleet_wire_type(o),
                              .model_name = base->model_name,
                              .timeline = base->timeline,
                              .facts = base->facts,
                              .calls = kin_planner_calls_of(base->facts != NULL),
                              .stop = base->console->stop,
                              .status = show_status,
                              .status_user = f};
    if (find_allreduce(o->allreduce, &co.allreduce, err) != 0 || check_wire(&co, err) != 0) return KIN_FAIL;
    if (kin_identity_open(&f->self, &o->net, err) != 0) return KIN_FAIL;
    if (open_planner(f, base, err) != 0) return KIN_FAIL;
    co.planner = f->planner;
    co.gives_up = o->n_devices > 0; // a manual plan waits for the devices that it names
    co.dry_run = base->dry_run;
    co.n_expected = o->n_devices ? o->n_devices : kin_planner_n_named(f->planner);
    if (kin_identity_head_key(&co.key, &o->net, f->console, err) != 0) return KIN_FAIL;
    co.id = f->self.id;
    co.name = f->self.name;
    co.n_advertise = f->self.n_advertise;
    memcpy(co.advertise, f->self.advertise, sizeof co.advertise);
    int rc = kin_fleet_hash(&f->manifest, f->paths, base->model, base->cache_dir, f->console, err);
    if (rc == 0) rc = open_cluster(f, &co, err);
    kin_key_wipe(&co.key);
    if (rc == 0) f->console->log("head '%s' listens on port %u", f->self.name, kin_cluster_port(f->cluster));
    return rc;
}

void kin_fleet_close(kin_fleet *f) {
    kin_cluster_close(f->cluster);
    kin_planner_close(f->planner);
    kin_manifest_fini(&f->manifest);
    *f = (kin_fleet){0};
}
