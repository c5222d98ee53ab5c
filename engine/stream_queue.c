#include "engine/stream_queue.h"

void kin_stream_queue_init(kin_stream_queue *q) {
    q->first = q->next = SIZE_MAX / 2 / KIN_STREAM_QUEUE * KIN_STREAM_QUEUE; // because `first` can decrease
}

void kin_stream_queue_push_last(kin_stream_queue *q, const kin_stream_chunk *c) {
    kin_assert(kin_stream_queue_n_free(q) > 0);
    q->chunks[q->next++ % KIN_STREAM_QUEUE] = *c;
}

void kin_stream_queue_push_first(kin_stream_queue *q, const kin_stream_chunk *c) {
    kin_assert(kin_stream_queue_n_free(q) > 0);
    q->chunks[--q->first % KIN_STREAM_QUEUE] = *c;
}

kin_stream_chunk kin_stream_queue_pop(kin_stream_queue *q) {
    kin_assert(kin_stream_queue_n(q) > 0);
    return q->chunks[q->first++ % KIN_STREAM_QUEUE];
}

int kin_stream_queue_remove(kin_stream_queue *q, const kin_stream_ticket *ticket, kin_stream_queue *to) {
    const size_t n = kin_stream_queue_n(q);
    size_t kept = n; // the last ones stay where they are
    for (size_t i = n; i-- > 0;) {
        const kin_stream_chunk *c = kin_stream_queue_at(q, i);
        if (c->ticket == ticket && (!to || kin_stream_queue_n_free(to) > 0)) {
            if (to) kin_stream_queue_push_first(to, c);
        } else {
            *kin_stream_queue_at(q, --kept) = *c;
        }
    }
    q->first += kept;
    return (int)kept;
}
