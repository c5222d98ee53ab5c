// The identity of a machine in the cluster: 16 random bytes that the machine generates once and keeps.
#pragma once

#include <stdbool.h>
#include <string.h>

#include "pure/proto/message.h"

static inline bool kin_proto_id_equal(const kin_proto_id *a, const kin_proto_id *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

// True if there is no identity: all bytes are zero.
static inline bool kin_proto_id_is_none(const kin_proto_id *id) {
    return kin_proto_id_equal(id, &(kin_proto_id){{0}});
}
