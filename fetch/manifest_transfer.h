// Transfers a model's hashes between two machines: a manifest (model/manifest.h) in one or several HASHES messages.
//
// No state is kept except the caller's. Thread: any.
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "model/manifest.h"
#include "pure/proto/message.h"

// Fills a message with the hashes from chunk `first` on, as many as fit; its hashes point into the manifest.
void kin_manifest_transfer_give(kin_proto_hashes *message, const kin_manifest *m, uint32_t first);

typedef enum kin_manifest_transfer_result {
    KIN_MANIFEST_TRANSFER_MORE,
    KIN_MANIFEST_TRANSFER_WHOLE, // kin_manifest_finish makes the final check
    KIN_MANIFEST_TRANSFER_BAD,
} kin_manifest_transfer_result;

// Adds one message to `m`, which is zeroed before the first; messages must come in order. *n_added: hashes so far. sizes //
// expected file sizes, [n_files]
kin_manifest_transfer_result kin_manifest_transfer_add(kin_manifest *m, uint32_t *n_added, const kin_proto_hashes *message,
                                                       int n_files, const uint64_t *sizes, kin_err *err);
