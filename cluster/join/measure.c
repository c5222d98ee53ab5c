// Link measurements that the head asks a device for.
#include "cluster/join/measure.h"

#include <stdio.h>

#include "cluster/join/messages.h"
#include "pure/proto/label.h"

static void on_measured(void *user, const kin_proto_measured *measured) {
    kin_proto_message m = {.type = KIN_FRAME_MEASURED, .measured = *measured};
    kin_join_send(user, 0, &m);
}

int kin_join_open_probes(kin_join *j, kin_err *err) {
    kin_probe_queue_options o = {.tls = kin_endpoint_tls(j->ring.endpoint), .self = {.id = j->o.id}};
    kin_label_set(o.self.name, KIN_PROTO_MAX_STR, j->o.name);
    kin_label_set(o.self.version, KIN_PROTO_MAX_STR, j->o.version);
    return kin_probe_queue_open(&j->head.probes, kin_endpoint_loop(j->ring.endpoint), &o, on_measured, j, err);
}

void kin_join_handle_measure(kin_join *j, const kin_proto_measure *wanted) {
    kin_proto_measure m = *wanted;
    kin_join_fill_endpoint(j, &m.endpoint);
    kin_probe_queue_ask(j->head.probes, &m);
}
