#include "cluster/head/devices.h"

#include <stdlib.h>

#include "pure/proto/id.h"

const kin_membership_device *kin_cluster_devices_on(const kin_cluster_devices *s, uint32_t link) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(s->membership, i);
        if (d && d->link == link) return d;
    }
    return NULL;
}

const kin_membership_device *kin_cluster_devices_with(const kin_cluster_devices *s, const kin_proto_id *id) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(s->membership, i);
        if (d && kin_proto_id_equal(&d->id, id)) return d;
    }
    return NULL;
}

uint32_t kin_cluster_devices_link_of(const kin_cluster_devices *s, const kin_proto_id *id) {
    const kin_membership_device *d = kin_cluster_devices_with(s, id);
    return d && kin_connections_link(s->connections, d->link) ? d->link : 0;
}

bool kin_cluster_devices_are_serving(const kin_cluster_devices *s) {
    return kin_membership_state_now(s->membership) == KIN_MEMBERSHIP_SERVING;
}

// ---- steps of the membership

static kin_cluster_action *queue_action(kin_cluster_devices *s) {
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : KIN_MEMBERSHIP_ACTIONS;
        s->actions = realloc(s->actions, (size_t)s->cap * sizeof *s->actions);
        kin_assert(s->actions);
    }
    return &s->actions[s->n++];
}

static void drain(kin_cluster_devices *s) {
    if (s->is_draining) return;
    s->is_draining = true;
    while (s->next < s->n) {
        kin_cluster_action a = s->actions[s->next++]; // the queue may grow meanwhile
        if (a.enters)
            s->callbacks->enter(s->user, a.of_membership.epoch, a.of_membership.question);
        else
            s->callbacks->apply(s->user, &a.of_membership);
    }
    s->next = s->n = 0;
    s->is_draining = false;
}

void kin_cluster_devices_act(kin_cluster_devices *s, const kin_membership_event *event) {
    const kin_membership_actions *actions = kin_membership_step(s->membership, kin_clock_now(), event);
    *queue_action(s) = (kin_cluster_action){.enters = true,
                                            .of_membership.epoch = kin_membership_epoch(s->membership),
                                            .of_membership.question = kin_membership_planned_by(s->membership)};
    for (int i = 0; i < actions->n; i++) *queue_action(s) = (kin_cluster_action){.of_membership = actions->at[i]};
    bool has_changed = event->kind != KIN_MEMBERSHIP_TICK || actions->n > 0;
    drain(s);
    if (has_changed && !s->is_draining) s->callbacks->changed(s->user);
}

// ---- opening and closing

int kin_cluster_devices_open(kin_cluster_devices *s, const kin_membership_options *options,
                             const kin_cluster_devices_callbacks *callbacks, void *user, kin_err *err) {
    *s = (kin_cluster_devices){.callbacks = callbacks, .user = user};
    s->membership = kin_membership_new(options, kin_clock_now());
    if (!s->membership) return kin_err_set(err, "out of memory");
    return kin_connections_open(&s->connections, &callbacks->links, user, err);
}

void kin_cluster_devices_end(kin_cluster_devices *s, const char *reason) {
    kin_connections_close(s->connections, reason);
    s->connections = NULL;
}

void kin_cluster_devices_close(kin_cluster_devices *s) {
    kin_cluster_devices_end(s, NULL);
    kin_membership_free(s->membership);
    free(s->actions);
}
