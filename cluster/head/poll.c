#include "cluster/head/poll.h"

#define POLL_NS UINT64_C(500000000) // for the devices to answer

void kin_cluster_poll_init(kin_cluster_poll *p, kin_cluster_polls *polls) {
    *p = (kin_cluster_poll){.polls = polls};
    kin_completion_init(&p->completion);
}

void kin_cluster_poll_fini(kin_cluster_poll *p) {
    if (p->polls) kin_completion_fini(&p->completion);
}

void kin_cluster_poll_begin(kin_cluster_poll *p, kin_time now) {
    if (!p->until) p->polls->n_running++;
    p->generation = kin_completion_asked(&p->completion);
    p->until = now + POLL_NS;
    kin_connections_ask(p->polls->connections);
}

bool kin_cluster_poll_ends(kin_cluster_poll *p, kin_time now) {
    if (!p->until || (now < p->until && !kin_connections_has_answered(p->polls->connections))) return false;
    p->until = 0;
    p->polls->n_running--;
    kin_connections_ask_no_more(p->polls->connections);
    return true;
}

void kin_cluster_poll_wait(kin_cluster_poll *p, kin_endpoint *endpoint, kin_mailbox_fn begin, void *arg) {
    uint32_t generation = kin_completion_ask(&p->completion);
    if (kin_endpoint_call(endpoint, begin, arg)) kin_completion_wait(&p->completion, generation);
}
