#include "pipeline/remote_ring.h"

void kin_remote_ring_init(kin_remote_ring *w, const kin_remote_ring_options *o) {
    *w = (kin_remote_ring){.o = *o};
}

static int send(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err) {
    const kin_remote_ring_options *o = &((kin_remote_ring *)user)->o;
    kin_message_buffer *buffer = kin_steps_pack(&o->steps, o->pool, o->epoch, hop, batch, x);
    if (!buffer) return kin_err_set(err, "out of memory for a step's %d rows", hop->n_rows);
    o->out(o->user, buffer);
    return 0;
}

static int unpack(const kin_remote_ring_options *o, const kin_message_buffer *buffer, kin_hop *hop, float *x, kin_err *err) {
    kin_proto_step m;
    if (kin_steps_check(&o->steps, buffer, &m, err) != 0) return kin_err_prefix(err, "ring: the last device sent");
    *hop = (kin_hop){.step = m.step, .round = m.round, .n_rows = (int)m.n_rows, .more = (m.flags & KIN_PROTO_STEP_MORE) != 0};
    kin_activations_decode(x, m.activations, (size_t)m.n_rows * m.n_embd, m.type);
    return 0;
}

static bool is_stopped(const kin_remote_ring_options *o) {
    return o->stop && atomic_load(o->stop);
}

// The next frame of this epoch; NULL when the queue was interrupted: the ring is broken, or the user stops it.
static kin_message_buffer *next_frame(const kin_remote_ring_options *o) {
    for (;;) {
        kin_message_buffer *buffer = kin_message_queue_take(o->in, -1);
        if (!buffer || buffer->frame.epoch == o->epoch) return buffer;
        kin_message_pool_give(o->pool, buffer);
    }
}

static int receive(void *user, kin_hop *hop, float *x, kin_err *err) {
    kin_remote_ring *w = user;
    const kin_remote_ring_options *o = &w->o;
    for (;;) {
        kin_message_buffer *buffer = next_frame(o);
        if (!buffer) {
            kin_err_set(err, "stopped");
            if (!is_stopped(o)) o->broken(o->user, err);
            return KIN_FAIL;
        }
        bool step = buffer->frame.type == KIN_FRAME_STEP; // or what is to be forgotten, once round
        int rc = step ? unpack(o, buffer, hop, x, err) : 0;
        if (!step && w->n_forgets > 0) w->n_forgets--;
        kin_message_pool_give(o->pool, buffer);
        if (step) return rc;
    }
}

// Between requests: what comes back of steps is of one that was given up. A FORGET that does not leave is one whose ring is
// broken; with the next epoch all members begin with an empty cache.
static void forget(void *user, int32_t seq, int32_t begin, int32_t end) {
    kin_remote_ring *w = user;
    const kin_remote_ring_options *o = &w->o;
    kin_message_buffer *buffer = NULL;
    while (w->n_forgets >= KIN_REMOTE_RING_FORGETS || !(buffer = kin_steps_pack_forget(o->pool, o->epoch, seq, begin, end))) {
        kin_message_buffer *back = next_frame(o);
        if (!back) return;
        if (back->frame.type == KIN_FRAME_FORGET && w->n_forgets > 0) w->n_forgets--;
        kin_message_pool_give(o->pool, back);
    }
    w->n_forgets++;
    o->out(o->user, buffer);
}

kin_ring_transport kin_remote_ring_transport(kin_remote_ring *w) {
    return (kin_ring_transport){.user = w, .send = send, .receive = receive, .forget = forget};
}
