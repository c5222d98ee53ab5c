// Writes frames to a stream (net/transport.h): packs header and payload into pieces that fill a TLS record, so that a small frame
// is one record and one write.
//
// Does not flush and keeps no state. Owner and thread: the link's.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "net/transport.h"
#include "pure/proto/frame.h"

int kin_frame_writer_put(kin_byte_stream *stream, const kin_frame *frame, int n_parts, const kin_frame_part *parts, kin_err *err);

// Returns the most bytes on the wire for a payload of n bytes.
size_t kin_frame_writer_wire_bytes(size_t n);
