// Frames into a TLS connection: header and payload packed into full records, so that a small frame is one record and one write.
//
// It sends nothing; what is encrypted waits in the connection (kin_tls_output). Nothing is kept. Owner and thread: the link's.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "net/link.h"
#include "pure/proto/frame.h"
#include "sys/tls.h"

// Called between records of a long frame, to send what is encrypted; a failure ends the frame.
typedef int (*kin_frame_writer_between)(void *user, kin_err *err);

int kin_frame_writer_put(kin_tls *tls, const kin_frame *frame, int n_parts, const kin_link_part *parts,
                         kin_frame_writer_between between, void *user, kin_err *err);

// Bytes on the wire for a payload of n, at most.
size_t kin_frame_writer_wire_bytes(size_t n);
