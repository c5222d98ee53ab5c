// Decodes any bytes as the stream of frames that a link receives. Each frame must be accepted or refused with an error sentence,
// and an accepted frame must encode to the same bytes.
#include <stdlib.h>
#include <string.h>

#include "pure/proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static volatile uint32_t touched;

static void touch(const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) touched += bytes[i];
}

// The codec's guarantees, on which its callers rely without checking again.
static void check_step(const kin_proto_step *m) {
    kin_proto_step_layout l = kin_proto_step_lay_out(m);
    size_t n = (size_t)m->n_rows * m->n_embd, unit = kin_activation_unit(m->type), n_row = unit > 8 ? unit : 8;
    kin_assert(l.activations_bytes == kin_activations_bytes(n, m->type) && n % unit == 0);
    kin_assert(l.size <= kin_proto_step_size_max(m->n_tokens, m->n_embd, m->type));
    kin_assert(m->n_out <= m->n_tokens && m->n_rows <= m->n_tokens);
    for (size_t i = 0; m->out && i < m->n_out; i++) kin_assert((uint32_t)kin_proto_i32_at(m->out, i) < m->n_tokens);
    float row[KIN_ACTIVATION_Q8_VALUES];
    kin_activations_decode(row, m->activations, n < n_row ? n : n_row, m->type);
}

static void check_message(const kin_proto_message *m) {
    switch ((int)m->type) {
    case KIN_FRAME_STEP: check_step(&m->step); break;
    case KIN_FRAME_PLAN:
        for (int i = 0; i < m->plan.n_windows; i++) kin_assert(m->plan.window[i].layer_begin < m->plan.window[i].layer_end);
        kin_assert(m->plan.group.n_ranks != 1 && m->plan.group.n_ranks <= KIN_PROTO_MAX_RANKS);
        break;
    case KIN_FRAME_SUM: touch(m->sum.values, kin_activations_bytes(m->sum.n_values, m->sum.type)); break;
    case KIN_FRAME_REPORT: touch(m->report.bytes, m->report.n_bytes); break;
    case KIN_FRAME_DATA: touch(m->data.bytes, m->data.n_bytes); break;
    case KIN_FRAME_ECHO:
        kin_assert(m->echo.answer_bytes <= KIN_FRAME_ECHO_BYTES);
        touch(m->echo.bytes, m->echo.n_bytes);
        break;
    case KIN_FRAME_MEASURE: kin_assert(m->measure.hidden_bytes >= 1 && m->measure.hidden_bytes <= KIN_FRAME_ECHO_BYTES); break;
    case KIN_FRAME_PROFILE: kin_assert(memchr(m->profile.facts.name, 0, sizeof m->profile.facts.name)); break;
    case KIN_FRAME_HASHES:
        kin_assert(m->hashes.first + m->hashes.n_hashes <= kin_proto_n_chunks(&m->hashes));
        for (int i = 0; i < m->hashes.n_files; i++) kin_assert(!strchr(m->hashes.file[i].name, '/'));
        break;
    case KIN_FRAME_KEPT: touch(m->kept.names, sizeof(kin_proto_hash) * m->kept.n_names); break;
    case KIN_FRAME_HAVE:
        for (uint32_t i = 0; i < m->have.n_chunks; i++) touched += kin_proto_have_chunk(&m->have, i);
        break;
    }
}

static void check_frame(const kin_frame *frame, const uint8_t *whole) {
    static kin_proto_message m;
    kin_err err = {""};
    if (kin_proto_decode(frame->type, whole + KIN_FRAME_HEADER, frame->length, &m, &err) != 0) {
        kin_assert(strncmp(err.text, kin_frame_name(frame->type), strlen(kin_frame_name(frame->type))) == 0);
        return;
    }
    check_message(&m);
    size_t n = KIN_FRAME_HEADER + frame->length;
    uint8_t *again = malloc(n);
    if (!again) return;
    kin_assert(kin_proto_encode(again, n, frame->epoch, &m) == n);
    kin_assert(memcmp(again, whole, n) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    while (size > 0) {
        kin_frame frame;
        kin_err err = {""};
        int used = kin_frame_decode(bytes, size, &frame, &err);
        kin_assert(used != KIN_FAIL || err.text[0]);
        if (used <= 0 || frame.length > size - KIN_FRAME_HEADER) return 0;
        check_frame(&frame, bytes);
        bytes += KIN_FRAME_HEADER + frame.length;
        size -= KIN_FRAME_HEADER + frame.length;
    }
    return 0;
}
