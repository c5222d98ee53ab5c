#include "pipeline/remote_ring.h"

void kin_remote_ring_init(kin_remote_ring *w, const kin_remote_ring_options *o) {
    *w = (kin_remote_ring){.o = *o};
}

static int send(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err) {
    const kin_remote_ring_options *o = &((kin_remote_ring *)user)->o;
    kin_message_buffer *buffer = batch->pages ? kin_steps_pack_pages(o->pool, o->epoch, hop, batch)
                                              : kin_steps_pack(&o->steps, o->pool, o->epoch, hop, batch, x);
    if (!buffer) return kin_err_set(err, "out of memory for a step's %d rows", hop->n_rows);
    o->out(o->user, buffer);
    return 0;
}

static int unpack(const kin_remote_ring_options *o, const kin_message_buffer *buffer, kin_hop *hop, float *x, kin_err *err) {
    kin_proto_step m;
    if (buffer->frame.type == KIN_FRAME_PAGES) {
        kin_proto_pages pages;
        if (kin_proto_decode_pages(buffer->payload, buffer->frame.length, &pages, err) != 0)
            return kin_err_prefix(err, "ring: the last device sent");
        *hop = (kin_hop){.step = pages.step, .n_good = pages.n_good};
        return 0;
    }
    if (kin_steps_check(&o->steps, buffer, &m, err) != 0) return kin_err_prefix(err, "ring: the last device sent");
    *hop = (kin_hop){.step = m.step, .round = m.round, .n_rows = (int)m.n_rows, .more = (m.flags & KIN_PROTO_STEP_MORE) != 0};
    kin_activations_decode(x, m.activations, (size_t)m.n_rows * m.n_embd, m.type);
    return 0;
}

static bool is_stopped(const kin_remote_ring_options *o) {
    return o->stop && atomic_load(o->stop);
}

// The next frame of this epoch; NULL when the queue was interrupted (the ring is broken, or the user stops it), or woken.
static kin_message_buffer *next_frame(const kin_remote_ring_options *o) {
    for (;;) {
        kin_message_buffer *buffer = kin_message_queue_take(o->in, -1);
        if (!buffer || buffer->frame.epoch == o->epoch) return buffer;
        kin_message_pool_give(o->pool, buffer);
    }
}

static int receive(void *user, kin_hop *hop, float *x, kin_err *err) {
    const kin_remote_ring_options *o = &((kin_remote_ring *)user)->o;
    kin_message_buffer *buffer = next_frame(o);
    if (!buffer && !kin_message_queue_is_interrupted(o->in)) {
        *hop = (kin_hop){0};
        return 0;
    }
    if (!buffer) {
        kin_err_set(err, "stopped");
        if (!is_stopped(o)) o->broken(o->user, err);
        return KIN_FAIL;
    }
    int rc = unpack(o, buffer, hop, x, err);
    kin_message_pool_give(o->pool, buffer);
    return rc;
}

static bool is_here(void *user) {
    return kin_message_queue_is_ready(((kin_remote_ring *)user)->o.in);
}

// They come back, and the head knows by their numbers that they are none of its.
static void drop(void *user) {
    (void)user;
}

kin_ring_transport kin_remote_ring_transport(kin_remote_ring *w) {
    return (kin_ring_transport){.user = w, .send = send, .receive = receive, .is_here = is_here, .drop = drop};
}
