// Protocol versions: every program speaks a range of them, and two programs use the highest one that both know. OPEN and ACCEPT
// carry the ranges. The layout of frames and of the messages that every link has (OPEN, ACCEPT, REFUSE, PING, PONG, BYE) is not
// part of this: it has its own version in each header (KIN_FRAME_VERSION), so that programs without a common version can tell
// each other.
//
// Pure functions: any thread.
#pragma once

#include "base/err.h"
#include "pure/proto/message.h"

// The range of this program.
enum { KIN_PROTO_VERSION_MIN = 25, KIN_PROTO_VERSION_MAX = 25 };

#define KIN_PROTO_VERSIONS ((kin_proto_versions){KIN_PROTO_VERSION_MIN, KIN_PROTO_VERSION_MAX})

// Returns the range, or that of this program if it is not set (max 0).
kin_proto_versions kin_proto_versions_or_own(kin_proto_versions versions);

typedef struct kin_proto_speaker {
    const char *name;    // name of the process, for people
    const char *program; // version of the program
    kin_proto_versions versions;
} kin_proto_speaker;

// Returns the highest version that both speak. 0: there is none, and *err is a refusal (pure/proto/refusal.h) that names both
// ranges and says which side to update.
uint16_t kin_proto_versions_agree(const kin_proto_speaker *a, const kin_proto_speaker *b, kin_err *err);
