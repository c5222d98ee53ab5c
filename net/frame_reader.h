// Whole frames out of a stream (net/transport.h), each payload in one piece of memory.
//
// The memory is kept for the next frame. It grows as bytes arrive, never because a header promises them.
//
// Plain struct; zeros are an empty one. Owner and thread: the link's. A frame's payload is valid until the next pull.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net/transport.h"
#include "pure/proto/frame.h"
#include "pure/proto/message.h"

typedef struct kin_frame_reader {
    kin_frame frame;  // valid when its header is here
    uint8_t *payload; // [payload_bytes], of which n_payload are here
    size_t n_header, n_payload, payload_bytes;
    uint8_t header[KIN_FRAME_HEADER];
} kin_frame_reader;

typedef enum kin_frame_reader_state {
    KIN_FRAME_READER_FRAME,  // frame and payload are whole
    KIN_FRAME_READER_MORE,   // nothing (more) for now
    KIN_FRAME_READER_FAILED, // no frame, a frame that is too long, damaged bytes, no memory
} kin_frame_reader_state;

// frame_max: bytes of payload, of types other than the link's own (PING, PONG, BYE).
kin_frame_reader_state kin_frame_reader_pull(kin_frame_reader *b, kin_byte_stream *stream, uint32_t frame_max, kin_err *err);
void kin_frame_reader_fini(kin_frame_reader *b);

// The link's own: PING, PONG, BYE, and the longest payload of them.
// A part of a frame has come, not all of it.
bool kin_frame_reader_has_part(const kin_frame_reader *reader);

bool kin_frame_reader_is_own(kin_frame_type type);
enum { KIN_FRAME_READER_OWN_BYTES = 2 + KIN_PROTO_MAX_REASON };
