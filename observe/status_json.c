#include "observe/status_json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

// A level of shortening.
typedef struct brevity {
    int n_windows; // most windows of a member
    bool no_words; // omits what is for people only
} brevity;

static const brevity brevities[] = {{KIN_MAX_WINDOWS, false}, {16, false}, {2, false}, {0, true}};

enum { N_BREVITIES = sizeof brevities / sizeof brevities[0] };

static void set_bytes(json_t *o, const char *key, uint64_t n) {
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void set_text(json_t *o, const char *key, const char *text) {
    if (text && text[0]) json_object_set_new(o, key, json_string(text));
}

static void set_ms(json_t *o, const char *key, uint64_t ns) {
    if (ns) json_object_set_new(o, key, json_real((double)(ns / 1000) / 1e3));
}

static json_t *head_of(const kin_status_json_head *h, const brevity *brief) {
    static const char *const states[] = {"gathering", "short", "preparing", "serving"};
    json_t *o = json_object();
    char hash[2 * sizeof h->model_hash.bytes + 1];
    *kin_hex_put(hash, h->model_hash.bytes, sizeof h->model_hash.bytes) = '\0';
    set_text(o, "name", h->name);
    set_text(o, "version", h->version);
    set_bytes(o, "port", h->port);
    set_text(o, "state", states[h->state]);
    if (!brief->no_words) set_text(o, "doing", h->doing);
    set_bytes(o, "epoch", h->epoch);
    set_bytes(o, "rounds", (uint64_t)h->n_rounds);
    set_text(o, "model", h->model);
    set_text(o, "model_hash", hash);
    set_bytes(o, "layers", (uint64_t)h->n_layer);
    set_bytes(o, "context", (uint64_t)h->n_ctx);
    set_bytes(o, "sequences", (uint64_t)h->n_sequences);
    set_bytes(o, "sequences_total", h->n_sequences_total);
    set_bytes(o, "prompt_tokens", h->n_prompt);
    set_bytes(o, "tokens", h->n_generated);
    json_object_set_new(o, "tokens_per_s", json_real(h->tokens_per_s));
    json_object_set_new(o, "pages_bytes", json_integer((json_int_t)h->pages_bytes));
    json_object_set_new(o, "uptime_s", json_real(h->uptime_s));
    return o;
}

// ---- members

// A counter that decreased has restarted: then counts from 0.
static double since(uint64_t now, uint64_t before) {
    return (double)(now < before ? now : now - before);
}

static double share(double part, double whole) {
    return whole <= 0 ? 0 : part > whole ? 1 : part / whole;
}

static void set_shares(json_t *o, const kin_status_sample *s) {
    const kin_proto_status *a = &s->now, *b = &s->before;
    double compute = since(a->compute_ns, b->compute_ns), wait = since(a->wait_ns, b->wait_ns), all = compute + wait;
    json_object_set_new(o, "compute_share", json_real(share(compute, all)));
    json_object_set_new(o, "wait_share", json_real(share(wait, all)));
    json_object_set_new(o, "disk_share", json_real(share(since(a->disk_ns, b->disk_ns), all)));
}

static void set_status(json_t *o, const kin_status_sample *sample) {
    const kin_proto_status *s = &sample->now;
    if (!sample->has_now) return;
    set_bytes(o, "memory_free", s->memory_free);
    set_bytes(o, "resident_bytes", s->resident_bytes);
    set_bytes(o, "streamed_bytes", s->streamed_bytes);
    set_shares(o, sample);
    set_ms(o, "rtt_ms", s->rtt_ns);
    set_bytes(o, "bytes_in", s->net_in);
    set_bytes(o, "bytes_out", s->net_out);
    set_bytes(o, "steps", s->steps);
    set_bytes(o, "tokens", s->tokens);
}

static void set_windows(json_t *o, const kin_member_windows *w, int n_max) {
    json_t *list = json_array();
    int n_layers = 0, n_gpu = 0, n_cpu_moe = 0, n = w ? w->windows.n : 0;
    for (int i = 0; i < n; i++) {
        const kin_window *at = &w->windows.at[i];
        n_layers += at->layer_end - at->layer_begin;
        n_gpu += at->n_gpu_layers;
        n_cpu_moe += at->n_cpu_moe;
        if (i >= n_max) continue;
        json_t *one = json_object();
        set_bytes(one, "round", (uint64_t)w->rounds[i]);
        set_bytes(one, "layer_begin", (uint64_t)at->layer_begin);
        set_bytes(one, "layer_end", (uint64_t)at->layer_end);
        set_bytes(one, "n_gpu", (uint64_t)at->n_gpu_layers);
        json_array_append_new(list, one);
    }
    set_bytes(o, "layers", (uint64_t)n_layers);
    set_bytes(o, "gpu_layers", (uint64_t)n_gpu);
    if (n_cpu_moe > 0) set_bytes(o, "cpu_moe_layers", (uint64_t)n_cpu_moe);
    json_object_set_new(o, "windows", list);
    if (n > n_max) set_bytes(o, "windows_left_out", (uint64_t)(n - n_max));
}

static const char *state_of(const kin_status_json_member *m) {
    static const char *const own[] = {"joined", "preparing", "waiting", "computing"};
    static const char *const states[] = {
        [KIN_DEVICE_NONE] = "none",           [KIN_DEVICE_GREETED] = "greeted", [KIN_DEVICE_JOINED] = "joined",
        [KIN_DEVICE_PREPARING] = "preparing", [KIN_DEVICE_READY] = "waiting",   [KIN_DEVICE_FAILED] = "failed",
        [KIN_DEVICE_LOST] = "lost",           [KIN_DEVICE_LEFT] = "left"};
    bool works = !m->device || m->device->state == KIN_DEVICE_READY;
    return works && m->sample.has_now ? own[m->sample.now.state] : states[m->device ? m->device->state : KIN_DEVICE_READY];
}

static void set_device(json_t *o, const kin_membership_device *d, const brevity *brief) {
    set_bytes(o, "memory_lent", d->facts.memory);
    set_bytes(o, "memory_total", d->facts.memory_total);
    set_bytes(o, "threads", d->facts.n_threads);
    if (brief->no_words) return;
    set_text(o, "last_error", d->last_error);
    set_text(o, "cpu", d->facts.cpu);
    set_text(o, "gpu", d->facts.gpu);
    set_text(o, "os", d->facts.os);
}

static json_t *member_of(const kin_status_json *r, const kin_status_json_member *m, const brevity *brief) {
    json_t *o = json_object();
    set_text(o, "name", m->device ? m->device->name : r->head.name);
    set_text(o, "role", m->device ? "device" : "head");
    set_text(o, "address", m->address);
    set_text(o, "state", state_of(m));
    set_bytes(o, "stage", (uint64_t)m->stage);
    if (m->sample.has_now && !brief->no_words) set_text(o, "doing", m->sample.now.doing);
    set_windows(o, m->windows, brief->n_windows);
    if (m->device) set_device(o, m->device, brief);
    set_bytes(o, "memory_planned", m->memory_planned);
    set_bytes(o, "kv_bytes", m->sample.ready.kv_bytes);
    set_bytes(o, "weights_bytes", m->sample.ready.weights_bytes);
    set_bytes(o, "compute_bytes", m->sample.ready.compute_bytes);
    set_status(o, &m->sample);
    set_ms(o, "head_rtt_ms", m->sample.rtt_ns);
    return o;
}

static json_t *build(const kin_status_json *r, const brevity *brief) {
    json_t *root = json_object(), *devices = json_array();
    for (int i = 0; i < r->n_members; i++) json_array_append_new(devices, member_of(r, &r->members[i], brief));
    json_object_set_new(root, "head", head_of(&r->head, brief));
    json_object_set_new(root, "devices", devices);
    return root;
}

char *kin_status_json_write(const kin_status_json *r, size_t n_max) {
    for (int i = 0; i < N_BREVITIES; i++) {
        json_t *root = build(r, &brevities[i]);
        char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
        json_decref(root);
        if (!text || strlen(text) <= n_max) return text;
        free(text);
    }
    return NULL;
}
