#include "cluster/join/joining.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/address.h"

static kin_join_action *queue_action(kin_join_actions *q) {
    if (q->n == q->cap) {
        q->cap = q->cap ? 2 * q->cap : KIN_MEMBER_ACTIONS;
        q->at = realloc(q->at, (size_t)q->cap * sizeof *q->at);
        kin_assert(q->at);
    }
    return &q->at[q->n++];
}

// Runs at top level only: actions caused by an action are queued behind the others.
void kin_join_act(kin_join *j, const kin_member_event *event) {
    kin_join_actions *q = &j->actions;
    if (j->watch.hangs) return;
    const kin_member_actions *actions = kin_member_step(j->member, kin_clock_now(), event);
    *queue_action(q) = (kin_join_action){.enters = true, .of_member.epoch = kin_member_epoch(j->member)};
    for (int i = 0; i < actions->n; i++) *queue_action(q) = (kin_join_action){.of_member = actions->at[i]};
    if (q->is_draining) return;
    q->is_draining = true;
    while (q->next < q->n) {
        kin_join_action a = q->at[q->next++]; // the queue may grow meanwhile
        q->run(j, &a);
    }
    q->next = q->n = 0;
    q->is_draining = false;
}

// Removes loopback addresses, which belong to the head's machine, unless there are no others.
static void leave_out_loopback(kin_proto_endpoint *to) {
    int n = 0;
    for (int i = 0; i < to->n_addresses; i++) {
        if (kin_address_is_loopback(to->address[i])) continue;
        if (n < i) memcpy(to->address[n], to->address[i], sizeof to->address[n]);
        n++;
    }
    if (n > 0) to->n_addresses = n;
}

void kin_join_fill_endpoint(const kin_join *j, kin_proto_endpoint *to) {
    if (!kin_address_is_loopback(j->head.address)) leave_out_loopback(to);
    // The head sees the gateway in another network, with the same port.
    bool is_gateway = j->head.is_by_gateway && to->port == j->head.port && to->n_addresses > 0;
    if (to->n_addresses > 0 && !is_gateway) return;
    to->n_addresses = 1;
    snprintf(to->address[0], sizeof to->address[0], "%s", j->head.address);
    to->port = j->head.port;
}

bool kin_join_knows_own_file(const kin_join *j) {
    kin_err err;
    if (!j->o.model || kin_gguf_check_names(j->o.model, &err) == 0) return true;
    kin_log(KIN_LOG_WARN, "%s; until this device is restarted, its layers are fetched from other devices", err.text);
    return false;
}

static kin_kv_disk kv_disk_of(const kin_join *j) {
    kin_kv_disk disk = {.dir = j->o.cache_dir, .cap = j->o.kv_cap, .peers = &j->ring.peers};
    if (!j->o.keeps_kv || kin_key_derive(disk.secret, &j->o.key, KIN_KEY_FOR_PAGES, NULL) != 0) disk.dir = NULL;
    return disk;
}

kin_engine_instance_options kin_join_instance_options(kin_join *j, const char *path) {
    return (kin_engine_instance_options){.model_path = path,
                                         .in_parts = !j->o.model_path || strcmp(path, j->o.model_path) != 0,
                                         .cache_dir = j->o.no_cache ? NULL : j->o.cache_dir,
                                         .cache_cap = j->o.cache_cap,
                                         .kv_disk = kv_disk_of(j),
                                         .memory = j->o.memory,
                                         .n_threads = j->o.n_threads,
                                         .no_gpu = j->o.no_gpu,
                                         .remote = j->o.engine,
                                         .sum = kin_exchange_sum(j->ring.exchange),
                                         .pool = j->ring.pool,
                                         .in = j->ring.in,
                                         .stop = j->o.stop,
                                         .n_signs = &j->n_signs};
}
