#include "pipeline/remote_ring.h"

void kin_remote_ring_init(kin_remote_ring *w, const kin_remote_ring_options *o) {
    *w = (kin_remote_ring){.o = *o};
}

static void note_sent(kin_remote_ring *w, const kin_hop *hop, const kin_batch *batch) {
    int at = (w->first + w->n++) % KIN_REMOTE_RING_SENT;
    w->sent[at] = *hop;
    w->n_out[at] = batch->pages ? -1 : kin_batch_n_out(batch);
}

static int send(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err) {
    kin_remote_ring *w = user;
    const kin_remote_ring_options *o = &w->o;
    if (w->n == KIN_REMOTE_RING_SENT) return kin_err_set(err, "ring: %d steps are in flight already", w->n);
    kin_message_buffer *buffer = batch->pages ? kin_steps_pack_pages(o->pool, o->epoch, hop, batch)
                                              : kin_steps_pack(&o->steps, o->pool, o->epoch, hop, batch, x);
    if (!buffer) return kin_err_set(err, "out of memory for a step's %d rows", hop->n_rows);
    note_sent(w, hop, batch);
    o->out(o->user, buffer);
    return 0;
}

// Checks that what came back is the next that is due.
static int check_order(kin_remote_ring *w, const kin_hop *hop, bool is_pages, kin_err *err) {
    const kin_hop *due = &w->sent[w->first];
    int n_out = w->n_out[w->first];
    if (w->n == 0) return kin_err_set(err, "step %llu came back, but no step is in flight", (unsigned long long)hop->step);
    if (hop->step != due->step || is_pages != (n_out < 0))
        return kin_err_set(err, "step %llu came back before step %llu", (unsigned long long)hop->step,
                           (unsigned long long)due->step);
    w->first = (w->first + 1) % KIN_REMOTE_RING_SENT;
    w->n--;
    if (is_pages) return 0;
    if (hop->round != due->round) return kin_err_set(err, "round %d of a step, but round %d is due", hop->round, due->round);
    if (hop->n_rows == due->n_rows || hop->n_rows == n_out) return 0;
    return kin_err_set(err, "%d rows of a step, but %d or %d are expected", hop->n_rows, due->n_rows, n_out);
}

static int decode(kin_remote_ring *w, const kin_message_buffer *buffer, kin_hop *hop, float *x, kin_err *err) {
    kin_proto_step m;
    if (buffer->frame.type == KIN_FRAME_PAGES) {
        kin_proto_pages pages;
        if (kin_proto_decode_pages(buffer->payload, buffer->frame.length, &pages, err) != 0)
            return kin_err_prefix(err, "the last device sent");
        *hop = (kin_hop){.step = pages.step, .n_good = pages.n_good};
        return check_order(w, hop, true, err);
    }
    if (kin_steps_check(&w->o.steps, buffer, &m, err) != 0) return kin_err_prefix(err, "the last device sent");
    *hop = (kin_hop){.step = m.step, .round = m.round, .n_rows = (int)m.n_rows, .n_embd = (int)m.n_embd};
    hop->more = (m.flags & KIN_PROTO_STEP_MORE) != 0;
    if (check_order(w, hop, false, err) != 0) return KIN_FAIL;
    size_t n = (size_t)m.n_rows * m.n_embd;
    kin_activations_decode(x, m.activations, n, m.type);
    return kin_activations_are_finite(x, n) ? 0 : kin_err_set(err, "hidden states that are not finite");
}

static int unpack(kin_remote_ring *w, const kin_message_buffer *buffer, kin_hop *hop, float *x, kin_err *err) {
    if (decode(w, buffer, hop, x, err) == 0) return 0;
    if (w->o.wrong) w->o.wrong(w->o.user, err->text);
    return kin_err_prefix(err, "ring");
}

static bool is_stopped(const kin_remote_ring_options *o) {
    return o->stop && atomic_load(o->stop);
}

// Returns the next frame of this epoch; NULL if the queue was interrupted (the ring is broken, or the user stopped), or woken.
static kin_message_buffer *next_frame(const kin_remote_ring_options *o) {
    for (;;) {
        kin_message_buffer *buffer = kin_message_queue_pop(o->in, -1);
        if (!buffer || buffer->frame.epoch == o->epoch) return buffer;
        kin_message_pool_give(o->pool, buffer);
    }
}

static int receive(void *user, kin_hop *hop, float *x, kin_err *err) {
    kin_remote_ring *w = user;
    const kin_remote_ring_options *o = &w->o;
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
    int rc = unpack(w, buffer, hop, x, err);
    kin_message_pool_give(o->pool, buffer);
    return rc;
}

static bool is_here(void *user) {
    return kin_message_queue_is_ready(((kin_remote_ring *)user)->o.in);
}

// Does nothing: dropped steps still come back, and the head recognizes them by their numbers.
static void drop(void *user) {
    (void)user;
}

kin_ring_transport kin_remote_ring_transport(kin_remote_ring *w) {
    return (kin_ring_transport){.user = w, .send = send, .receive = receive, .is_here = is_here, .drop = drop};
}
