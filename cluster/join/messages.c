// A device's messages to its head, and to the user.
#include "cluster/join/messages.h"

#include <stdio.h>
#include <string.h>

#include "engine/governor.h"
#include "net/address.h"
#include "pure/proto/label.h"
#include "sys/cpu.h"
#include "sys/memory.h"

#ifdef __APPLE__
#define KIN_OS "macOS"
#else
#define KIN_OS "Linux"
#endif

void kin_join_report_status(kin_join *j) {
    char line[KIN_MEMBER_SENTENCE];
    if (kin_member_state_now(j->member) == KIN_MEMBER_GIVEN_UP) return; // it ends with that sentence
    kin_member_doing(j->member, line, sizeof line);
    if (strcmp(line, j->doing) == 0) return;
    snprintf(j->doing, sizeof j->doing, "%s", line);
    if (j->o.status) j->o.status(j->o.user, line);
}

void kin_join_send(kin_join *j, uint32_t epoch, const kin_proto_message *m) {
    if (j->head.link && kin_endpoint_send_message(j->head.link, epoch, m) == KIN_LINK_FULL) j->head.is_backpressured = true;
}

// Sends a message that the head can do without: no room for it is no reason to leave a head that does not read for a moment.
static void send_if_room(kin_join *j, uint32_t epoch, const kin_proto_message *m) {
    if (j->head.link) kin_endpoint_send_message(j->head.link, epoch, m);
}

static void send_profile(kin_join *j, uint64_t memory) {
    kin_proto_message m = {.type = KIN_FRAME_PROFILE};
    if (!j->o.facts) return;
    m.profile.facts = *j->o.facts;
    kin_label_set(m.profile.facts.name, sizeof m.profile.facts.name - 1, j->o.name);
    m.profile.facts.memory_bytes = (double)memory;
    kin_join_send(j, 0, &m);
}

// Lists the addresses at which others reach this device. None: the head uses the address that it sees, which is wrong behind a
// gateway. A link-local address does not help other devices: each has its own name for the link. Loopback helps only those on
// this machine, but for them it is the best.
static void fill_addresses(const kin_join *j, kin_proto_endpoint *e) {
    char own[KIN_PROTO_MAX_ADDRESSES][KIN_ADDRESS_HOST];
    bool is_loopback = kin_address_is_loopback(j->head.address);
    bool adds_own = j->o.n_advertise == 0 && (is_loopback || j->head.is_by_gateway || strchr(j->head.address, '%'));
    int n_own = adds_own ? kin_address_own(own, KIN_PROTO_MAX_ADDRESSES - is_loopback) : 0;
    if (n_own > 0 && is_loopback) kin_label_set(e->address[e->n_addresses++], KIN_PROTO_MAX_STR, j->head.address);
    for (int i = 0; i < j->o.n_advertise; i++) kin_label_set(e->address[e->n_addresses++], KIN_PROTO_MAX_STR, j->o.advertise[i]);
    for (int i = 0; i < n_own; i++) kin_label_set(e->address[e->n_addresses++], KIN_PROTO_MAX_STR, own[i]);
}

void kin_join_send_facts(kin_join *j) {
    kin_proto_message m = {.type = KIN_FRAME_DEVICE};
    kin_memory memory = kin_memory_read();
    kin_proto_device *d = &m.device;
    d->n_threads = (uint16_t)(j->o.n_threads ? j->o.n_threads : kin_cpu_n_cores());
    d->memory = j->o.engine ? j->o.engine->memory : kin_governor_room(j->o.memory);
    d->memory_total = j->o.engine ? j->o.engine->memory : memory.total;
    if (j->o.cpu) kin_label_set(d->cpu, KIN_PROTO_MAX_STR, j->o.cpu);
    if (j->o.gpu) kin_label_set(d->gpu, KIN_PROTO_MAX_STR, j->o.gpu);
    double gpu_bytes = j->o.gpu && j->o.facts ? j->o.facts->gpu_memory_bytes : 0;
    if (gpu_bytes > 0 && gpu_bytes < 0x1p53) d->gpu_memory = (uint64_t)gpu_bytes;
    if (j->o.model_path && !j->o.engine && kin_join_knows_own_file(j)) d->model = j->o.model_hash;
    d->endpoint.port = kin_endpoint_port(j->ring.endpoint);
    fill_addresses(j, &d->endpoint);
    kin_label_set(d->os, KIN_PROTO_MAX_STR, j->o.engine ? j->o.engine->os : KIN_OS);
    send_profile(j, d->memory);
    kin_join_send(j, 0, &m);
}

void kin_join_send_events(kin_join *j) {
    kin_proto_message m = {.type = KIN_FRAME_EVENTS};
    while (j->head.link &&
           (m.events.n_events = kin_trace_pop(kin_metrics_trace(j->metrics), m.events.event, KIN_PROTO_MAX_EVENTS)))
        send_if_room(j, 0, &m);
}

// Fills in the sentence for the status, and how much is still being fetched.
static void fill_doing(const kin_join *j, kin_member_state state, char *to) {
    const kin_proto_progress *p = &j->preparing.progress;
    char line[KIN_MEMBER_SENTENCE + 64];
    snprintf(line, sizeof line, "%s", j->doing);
    if (state == KIN_MEMBER_READY && atomic_load(&j->is_fetching) && p->total > 0)
        snprintf(line, sizeof line, "%s, %.0f %% of its weights loaded", j->doing, 100 * (double)p->done / (double)p->total);
    else if (j->ahead.order->ticket && j->ahead.progress.total > 0)
        snprintf(line, sizeof line, "%s; %.0f %% of the weights for %s fetched", j->doing,
                 100 * (double)j->ahead.progress.done / (double)j->ahead.progress.total,
                 j->ahead.order->purpose == KIN_PROTO_FOR_PLAN ? "a better plan" : "the loss of another device");
    kin_label_set_sentence(to, KIN_PROTO_MAX_STR, line);
}

// Lets an idle computing thread publish its metrics, for the next answer.
static void publish_metrics(kin_join *j) {
    if (atomic_load(&j->is_publishing)) return;
    kin_message_buffer *buffer = kin_message_pool_get(j->ring.pool, 0);
    if (!buffer) return; // it has steps to compute, and publishes after each
    atomic_store(&j->is_publishing, true);
    buffer->frame = (kin_frame){.type = KIN_FRAME_STATUS_WANTED};
    kin_message_queue_put(j->ring.in, buffer);
}

static kin_proto_work work_of(kin_join *j) {
    if (atomic_load(&j->is_fetching)) return KIN_PROTO_FETCHES;
    return kin_message_queue_is_waited_for(j->ring.in) ? KIN_PROTO_IDLES : KIN_PROTO_WORKS;
}

void kin_join_send_status(kin_join *j) {
    kin_proto_message m = {.type = KIN_FRAME_STATUS};
    kin_proto_work work = work_of(j); // before frames are counted: an idle device has sent on what it has computed
    kin_neighbours_stats net = kin_neighbours_stats_now(j->ring.neighbours);
    kin_member_state state = kin_member_state_now(j->member);
    bool is_computing;
    m.status = kin_metrics_status(j->metrics, &is_computing);
    m.status.state = state == KIN_MEMBER_READY       ? is_computing ? KIN_PROTO_COMPUTING : KIN_PROTO_WAITING
                     : state == KIN_MEMBER_PREPARING ? KIN_PROTO_PREPARING
                                                     : KIN_PROTO_JOINED;
    if (j->o.engine) m.status.memory_free = 0; // not known
    m.status.epoch = net.epoch;
    m.status.n_came = net.n_came;
    m.status.n_left = net.n_left;
    m.status.moving = net.moving;
    m.status.n_signs = atomic_load(&j->n_signs);
    m.status.work = work;
    m.status.net_in = net.net_in;
    m.status.net_out = net.net_out;
    m.status.rtt_ns = net.rtt_ns;
    fill_doing(j, state, m.status.doing);
    kin_join_send_events(j); // so the head has all events up to now
    send_if_room(j, 0, &m);
    publish_metrics(j);
}

void kin_join_send_failed(kin_join *j, const kin_member_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_FAILED};
    kin_label_set(m.failed.stage, KIN_PROTO_MAX_STR, a->stage);
    kin_label_set_sentence(m.failed.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_join_send(j, a->epoch, &m);
}

void kin_join_send_next(kin_join *j, const kin_member_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_NEXT};
    m.next.is_open = a->is_open;
    kin_label_set_sentence(m.next.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_join_send(j, a->epoch, &m);
}

void kin_join_send_progress(kin_join *j, uint32_t epoch) {
    kin_proto_message m = {.type = KIN_FRAME_PROGRESS};
    m.progress = j->preparing.progress;
    send_if_room(j, epoch, &m);
}

void kin_join_send_ready(kin_join *j, uint32_t epoch) {
    kin_proto_message m = {.type = KIN_FRAME_READY};
    m.ready = j->preparing.ready;
    kin_join_send(j, epoch, &m);
}
