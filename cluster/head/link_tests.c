#include "cluster/head/link_tests.h"

#include "base/log.h"
#include "model/border.h"
#include "pure/proto/label.h"

static void tests_are_over(void *user, uint32_t link, const kin_proto_device *device) {
    const kin_cluster_link_tests *t = user;
    kin_cluster_devices_act(t->devices, &(kin_membership_event){.kind = KIN_MEMBERSHIP_FACTS, .link = link, .facts = device});
}

// Stores the facts under the name that is used here.
static void record_device(kin_cluster_link_tests *t, const kin_proto_id *id, const char *name, const kin_device_facts *measured) {
    kin_device_facts facts = *measured;
    kin_label_set(facts.name, sizeof facts.name - 1, name);
    kin_measurements_set_device(t->measurements, id, &facts);
}

void kin_cluster_link_tests_handle_profile(kin_cluster_link_tests *t, uint32_t from, const kin_proto_profile *m) {
    const kin_membership_device *d = kin_cluster_devices_on(t->devices, from);
    if (d) record_device(t, &d->id, d->name, &m->facts);
}

// Asks a device to measure its link now. False: one of the two is gone.
static bool asks_for(kin_cluster_link_tests *t, const kin_probe_pair *pair) {
    const kin_membership_device *d = kin_cluster_devices_on(t->devices, pair->from), *other = NULL;
    kin_proto_message m = {.type = KIN_FRAME_MEASURE};
    if (pair->to) other = kin_cluster_devices_on(t->devices, pair->to);
    if (!d || (pair->to && !other)) return false;
    m.measure.id = other ? other->id : t->o->id;
    if (other && !kin_connections_endpoint(t->devices->connections, pair->to, &m.measure.endpoint)) return false;
    if (!(pair->is_back ? kin_measurements_ask_back : kin_measurements_ask)(t->measurements, &d->id, &m.measure.id)) return false;
    size_t bytes = (size_t)kin_border_mean(&t->o->model->hp) * sizeof(float);
    m.measure.hidden_bytes = (uint32_t)(bytes < KIN_FRAME_ECHO_BYTES ? bytes : KIN_FRAME_ECHO_BYTES);
    return kin_connections_send(t->devices->connections, pair->from, 0, &m);
}

// Returns the device whose test waits for this measurement.
static uint32_t test_of(const kin_probe_pair *pair) {
    return pair->is_back ? pair->to : pair->from;
}

// Asks for all measurements that may start.
static void probe_next(kin_cluster_link_tests *t) {
    kin_probe_pair pair;
    while (kin_probe_schedule_begin(&t->probes, kin_clock_now(), &pair)) {
        if (asks_for(t, &pair)) continue;
        kin_probe_schedule_end(&t->probes, pair.from);
        kin_pairwise_tests_answered(t->pairwise, test_of(&pair));
    }
}

void kin_cluster_link_tests_forget(kin_cluster_link_tests *t, uint32_t link) {
    kin_pairwise_tests_lost(t->pairwise, link);
    kin_probe_schedule_lost(&t->probes, link);
}

bool kin_cluster_link_tests_handle_device(kin_cluster_link_tests *t, uint32_t from, const kin_proto_device *device) {
    const kin_membership_device *d = kin_cluster_devices_on(t->devices, from);
    if (kin_pairwise_tests_renew(t->pairwise, from, device)) return true;
    if (!t->o->facts || !d || d->state != KIN_DEVICE_GREETED || !kin_measurements_device(t->measurements, &d->id)) return false;
    int n = kin_probe_schedule_add(&t->probes, from, 0, false);
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *other = kin_membership_device_at(t->devices->membership, i);
        kin_proto_endpoint e;
        if (!other || other == d || !kin_connections_endpoint(t->devices->connections, other->link, &e)) continue;
        n += kin_probe_schedule_add(&t->probes, from, other->link, false);
    }
    bool begins = n > 0 && kin_pairwise_tests_begin(t->pairwise, from, device, n, kin_clock_now());
    probe_next(t);
    return begins;
}

static unsigned port_of(const kin_cluster_link_tests *t, const kin_membership_device *d) {
    kin_proto_endpoint e;
    return kin_connections_endpoint(t->devices->connections, d->link, &e) ? e.port : 0;
}

void kin_cluster_link_tests_log_unreachable(kin_cluster_link_tests *t, const kin_proto_id *from, const kin_proto_id *to,
                                            const char *reason) {
    const kin_membership_device *a = kin_cluster_devices_with(t->devices, from), *b = kin_cluster_devices_with(t->devices, to);
    if (!a || !b || !kin_measurements_note_unreachable(t->measurements, from, to)) return;
    char sentence[KIN_MEMBERSHIP_APART_MAX];
    kin_log(KIN_LOG_WARN, "%s",
            kin_membership_apart(sentence, sizeof sentence, a->name, port_of(t, a), b->name, port_of(t, b), reason));
}

// Handles a link that could not be measured from this end. True: the other end tries now.
static bool other_end_tries(kin_cluster_link_tests *t, const kin_membership_device *d, const kin_membership_device *other,
                            const char *reason) {
    kin_log(KIN_LOG_DEBUG, "device '%s' does not reach %s: %s", d->name, other ? other->name : "the head", reason);
    if (!other || !kin_connections_link(t->devices->connections, other->link)) return false;
    if (!kin_measurements_has_failed(t->measurements, &other->id, &d->id))
        return kin_probe_schedule_add(&t->probes, other->link, d->link, true);
    kin_cluster_link_tests_log_unreachable(t, &d->id, &other->id, reason);
    return false;
}

static void record_link(kin_cluster_link_tests *t, uint32_t from, const kin_proto_measured *m) {
    const kin_membership_device *d = kin_cluster_devices_on(t->devices, from),
                                *other = kin_cluster_devices_with(t->devices, &m->id);
    kin_link_facts there = {m->rtt_s, m->to_bytes_s}, back = {m->rtt_s, m->from_bytes_s};
    bool failed = m->reason[0];
    // A device that tried because the other end had failed answers for the other end's test.
    uint32_t test = d && other && kin_measurements_has_failed(t->measurements, &other->id, &d->id) ? other->link : from;
    if (!d || !kin_measurements_store(t->measurements, &d->id, &m->id, failed ? NULL : &there, failed ? NULL : &back)) return;
    if (failed && other_end_tries(t, d, other, m->reason)) return;
    bool in_time = kin_pairwise_tests_answered(t->pairwise, test);
    // Too late for its test: the planner may find a different plan now.
    if (!in_time && (!failed || (other && kin_measurements_is_apart(t->measurements, &d->id, &other->id))))
        kin_cluster_devices_act(t->devices, &(kin_membership_event){.kind = KIN_MEMBERSHIP_DRIFT});
}

void kin_cluster_link_tests_handle_measured(kin_cluster_link_tests *t, uint32_t from, const kin_proto_measured *m) {
    kin_probe_schedule_end(&t->probes, from);
    record_link(t, from, m);
    probe_next(t);
}

void kin_cluster_link_tests_tick(kin_cluster_link_tests *t, kin_time now) {
    probe_next(t);
    kin_pairwise_tests_tick(t->pairwise, now);
}

// ---- opening and closing

int kin_cluster_link_tests_open(kin_cluster_link_tests *t, const kin_cluster_options *options, kin_cluster_devices *devices,
                                kin_err *err) {
    *t = (kin_cluster_link_tests){.o = options, .devices = devices};
    if (kin_measurements_open(&t->measurements, err) != 0 || kin_pairwise_tests_open(&t->pairwise, tests_are_over, t, err) != 0)
        return KIN_FAIL;
    if (t->o->facts) record_device(t, &t->o->id, t->o->name, t->o->facts);
    return 0;
}

void kin_cluster_link_tests_close(kin_cluster_link_tests *t) {
    kin_pairwise_tests_close(t->pairwise);
    kin_measurements_close(t->measurements);
}
