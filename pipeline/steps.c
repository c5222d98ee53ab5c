#include "pipeline/steps.h"

#include <string.h>

#include "base/bytes.h"

static kin_proto_step message_of(const kin_steps *s, const kin_hop *hop, const kin_batch *batch) {
    kin_proto_step m = {.step = hop->step,
                        .round = (uint16_t)hop->round,
                        .type = s->type,
                        .n_tokens = (uint32_t)batch->n_tokens,
                        .n_rows = (uint32_t)hop->n_rows,
                        .n_embd = (uint32_t)(hop->n_embd ? hop->n_embd : s->n_embd),
                        .n_out = (uint32_t)kin_batch_n_out(batch)};
    if (hop->round == 0) {
        m.flags |= KIN_PROTO_STEP_POSITIONS;
        m.n_ops = (uint16_t)batch->n_ops;
    }
    if (hop->round == 0 && batch->tokens) m.flags |= KIN_PROTO_STEP_TOKENS;
    if (!batch->out) m.flags |= KIN_PROTO_STEP_ALL_ROWS;
    if (batch->no_output) m.flags |= KIN_PROTO_STEP_NO_OUTPUT;
    if (hop->more) m.flags |= KIN_PROTO_STEP_MORE;
    return m;
}

static void encode_ops(uint8_t *to, const kin_batch *batch) {
    for (int i = 0; i < batch->n_ops; i++) {
        const int32_t op[] = {batch->ops[i].seq, batch->ops[i].from, batch->ops[i].n};
        kin_proto_i32_encode(to + sizeof op * (size_t)i, op, 3);
    }
}

kin_message_buffer *kin_steps_pack(const kin_steps *s, kin_message_pool *pool, uint32_t epoch, const kin_hop *hop,
                                   const kin_batch *batch, const float *x) {
    kin_proto_step m = message_of(s, hop, batch);
    kin_proto_step_layout at = kin_proto_step_lay_out(&m);
    kin_message_buffer *buffer = kin_message_pool_get(pool, at.size);
    if (!buffer) return NULL;
    buffer->frame = (kin_frame){.type = KIN_FRAME_STEP, .epoch = epoch, .length = (uint32_t)at.size};
    kin_proto_encode_step(buffer->payload, at.size, &m); // leaves room for the arrays
    if (m.flags & KIN_PROTO_STEP_POSITIONS) {
        size_t n = (size_t)batch->n_tokens;
        kin_proto_i32_encode(buffer->payload + at.pos, batch->pos, n);
        for (size_t i = 0; i < n; i++) {
            int32_t seq = batch->seq ? batch->seq[i] : 0;
            kin_proto_i32_encode(buffer->payload + at.seq + 4 * i, &seq, 1);
        }
        if (batch->out) kin_proto_i32_encode(buffer->payload + at.out, batch->out, (size_t)batch->n_out);
        encode_ops(buffer->payload + at.ops, batch);
        if (batch->tokens) kin_proto_i32_encode(buffer->payload + at.tokens, batch->tokens, n);
    }
    kin_activations_encode(buffer->payload + at.activations, x, (size_t)hop->n_rows * (size_t)m.n_embd, s->type);
    return buffer;
}

static int check_ops(const kin_steps *s, const uint8_t *ops, size_t n_ops, kin_err *err) {
    for (size_t i = 0; i < n_ops; i++) {
        int32_t seq = kin_proto_i32_at(ops, 3 * i), from = kin_proto_i32_at(ops, 3 * i + 1);
        if (seq >= s->n_seq || from >= s->n_seq)
            return kin_err_set(err, "sequence %d, but there are only %d", (int)(seq > from ? seq : from), s->n_seq);
    }
    return 0;
}

static int check_numbers(const kin_steps *s, const kin_proto_step *m, kin_err *err) {
    const int least = s->n_least ? s->n_least : s->n_embd;
    if (m->n_embd > (uint32_t)s->n_embd || m->n_embd < (uint32_t)least)
        return kin_err_set(err, "activations of %u values, but the model has %d", m->n_embd,
                           m->n_embd < (uint32_t)least ? least : s->n_embd);
    if (m->type != s->type) return kin_err_set(err, "the type of the activations differs from the plan's");
    if (m->n_tokens > (uint32_t)s->n_batch)
        return kin_err_set(err, "a step of %u tokens, but the plan allows %d", m->n_tokens, s->n_batch);
    if (m->round >= s->n_rounds) return kin_err_set(err, "round %u, but there are only %d", m->round, s->n_rounds);
    if (m->n_rows == 0 || m->n_out == 0) return kin_err_set(err, "a step without rows");
    for (uint32_t i = 0; (m->flags & KIN_PROTO_STEP_POSITIONS) && i < m->n_tokens; i++) {
        int32_t seq = kin_proto_i32_at(m->seq, i);
        if (seq >= s->n_seq) return kin_err_set(err, "sequence %d, but there are only %d", (int)seq, s->n_seq);
    }
    return check_ops(s, m->ops, m->n_ops, err);
}

int kin_steps_check(const kin_steps *s, const kin_message_buffer *buffer, kin_proto_step *m, kin_err *err) {
    if (kin_proto_decode_step(buffer->payload, buffer->frame.length, m, err) != 0) return KIN_FAIL;
    return check_numbers(s, m, err);
}

static kin_kv_op decode_op(const uint8_t *ops, size_t i) {
    return (kin_kv_op){kin_proto_i32_at(ops, 3 * i), kin_proto_i32_at(ops, 3 * i + 1), kin_proto_i32_at(ops, 3 * i + 2)};
}

static void decode_ops(kin_kv_op *to, const uint8_t *ops, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = decode_op(ops, i);
}

int kin_step_order_accept(kin_step_order *o, uint32_t epoch, uint64_t number, kin_err *err) {
    bool is_due = !o->has_any || epoch != o->epoch || number == o->next; // a tab's frames have no epoch
    if (!is_due)
        return kin_err_set(err, "step %llu arrived, but step %llu is due", (unsigned long long)number,
                           (unsigned long long)o->next);
    *o = (kin_step_order){true, epoch, number + 1};
    return 0;
}

bool kin_steps_forgets(const kin_message_buffer *buffer, const kin_batch *batch) {
    kin_proto_step m;
    kin_err err;
    if (buffer->frame.type != KIN_FRAME_STEP || kin_proto_decode_step(buffer->payload, buffer->frame.length, &m, &err) != 0)
        return false;
    for (size_t i = 0; i < m.n_ops; i++) {
        kin_kv_op op = decode_op(m.ops, i);
        if (kin_batch_loses(batch, &op)) return true;
    }
    return false;
}

kin_batch kin_steps_batch(const kin_proto_step *m, int32_t *pos, int32_t *seq, int32_t *out, int32_t *tokens, kin_kv_op *ops) {
    bool all = m->flags & KIN_PROTO_STEP_ALL_ROWS;
    kin_proto_i32_decode(pos, m->pos, m->n_tokens);
    kin_proto_i32_decode(seq, m->seq, m->n_tokens);
    if (!all) kin_proto_i32_decode(out, m->out, m->n_out);
    decode_ops(ops, m->ops, m->n_ops);
    if (m->tokens) kin_proto_i32_decode(tokens, m->tokens, m->n_tokens);
    return (kin_batch){.n_tokens = (int)m->n_tokens,
                       .tokens = m->tokens ? tokens : NULL,
                       .pos = pos,
                       .seq = seq,
                       .out = all ? NULL : out,
                       .n_out = (int)m->n_out,
                       .no_output = m->flags & KIN_PROTO_STEP_NO_OUTPUT,
                       .ops = ops,
                       .n_ops = m->n_ops};
}

// ---- pages

_Static_assert((int)KIN_PAGES_MAX == (int)KIN_PROTO_MAX_PAGES, "a request fits a message");
_Static_assert(sizeof(kin_page_key) == sizeof(kin_proto_page_key), "keys are the same bytes");

kin_message_buffer *kin_steps_pack_pages(kin_message_pool *pool, uint32_t epoch, const kin_hop *hop, const kin_batch *batch) {
    const kin_page_request *r = batch->pages;
    kin_proto_pages m = {.step = hop->step,
                         .loads = r->loads,
                         .drops = r->drops,
                         .has_states = r->has_states,
                         .recomputes = r->recomputes,
                         .n_pages = (uint16_t)r->n,
                         .n_good = (uint16_t)hop->n_good,
                         .n_ops = (uint16_t)batch->n_ops,
                         .timeout_ms = (uint16_t)r->timeout_ms,
                         .seq = r->seq,
                         .first = (uint32_t)r->first,
                         .borders = r->borders};
    enum { AT_OPS = 24 };
    memcpy(m.key, r->keys, (size_t)r->n * sizeof m.key[0]);
    size_t n = kin_proto_size_pages(&m);
    kin_message_buffer *buffer = kin_message_pool_get(pool, n);
    if (!buffer) return NULL;
    buffer->frame = (kin_frame){.type = KIN_FRAME_PAGES, .epoch = epoch, .length = (uint32_t)n};
    kin_proto_encode_pages(buffer->payload, n, &m); // leaves room for the operations
    encode_ops(buffer->payload + AT_OPS, batch);
    return buffer;
}

int kin_steps_unpack_pages(const kin_steps *s, const kin_message_buffer *buffer, kin_proto_pages *m, kin_page_request *r,
                           kin_kv_op *ops, kin_batch *batch, kin_err *err) {
    if (kin_proto_decode_pages(buffer->payload, buffer->frame.length, m, err) != 0) return KIN_FAIL;
    if (m->seq >= s->n_seq) return kin_err_set(err, "sequence %d, but there are only %d", (int)m->seq, s->n_seq);
    if (check_ops(s, m->ops, m->n_ops, err) != 0) return KIN_FAIL;
    decode_ops(ops, m->ops, m->n_ops);
    *r = (kin_page_request){.loads = m->loads,
                            .drops = m->drops,
                            .has_states = m->has_states,
                            .recomputes = m->recomputes,
                            .timeout_ms = m->timeout_ms,
                            .seq = m->seq,
                            .first = (int)m->first,
                            .n = m->n_pages,
                            .borders = m->borders};
    memcpy(r->keys, m->key, m->n_pages * sizeof m->key[0]);
    *batch = (kin_batch){.ops = ops, .n_ops = m->n_ops, .pages = r};
    return 0;
}

bool kin_steps_peek(const kin_message_buffer *buffer, uint64_t *step, int *round) {
    if (buffer->frame.type != KIN_FRAME_STEP || buffer->frame.length < 10) return false;
    *step = kin_get_u64(buffer->payload);
    *round = kin_get_u16(buffer->payload + 8);
    return *round < KIN_PROTO_MAX_WINDOWS;
}

uint32_t kin_steps_peek_tokens(const kin_message_buffer *buffer) {
    if (buffer->frame.type != KIN_FRAME_STEP || buffer->frame.length < 20) return 0;
    return kin_get_u32(buffer->payload + 16);
}
