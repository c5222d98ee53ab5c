#include "net/frame_writer.h"

#include <string.h>

enum {
    RECORD_BYTES = 16 << 10, // plaintext of one TLS record
    RECORD_EXTRA = 22        // header, type, and tag of a record
};

typedef struct packer {
    kin_byte_stream *stream;
    size_t n; // of plain
    uint8_t plain[RECORD_BYTES];
} packer;

static int put_record(packer *p, kin_err *err) {
    size_t n = p->n;
    p->n = 0;
    return p->stream->transport->write(p->stream, p->plain, n, err);
}

static int put_bytes(packer *p, const uint8_t *bytes, size_t n, kin_err *err) {
    while (n > 0) {
        size_t k = RECORD_BYTES - p->n;
        if (k > n) k = n;
        memcpy(p->plain + p->n, bytes, k);
        p->n += k;
        bytes += k;
        n -= k;
        if (p->n == RECORD_BYTES && put_record(p, err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_frame_writer_put(kin_byte_stream *stream, const kin_frame *frame, int n_parts, const kin_frame_part *parts,
                         kin_err *err) {
    packer p; // deliberately not zeroed
    p.stream = stream;
    p.n = KIN_FRAME_HEADER;
    kin_frame_encode(p.plain, frame);
    for (int i = 0; i < n_parts; i++) {
        if (put_bytes(&p, parts[i].bytes, parts[i].n, err) != 0) return KIN_FAIL;
    }
    return p.n > 0 ? put_record(&p, err) : 0;
}

size_t kin_frame_writer_wire_bytes(size_t n) {
    n += KIN_FRAME_HEADER;
    return n + (n / RECORD_BYTES + 1) * RECORD_EXTRA;
}
