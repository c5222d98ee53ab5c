// Frames: the unit of transfer on a link. A header of 16 bytes, then a payload that is one message (pure/proto/message.h).
//
//     byte  0  u32  magic "KIN1"
//           4  u8   version of this layout, and of that of OPEN, ACCEPT, REFUSE, PING, PONG and BYE: 5
//           5  u8   type, one of KIN_FRAME_TYPES
//           6  u16  0
//           8  u32  epoch of the plan that the frame belongs to, 0: none
//          12  u32  length of the payload, at most the type's cap
//
// All numbers are little-endian. The first 16 bytes keep this meaning in every version, so that each side can report the other's
// version. OPEN and ACCEPT negotiate the protocol version of all other messages (pure/proto/versions.h). Not here: reading,
// writing, TLS, and the decision to drop a frame of another epoch.
//
// Plain data and pure functions: any thread, nothing is stored, nothing is allocated.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KIN_FRAME_HEADER = 16, KIN_FRAME_VERSION = 5 };

// The purpose of a link; the connecting side states it in OPEN.
typedef enum kin_proto_role {
    KIN_PROTO_CONTROL, // device -> head, one per device
    KIN_PROTO_RING,    // each member -> its next member
    KIN_PROTO_FETCH,   // anyone -> any process that has parts of the model file
    KIN_PROTO_OBSERVE, // status client -> head
    KIN_PROTO_PROBE,   // anyone -> anyone, to measure the path between them
    KIN_PROTO_BACK,    // each member -> its previous member, if only this end can open the ring link: steps arrive on it
    KIN_PROTO_GROUP,   // each device of a group -> those after it, for the sums (pipeline/exchange.h)
} kin_proto_role;

enum { KIN_PROTO_N_ROLES = 7 };

#define KIN_FRAME_CAP_SMALL (64u << 10)
#define KIN_FRAME_CAP_LARGE (1u << 20)
#define KIN_FRAME_CAP_STEP (256u << 20)
#define KIN_FRAME_DATA_BYTES (256u << 10)  // file bytes in one DATA frame
#define KIN_FRAME_REPORT_BYTES (64u << 10) // bytes of text in one REPORT frame
#define KIN_FRAME_ECHO_BYTES (1u << 20)    // filler bytes in one ECHO frame

// X(number, NAME, name, largest payload, links: c control, r ring, f fetch, o observe, p probe, b back, g group, epoch: 1 if the
// frame always belongs to a plan)
#define KIN_FRAME_TYPES(X)                                                                                                       \
    X(1, OPEN, open, KIN_FRAME_CAP_SMALL, "crfopbg", 0)                                                                          \
    X(2, ACCEPT, accept, KIN_FRAME_CAP_SMALL, "crfopbg", 0)                                                                      \
    X(3, REFUSE, refuse, KIN_FRAME_CAP_SMALL, "crfopbg", 0)                                                                      \
    X(4, DEVICE, device, KIN_FRAME_CAP_SMALL, "c", 0)                                                                            \
    X(5, PLAN, plan, KIN_FRAME_CAP_SMALL, "c", 1)                                                                                \
    X(6, PROGRESS, progress, KIN_FRAME_CAP_SMALL, "c", 0)                                                                        \
    X(7, READY, ready, KIN_FRAME_CAP_SMALL, "c", 1)                                                                              \
    X(8, FAILED, failed, KIN_FRAME_CAP_SMALL, "c", 0)                                                                            \
    X(9, PING, ping, KIN_FRAME_CAP_SMALL, "crfopbg", 0)                                                                          \
    X(10, PONG, pong, KIN_FRAME_CAP_SMALL, "crfopbg", 0)                                                                         \
    X(11, STEP, step, KIN_FRAME_CAP_STEP, "rb", 1)                                                                               \
    X(12, ECHO, echo, KIN_FRAME_ECHO_BYTES + 12, "p", 0)                                                                         \
    X(13, STATUS_WANTED, status_wanted, 0, "co", 0)                                                                              \
    X(14, STATUS, status, KIN_FRAME_CAP_SMALL, "c", 0)                                                                           \
    X(15, EVENTS, events, KIN_FRAME_CAP_SMALL, "c", 0)                                                                           \
    X(16, HASHES_WANTED, hashes_wanted, KIN_FRAME_CAP_SMALL, "f", 0)                                                             \
    X(17, HASHES, hashes, KIN_FRAME_CAP_LARGE, "f", 0)                                                                           \
    X(18, GET, get, KIN_FRAME_CAP_SMALL, "f", 0)                                                                                 \
    X(19, DATA, data, KIN_FRAME_DATA_BYTES + 8, "f", 0)                                                                          \
    X(20, LACK, lack, KIN_FRAME_CAP_SMALL, "f", 0)                                                                               \
    X(21, HAVE, have, KIN_FRAME_CAP_LARGE, "c", 0)                                                                               \
    X(22, BYE, bye, KIN_FRAME_CAP_SMALL, "crfopbg", 0)                                                                           \
    X(23, END, end, KIN_FRAME_CAP_SMALL, "c", 1)                                                                                 \
    X(24, NEXT, next, KIN_FRAME_CAP_SMALL, "c", 1)                                                                               \
    X(25, REPORT, report, KIN_FRAME_REPORT_BYTES + 4, "o", 0)                                                                    \
    X(26, PROFILE, profile, KIN_FRAME_CAP_SMALL, "c", 0)                                                                         \
    X(27, MEASURE, measure, KIN_FRAME_CAP_SMALL, "c", 0)                                                                         \
    X(28, MEASURED, measured, KIN_FRAME_CAP_SMALL, "c", 0)                                                                       \
    X(29, PREFETCH, prefetch, KIN_FRAME_CAP_SMALL, "c", 0)                                                                       \
    X(30, PREFETCHED, prefetched, KIN_FRAME_CAP_SMALL, "c", 0)                                                                   \
    X(31, PAGES, pages, KIN_FRAME_CAP_SMALL, "rb", 1)                                                                            \
    X(32, KEPT, kept, KIN_FRAME_CAP_SMALL, "c", 0)                                                                               \
    X(33, SUM, sum, KIN_FRAME_CAP_STEP, "g", 1)                                                                                  \
    X(34, LEFT_OUT, left_out, KIN_FRAME_CAP_SMALL, "c", 0)

typedef enum kin_frame_type {
#define KIN_FRAME_ENUM(number, NAME, name, cap, links, epoch) KIN_FRAME_##NAME = number,
    KIN_FRAME_TYPES(KIN_FRAME_ENUM)
#undef KIN_FRAME_ENUM
} kin_frame_type;

enum { KIN_FRAME_N_TYPES = 34 }; // types are 1 to this number

// A part of a payload that is sent without copying.
typedef struct kin_frame_part {
    const void *bytes;
    size_t n;
} kin_frame_part;

typedef struct kin_frame {
    kin_frame_type type;
    uint32_t epoch;
    uint32_t length; // bytes of the payload
} kin_frame;

// Writes the header. Asserts everything that decoding would reject.
void kin_frame_encode(uint8_t to[KIN_FRAME_HEADER], const kin_frame *frame);

// Reads a header from the n bytes received so far.
//   KIN_FRAME_HEADER  the header's bytes are consumed, *frame is set
//   0                 more bytes are needed
//   KIN_FAIL          malformed, or another version; reported as early as the bytes show it. The link is unusable afterwards.
// frame->length is within the type's cap. A link with a smaller bound (a ring: kin_proto_step_size_max) must check it before it
// allocates.
int kin_frame_decode(const uint8_t *bytes, size_t n, kin_frame *frame, kin_err *err);

// For types from 1 to KIN_FRAME_N_TYPES.
const char *kin_frame_name(kin_frame_type type); // "OPEN"
uint32_t kin_frame_cap(kin_frame_type type);     // bytes of the largest payload
// True if frames of this type are allowed on links of this role.
bool kin_frame_belongs(kin_frame_type type, kin_proto_role role);
