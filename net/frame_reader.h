// Reads whole frames from a stream (net/transport.h), each payload in contiguous memory.
//
// The memory is reused for the next frame. It grows as bytes arrive, never on the promise of a header.
//
// Plain struct; a zeroed one is empty. Owner and thread: the link's. A frame's payload is valid until the next pull.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net/transport.h"
#include "pure/proto/frame.h"
#include "pure/proto/message.h"

typedef struct kin_frame_reader {
    kin_frame frame;  // valid once its header has arrived
    uint8_t *payload; // [payload_bytes], of which n_payload have arrived
    size_t n_header, n_payload, payload_bytes;
    uint8_t header[KIN_FRAME_HEADER];
} kin_frame_reader;

typedef enum kin_frame_reader_state {
    KIN_FRAME_READER_FRAME,  // frame and payload are complete
    KIN_FRAME_READER_MORE,   // no more data for now
    KIN_FRAME_READER_FAILED, // invalid frame, frame too long, damaged bytes, or out of memory
} kin_frame_reader_state;

// frame_max: payload limit for types other than the link's own (PING, PONG, BYE).
kin_frame_reader_state kin_frame_reader_pull(kin_frame_reader *b, kin_byte_stream *stream, uint32_t frame_max, kin_err *err);
void kin_frame_reader_fini(kin_frame_reader *b);

// True if some bytes of a frame have arrived, but not all.
bool kin_frame_reader_has_part(const kin_frame_reader *reader);

// True for the link's own types: PING, PONG, BYE. KIN_FRAME_READER_OWN_BYTES is their longest payload.
bool kin_frame_reader_is_own(kin_frame_type type);
enum { KIN_FRAME_READER_OWN_BYTES = 2 + KIN_PROTO_MAX_REASON };
