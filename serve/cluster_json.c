#include "serve/cluster_json.h"

#include <stdlib.h>
#include <string.h>

#include "net/address.h"
#include "observe/plan_view.h"
#include "observe/status_json.h"
#include "sys/highs.h"
#include "sys/memory.h"

enum { MAX_OWN = 16, MAX_REPORT = 1 << 16, MAX_RING = KIN_PLAN_MAX_STOPS + KIN_FACTS_MAX_DEVICES };

static kin_status_json_head describe(const kin_session *s, const char *model, const kin_service_status *status) {
    const kin_scheduler_stats *stats = &status->scheduler;
    return (kin_status_json_head){.name = "this machine",
                                  .version = KIN_VERSION,
                                  .model = model,
                                  .doing = status->n_running > 0 ? "computing" : "waiting for requests",
                                  .state = status->is_up ? KIN_MEMBERSHIP_SERVING : KIN_MEMBERSHIP_PREPARING,
                                  .n_rounds = 1,
                                  .n_layer = s->model.hp.n_layer,
                                  .n_ctx = s->n_ctx,
                                  .n_sequences = status->n_running,
                                  .n_prompt = stats->n_prompt_tokens,
                                  .n_generated = stats->n_generated_tokens};
}

static kin_status_sample sample_of(const kin_service_status *status) {
    const kin_shard_stats *shard = &status->shard;
    const kin_weights_stats *w = &shard->weights;
    uint64_t weights = w->mapped_bytes + w->cached_bytes + w->packed_bytes + w->gpu_bytes;
    kin_status_sample sample = {.has_now = true};
    sample.now.state = status->n_running > 0 ? KIN_PROTO_COMPUTING : KIN_PROTO_WAITING;
    sample.now.streamed_bytes = w->stream.read_bytes;
    sample.now.resident_bytes = w->resident_bytes;
    sample.now.memory_free = kin_memory_read().available;
    sample.now.tokens = status->scheduler.n_prompt_tokens + status->scheduler.n_generated_tokens;
    sample.ready = (kin_proto_ready){
        .kv_bytes = shard->kv_bytes, .weights_bytes = weights, .compute_bytes = shard->compute_bytes, .gpu_bytes = w->gpu_bytes};
    return sample;
}

char *kin_alone_status_json(const kin_session *s, const char *model, const kin_service_status *status) {
    kin_status_json *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    const kin_layer_share share = {s->model.hp.n_layer, s->n_gpu_layers, s->n_cpu_moe};
    kin_member_windows windows = {.windows = {.n = 1, .at = {kin_plan_window_at(0, &share)}}};
    r->head = describe(s, model, status);
    r->members[r->n_members++] = (kin_status_json_member){.sample = sample_of(status), .windows = &windows, .stage = 1};
    char *text = kin_status_json_write(r, MAX_REPORT);
    free(r);
    return text;
}

json_t *kin_head_address_json(const kin_session *s) {
    char own[MAX_OWN][KIN_ADDRESS_HOST];
    const char *listen = s->fleet.o.net.listen;
    if (!s->clustered || !s->fleet.cluster) return NULL;
    int n = listen ? 0 : kin_address_own(own, MAX_OWN), best = 0;
    for (int i = n - 1; i >= 0; i--)
        if (!strchr(own[i], ':')) best = i; // IPv4 is easier to type
    return json_pack("{s:s?, s:i, s:b}", "address",
                     listen  ? listen
                     : n > 0 ? own[best]
                             : NULL,
                     "port", kin_cluster_port(s->fleet.cluster), "hidden", s->fleet.o.hidden);
}

// ---- the plan

static const kin_group *group_with(const kin_plan_basis *b, int device) {
    for (int i = 0; i < b->plan.groups.n; i++)
        if (kin_group_members(&b->plan.groups.groups[i]) & kin_device_bit(device)) return &b->plan.groups.groups[i];
    return NULL;
}

// Lists the devices in ring order, with each member of a group; returns their number.
static int ring_of(const kin_plan_basis *b, int devices[MAX_RING]) {
    int n = 0;
    for (int s = 0; s < b->plan.n_stops; s++) {
        int device = b->plan.stops[s].device;
        const kin_group *group = b->plan.stops[s].relay ? NULL : group_with(b, device);
        for (int i = 0; group && i < group->n - 1; i++) devices[n++] = group->devices[i];
        devices[n++] = device; // the last one of a group
    }
    return n;
}

static json_t *links_json(const kin_plan_basis *b) {
    json_t *links = json_array();
    int ring[MAX_RING], n = ring_of(b, ring);
    for (int s = 0; s < n && n > 1; s++) {
        int from = ring[s], to = ring[(s + 1) % n];
        const kin_link_facts *link = &b->facts.links[from][to];
        if (!kin_facts_link_usable(link)) continue; // not measured
        json_array_append_new(links, json_pack("{s:s, s:s, s:f, s:f}", "from", b->facts.devices[from].name, "to",
                                               b->facts.devices[to].name, "rtt_ms", link->rtt_s * 1e3, "bytes_s", link->bytes_s));
    }
    return links;
}

static const kin_layer_share *share_of(const kin_plan_basis *b, int device) {
    const kin_group *group = group_with(b, device);
    return &b->plan.shares[group ? kin_group_last(group) : device];
}

static json_t *groups_json(const kin_plan_basis *b) {
    json_t *groups = json_array();
    for (int i = 0; i < b->plan.groups.n; i++) {
        const kin_group *g = &b->plan.groups.groups[i];
        json_t *names = json_array(), *shares = json_array();
        for (int k = 0; k < g->n; k++) {
            json_array_append_new(names, json_string(b->facts.devices[g->devices[k]].name));
            json_array_append_new(shares, json_real(kin_group_share(g, g->devices[k])));
        }
        json_array_append_new(groups, json_pack("{s:o, s:o, s:i}", "devices", names, "shares", shares, "layers",
                                                share_of(b, kin_group_last(g))->n_layer));
    }
    return groups;
}

static json_t *unmeasured_json(const kin_plan_basis *b, const char *why) {
    json_t *ring = json_array(), *devices = json_array();
    int members[MAX_RING], n = ring_of(b, members);
    for (int s = 0; s < n; s++) json_array_append_new(ring, json_pack("{s:s}", "name", b->facts.devices[members[s]].name));
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES && b->facts.devices[i].name[0]; i++)
        json_array_append_new(devices, json_pack("{s:s, s:i, s:i, s:i}", "name", b->facts.devices[i].name, "layers",
                                                 share_of(b, i)->n_layer, "gpu_layers", share_of(b, i)->n_layer_gpu,
                                                 "cpu_moe_layers", share_of(b, i)->n_cpu_moe));
    json_t *json =
        json_pack("{s:i, s:s, s:o, s:o}", "rounds", b->plan.n_rounds, "not_predicted", why, "ring", ring, "devices", devices);
    if (json && b->plan.groups.n > 0) json_object_set_new(json, "groups", groups_json(b));
    return json;
}

json_t *kin_plan_basis_json(const kin_plan_basis *b) {
    kin_plan_options options = kin_plan_options_defaults();
    kin_plan_view *view = malloc(sizeof *view);
    kin_err err;
    if (!view) return NULL;
    if (kin_highs_is_there()) options.ilp = kin_highs_solve;
    bool is_measured = b->facts.n_device > 0, is_known = false;
    if (!is_measured)
        kin_err_set(&err, "the plan was not made from measurements");
    else
        is_known = kin_plan_view_of(view, &b->facts, &b->plan, &options, &err) == 0;
    json_t *json = is_known ? kin_plan_view_json(view) : unmeasured_json(b, err.text);
    if (json) json_object_set_new(json, "links", links_json(b));
    free(view);
    return json;
}
