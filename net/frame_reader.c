#include "net/frame_reader.h"

#include <stdlib.h>

enum { PAYLOAD_FIRST = 64 << 10 }; // bytes; the buffer grows only as data arrives

bool kin_frame_reader_is_own(kin_frame_type type) {
    return type == KIN_FRAME_PING || type == KIN_FRAME_PONG || type == KIN_FRAME_BYE;
}

static bool is_whole(const kin_frame_reader *b) {
    return b->n_header == KIN_FRAME_HEADER && b->n_payload == b->frame.length;
}

bool kin_frame_reader_has_part(const kin_frame_reader *b) {
    return b->n_header > 0 && !is_whole(b);
}

void kin_frame_reader_fini(kin_frame_reader *b) {
    free(b->payload);
    *b = (kin_frame_reader){0};
}

// Sets *n to the bytes read.
static int read_header(kin_frame_reader *b, kin_byte_stream *stream, uint32_t frame_max, size_t *n, kin_err *err) {
    if (stream->transport->read(stream, b->header + b->n_header, sizeof b->header - b->n_header, n, err) != 0) return KIN_FAIL;
    b->n_header += *n;
    int rc = kin_frame_decode(b->header, b->n_header, &b->frame, err);
    if (rc <= 0) return rc;
    uint32_t most = kin_frame_reader_is_own(b->frame.type) ? KIN_FRAME_READER_OWN_BYTES : frame_max;
    if (b->frame.length <= most) return 0;
    return kin_err_set(err, "%s: payload of %u bytes exceeds %u", kin_frame_name(b->frame.type), b->frame.length, most);
}

static int grow_reader(kin_frame_reader *b, kin_err *err) {
    if (b->payload_bytes > b->n_payload) return 0;
    size_t want = b->payload_bytes ? b->payload_bytes * 2 : PAYLOAD_FIRST;
    if (want > b->frame.length && b->frame.length > PAYLOAD_FIRST) want = b->frame.length;
    uint8_t *grown = realloc(b->payload, want);
    if (!grown) return kin_err_set(err, "out of memory for a frame of %u bytes", b->frame.length);
    b->payload = grown;
    b->payload_bytes = want;
    return 0;
}

static int read_payload(kin_frame_reader *b, kin_byte_stream *stream, size_t *n, kin_err *err) {
    if (grow_reader(b, err) != 0) return KIN_FAIL;
    size_t room = b->payload_bytes - b->n_payload, left = b->frame.length - b->n_payload;
    if (stream->transport->read(stream, b->payload + b->n_payload, room < left ? room : left, n, err) != 0) return KIN_FAIL;
    b->n_payload += *n;
    return 0;
}

kin_frame_reader_state kin_frame_reader_pull(kin_frame_reader *b, kin_byte_stream *stream, uint32_t frame_max, kin_err *err) {
    if (is_whole(b)) b->n_header = b->n_payload = 0; // the last frame was returned
    for (;;) {
        size_t n = 0;
        int rc = b->n_header < KIN_FRAME_HEADER ? read_header(b, stream, frame_max, &n, err) : read_payload(b, stream, &n, err);
        if (rc != 0) return KIN_FRAME_READER_FAILED;
        if (is_whole(b)) return KIN_FRAME_READER_FRAME;
        if (n == 0) return KIN_FRAME_READER_MORE;
    }
}
