#include "ring/wire.h"

enum { LOOK_MS = 200 }; // how often a wait looks whether to stop

void kin_wire_init(kin_wire *w, const kin_wire_options *o) {
    *w = (kin_wire){.o = *o};
}

static int send(void *user, const kin_leg *leg, const kin_batch *batch, const float *x, kin_err *err) {
    const kin_wire_options *o = &((kin_wire *)user)->o;
    kin_parcel *parcel = kin_steps_pack(&o->steps, o->pool, o->epoch, leg, batch, x);
    if (!parcel) return kin_err_set(err, "out of memory for a step's %d rows", leg->n_rows);
    o->out(o->user, parcel);
    return 0;
}

static int unpack(const kin_wire_options *o, const kin_parcel *parcel, kin_leg *leg, float *x, kin_err *err) {
    kin_proto_step m;
    if (kin_steps_check(&o->steps, parcel, &m, err) != 0) return kin_err_prefix(err, "ring: the last device sent");
    *leg = (kin_leg){.step = m.step, .round = m.round, .n_rows = (int)m.n_rows, .more = (m.flags & KIN_PROTO_STEP_MORE) != 0};
    kin_activations_decode(x, m.activations, (size_t)m.n_rows * m.n_embd, m.type);
    return 0;
}

// The next frame of this epoch; NULL when the ring is broken, or nobody wants it any more.
static kin_parcel *next_frame(const kin_wire_options *o) {
    for (;;) {
        kin_parcel *parcel = kin_parcel_queue_take(o->in, LOOK_MS);
        if (parcel && parcel->frame.epoch == o->epoch) return parcel;
        kin_parcels_give(o->pool, parcel);
        if (parcel) continue;
        if (kin_parcel_queue_is_interrupted(o->in) || (o->stop && atomic_load(o->stop))) return NULL;
    }
}

static int receive(void *user, kin_leg *leg, float *x, kin_err *err) {
    kin_wire *w = user;
    const kin_wire_options *o = &w->o;
    for (;;) {
        kin_parcel *parcel = next_frame(o);
        if (!parcel) {
            kin_err_set(err, "stopped");
            if (kin_parcel_queue_is_interrupted(o->in)) o->broken(o->user, err);
            return KIN_FAIL;
        }
        bool step = parcel->frame.type == KIN_FRAME_STEP; // or what is to be forgotten, once round
        int rc = step ? unpack(o, parcel, leg, x, err) : 0;
        if (!step && w->n_forgets > 0) w->n_forgets--;
        kin_parcels_give(o->pool, parcel);
        if (step) return rc;
    }
}

// Between requests: what comes back of steps is of one that was given up. A FORGET that does not leave is one whose ring is
// broken; with the next epoch all members begin with an empty cache.
static void forget(void *user, int32_t seq, int32_t begin, int32_t end) {
    kin_wire *w = user;
    const kin_wire_options *o = &w->o;
    kin_parcel *parcel = NULL;
    while (w->n_forgets >= KIN_WIRE_FORGETS || !(parcel = kin_steps_pack_forget(o->pool, o->epoch, seq, begin, end))) {
        kin_parcel *back = next_frame(o);
        if (!back) return;
        if (back->frame.type == KIN_FRAME_FORGET && w->n_forgets > 0) w->n_forgets--;
        kin_parcels_give(o->pool, back);
    }
    w->n_forgets++;
    o->out(o->user, parcel);
}

kin_port kin_wire_port(kin_wire *w) {
    return (kin_port){.user = w, .send = send, .receive = receive, .forget = forget};
}
