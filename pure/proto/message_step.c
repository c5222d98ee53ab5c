// Messages that go round the ring, or from one device of a group to another.
#include "pure/proto/message_impl.h"

//     STEP
//     byte  0  u64  step
//           8  u16  round (< 1024)
//          10  u16  flags: 1 no_output, 2 all rows, 4 more chunks follow, 8 positions, 16 tokens (with 8)
//          12  u16  type: 0 f32, 1 f16, 2 q8
//          14  u16  n_ops (<= 4096; 0 without "positions")
//          16  u32  n_tokens (1 to 65536)
//          20  u32  n_rows (n_tokens or n_out)
//          24  u32  n_embd (1 to 2^20; of q8 a multiple of 32)
//          28  u32  n_out (<= n_tokens; with "all rows" = n_tokens)
//          32  with "positions": i32 pos [n_tokens], i32 seq [n_tokens]; without "all rows" also i32 out [n_out];
//              i32 ops [n_ops, 3]; with "tokens" also i32 tokens [n_tokens]
//              activations [n_rows, n_embd]
// Everything before the activations is a multiple of 4 bytes, and so is the header: f32 and f16 are aligned within a frame.

static bool has(const kin_proto_step *m, unsigned flag) {
    return m->flags & flag;
}

kin_proto_step_layout kin_proto_step_lay_out(const kin_proto_step *m) {
    size_t n_pos = has(m, KIN_PROTO_STEP_POSITIONS) ? m->n_tokens : 0;
    size_t n_out = has(m, KIN_PROTO_STEP_POSITIONS) && !has(m, KIN_PROTO_STEP_ALL_ROWS) ? m->n_out : 0;
    size_t n_numbers = has(m, KIN_PROTO_STEP_TOKENS) ? n_pos : 0;
    kin_proto_step_layout l = {.pos = 32};
    l.seq = l.pos + 4 * n_pos;
    l.out = l.seq + 4 * n_pos;
    l.ops = l.out + 4 * n_out;
    l.tokens = l.ops + (size_t)12 * m->n_ops;
    l.activations = l.tokens + 4 * n_numbers;
    l.activations_bytes = (size_t)kin_activations_bytes((uint64_t)m->n_rows * m->n_embd, m->type);
    l.size = l.activations + l.activations_bytes;
    return l;
}

size_t kin_proto_step_size_max(uint32_t n_batch, uint32_t n_embd, kin_activation_type type) {
    kin_proto_step m = {.flags = KIN_PROTO_STEP_POSITIONS | KIN_PROTO_STEP_TOKENS,
                        .type = type,
                        .n_tokens = n_batch,
                        .n_rows = n_batch,
                        .n_ops = KIN_PROTO_MAX_OPS,
                        .n_embd = n_embd,
                        .n_out = n_batch};
    return kin_proto_step_lay_out(&m).size;
}

static void put_step_head(kin_writer *w, const kin_proto_step *m) {
    kin_assert(m->n_tokens <= KIN_PROTO_MAX_TOKENS && m->n_embd <= KIN_PROTO_MAX_EMBD);
    kin_assert(m->n_rows <= m->n_tokens && m->n_out <= m->n_tokens);
    kin_proto_step_layout l = kin_proto_step_lay_out(m);
    kin_writer_u64(w, m->step);
    kin_writer_u16(w, m->round);
    kin_writer_u16(w, m->flags);
    kin_writer_u16(w, (uint16_t)m->type);
    kin_writer_u16(w, m->n_ops);
    kin_writer_u32(w, m->n_tokens);
    kin_writer_u32(w, m->n_rows);
    kin_writer_u32(w, m->n_embd);
    kin_writer_u32(w, m->n_out);
    kin_writer_bytes(w, m->pos, l.seq - l.pos);
    kin_writer_bytes(w, m->seq, l.out - l.seq);
    kin_writer_bytes(w, m->out, l.ops - l.out);
    kin_writer_bytes(w, m->ops, l.tokens - l.ops);
    kin_writer_bytes(w, m->tokens, l.activations - l.tokens);
}

static void put_step(kin_writer *w, const kin_proto_step *m) {
    put_step_head(w, m);
    kin_writer_bytes(w, m->activations, kin_proto_step_lay_out(m).activations_bytes);
}

static void check_not_negative(kin_reader *r, const uint8_t *array, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) {
        int32_t value = kin_proto_i32_at(array, i);
        if (value < 0) kin_reader_fail(r, "%s of token %zu is %d", what, i, (int)value);
    }
}

static void read_wanted(kin_reader *r, kin_proto_step *m) {
    m->out = kin_reader_bytes(r, (size_t)4 * m->n_out);
    int64_t last = -1;
    for (size_t i = 0; m->out && i < m->n_out; i++) {
        int32_t row = kin_proto_i32_at(m->out, i);
        if (row <= last || row >= (int64_t)m->n_tokens) {
            kin_reader_fail(r, "wanted row %d after %d of %lu", (int)row, (int)last, (unsigned long)m->n_tokens);
            return;
        }
        last = row;
    }
}

static const uint8_t *read_ops(kin_reader *r, size_t n_ops) {
    const uint8_t *ops = kin_reader_bytes(r, 12 * n_ops);
    for (size_t i = 0; ops && i < n_ops; i++) {
        int32_t seq = kin_proto_i32_at(ops, 3 * i), from = kin_proto_i32_at(ops, 3 * i + 1);
        int32_t n = kin_proto_i32_at(ops, 3 * i + 2);
        if (seq < -1 || from < -1 || n < 0 || (from < 0 && seq >= 0))
            kin_reader_fail(r, "sequence %d becomes %d tokens of %d", (int)seq, (int)n, (int)from);
    }
    return ops;
}

static void read_positions(kin_reader *r, kin_proto_step *m) {
    m->pos = kin_reader_bytes(r, (size_t)4 * m->n_tokens);
    m->seq = kin_reader_bytes(r, (size_t)4 * m->n_tokens);
    if (!m->seq) return;
    check_not_negative(r, m->pos, m->n_tokens, "position");
    check_not_negative(r, m->seq, m->n_tokens, "sequence");
    if (!has(m, KIN_PROTO_STEP_ALL_ROWS)) read_wanted(r, m);
    m->ops = read_ops(r, m->n_ops);
    if (!has(m, KIN_PROTO_STEP_TOKENS)) return;
    m->tokens = kin_reader_bytes(r, (size_t)4 * m->n_tokens);
    if (m->tokens) check_not_negative(r, m->tokens, m->n_tokens, "number");
}

static void check_whole_blocks(kin_reader *r, uint32_t n, kin_activation_type type, const char *what) {
    if (n % kin_activation_unit(type) != 0)
        kin_reader_fail(r, "%s is %lu, but q8 needs a multiple of 32", what, (unsigned long)n);
}

static void read_step(kin_reader *r, kin_proto_step *m) {
    m->step = kin_reader_u64(r);
    m->round = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_WINDOWS - 1, "round");
    m->flags = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_STEP_FLAGS, "flags");
    m->type = kin_reader_range(r, kin_reader_u16(r), 0, KIN_ACTIVATION_N_TYPES - 1, "type");
    m->n_ops =
        (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, has(m, KIN_PROTO_STEP_POSITIONS) ? KIN_PROTO_MAX_OPS : 0, "n_ops");
    m->n_tokens = kin_reader_range(r, kin_reader_u32(r), 1, KIN_PROTO_MAX_TOKENS, "n_tokens");
    m->n_rows = kin_reader_range(r, kin_reader_u32(r), 0, m->n_tokens, "n_rows");
    m->n_embd = kin_reader_range(r, kin_reader_u32(r), 1, KIN_PROTO_MAX_EMBD, "n_embd");
    m->n_out = kin_reader_range(r, kin_reader_u32(r), has(m, KIN_PROTO_STEP_ALL_ROWS) ? m->n_tokens : 0, m->n_tokens, "n_out");
    if (m->n_rows != m->n_tokens && m->n_rows != m->n_out) kin_reader_fail(r, "n_rows is neither n_tokens nor n_out");
    if (has(m, KIN_PROTO_STEP_TOKENS) && !has(m, KIN_PROTO_STEP_POSITIONS))
        kin_reader_fail(r, "numbers of tokens without positions");
    if (has(m, KIN_PROTO_STEP_POSITIONS)) read_positions(r, m);
    check_whole_blocks(r, m->n_embd, m->type, "n_embd");
    uint64_t bytes = kin_activations_bytes((uint64_t)m->n_rows * m->n_embd, m->type); // below 2^38
    if (bytes > KIN_FRAME_CAP_STEP) kin_reader_fail(r, "activations of %llu bytes", (unsigned long long)bytes);
    m->activations = kin_reader_bytes(r, (size_t)bytes);
}

KIN_PROTO_DEFINE(STEP, step)

size_t kin_proto_encode_step_head(uint8_t *buf, size_t cap, const kin_proto_step *m) {
    kin_writer w = {.to = buf, .cap = cap};
    put_step_head(&w, m);
    return w.n;
}

//     PAGES
//     byte  0  u64  step
//           8  u8   0 keeps, 1 loads, 2 loads and recomputes, 3 drops
//           9  u8   n_pages (1 to 8)
//          10  u8   n_good (<= n_pages)
//          11  u8   1 with the states at the end of the last page (with 0 and 3: these alone); with 2: 0
//          12  u16  n_ops (<= 4096)
//          14  u16  timeout_ms
//          16  i32  seq (>= 0)
//          20  u32  first (<= 2^21)
//          24  i32 ops [n_ops, 3]
//              n_pages x 16 bytes key
//              with 2: 32 bytes borders, bit il % 8 of byte il / 8 for the border before layer il

static void put_pages(kin_writer *w, const kin_proto_pages *m) {
    kin_assert(m->n_pages >= 1 && m->n_pages <= KIN_PROTO_MAX_PAGES && m->n_good <= m->n_pages);
    kin_writer_u64(w, m->step);
    kin_writer_u8(w, (uint8_t)(m->drops ? 3 : m->recomputes ? 2 : m->loads));
    kin_writer_u8(w, (uint8_t)m->n_pages);
    kin_writer_u8(w, (uint8_t)m->n_good);
    kin_writer_u8(w, m->has_states);
    kin_writer_u16(w, m->n_ops);
    kin_writer_u16(w, m->timeout_ms);
    kin_writer_u32(w, (uint32_t)m->seq);
    kin_writer_u32(w, m->first);
    kin_writer_bytes(w, m->ops, (size_t)12 * m->n_ops);
    for (int i = 0; i < m->n_pages; i++) kin_writer_bytes(w, m->key[i].bytes, sizeof m->key[i].bytes);
    if (m->recomputes) kin_writer_bytes(w, m->borders.bits, sizeof m->borders.bits);
}

static void read_pages(kin_reader *r, kin_proto_pages *m) {
    m->step = kin_reader_u64(r);
    uint32_t what = kin_reader_range(r, kin_reader_u8(r), 0, 3, "loads");
    m->loads = what == 1 || what == 2;
    m->drops = what == 3;
    m->recomputes = what == 2;
    m->n_pages = (uint16_t)kin_reader_range(r, kin_reader_u8(r), 1, KIN_PROTO_MAX_PAGES, "n_pages");
    m->n_good = (uint16_t)kin_reader_range(r, kin_reader_u8(r), 0, m->n_pages, "n_good");
    m->has_states = kin_reader_range(r, kin_reader_u8(r), 0, !m->recomputes, "states");
    m->n_ops = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_OPS, "n_ops");
    m->timeout_ms = kin_reader_u16(r);
    m->seq = (int32_t)kin_reader_range(r, kin_reader_u32(r), 0, INT32_MAX, "seq");
    m->first = kin_reader_range(r, kin_reader_u32(r), 0, KIN_PROTO_MAX_BLOCKS, "first");
    m->ops = read_ops(r, m->n_ops);
    for (int i = 0; i < m->n_pages; i++) kin_reader_copy(r, m->key[i].bytes, sizeof m->key[i].bytes);
    if (m->recomputes) kin_reader_copy(r, m->borders.bits, sizeof m->borders.bits);
}

KIN_PROTO_DEFINE(PAGES, pages)

//     SUM
//     byte  0  u64  step
//           8  u16  round (< 1024)
//          10  u16  i_sum (< 2^14)
//          12  u16  type: 0 f32, 1 f16, 2 q8
//          14  u16  0
//          16  u32  n_values (1 to (2^28 - 20) / 4; of q8 a multiple of 32)
//          20  values

enum { MAX_VALUES = (KIN_FRAME_CAP_STEP - KIN_PROTO_SUM_HEAD) / 4 };

static void put_sum_head(kin_writer *w, const kin_proto_sum *m) {
    kin_assert(m->n_values >= 1 && m->n_values <= MAX_VALUES);
    kin_writer_u64(w, m->step);
    kin_writer_u16(w, m->round);
    kin_writer_u16(w, m->i_sum);
    kin_writer_u16(w, (uint16_t)m->type);
    kin_writer_u16(w, 0);
    kin_writer_u32(w, m->n_values);
}

static void put_sum(kin_writer *w, const kin_proto_sum *m) {
    put_sum_head(w, m);
    kin_writer_bytes(w, m->values, (size_t)kin_activations_bytes(m->n_values, m->type));
}

static void read_sum(kin_reader *r, kin_proto_sum *m) {
    m->step = kin_reader_u64(r);
    m->round = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_WINDOWS - 1, "round");
    m->i_sum = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_SUMS - 1, "i_sum");
    m->type = kin_reader_range(r, kin_reader_u16(r), 0, KIN_ACTIVATION_N_TYPES - 1, "type");
    kin_reader_range(r, kin_reader_u16(r), 0, 0, "byte 14");
    m->n_values = kin_reader_range(r, kin_reader_u32(r), 1, MAX_VALUES, "n_values");
    check_whole_blocks(r, m->n_values, m->type, "n_values");
    m->values = kin_reader_bytes(r, (size_t)kin_activations_bytes(m->n_values, m->type));
}

KIN_PROTO_DEFINE(SUM, sum)

size_t kin_proto_encode_sum_head(uint8_t *buf, size_t cap, const kin_proto_sum *m) {
    kin_writer w = {.to = buf, .cap = cap};
    put_sum_head(&w, m);
    return w.n;
}

int32_t kin_proto_i32_at(const uint8_t *array, size_t i) {
    return (int32_t)kin_get_u32(array + 4 * i);
}

void kin_proto_i32_encode(uint8_t *to, const int32_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) kin_put_u32(to + 4 * i, (uint32_t)from[i]);
}

void kin_proto_i32_decode(int32_t *to, const uint8_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = kin_proto_i32_at(from, i);
}
