#include "fetch/manifest_transfer.h"

#include <inttypes.h>
#include <string.h>

void kin_manifest_transfer_give(kin_proto_hashes *message, const kin_manifest *m, uint32_t first) {
    kin_assert(first <= m->n_chunks && m->n_files <= KIN_PROTO_MAX_FILES);
    uint32_t n = m->n_chunks - first;
    message->chunk_bytes = m->chunk_bytes;
    message->n_files = m->n_files;
    for (int i = 0; i < m->n_files; i++) {
        message->file[i].size = m->files[i].size;
        memcpy(message->file[i].name, m->files[i].name, sizeof message->file[i].name);
    }
    message->first = first;
    message->n_hashes = n < KIN_PROTO_MAX_HASHES ? n : KIN_PROTO_MAX_HASHES;
    message->hashes = (const uint8_t *)m->hashes + (size_t)first * KIN_SHA256_BYTES;
}

static int begin(kin_manifest *m, const kin_proto_hashes *message, int n_files, const uint64_t *sizes, kin_err *err) {
    const char *names[KIN_PROTO_MAX_FILES];
    if (message->n_files != n_files)
        return kin_err_set(err, "the model has %d files, but the manifest lists %d", n_files, message->n_files);
    for (int i = 0; i < n_files; i++) {
        names[i] = message->file[i].name;
        if (message->file[i].size == sizes[i]) continue;
        return kin_err_set(err, "file %d of the model has %" PRIu64 " bytes, but the manifest says %" PRIu64, i + 1, sizes[i],
                           message->file[i].size);
    }
    return kin_manifest_begin(m, message->chunk_bytes, n_files, sizes, names, err);
}

kin_manifest_transfer_result kin_manifest_transfer_add(kin_manifest *m, uint32_t *n_added, const kin_proto_hashes *message,
                                                       int n_files, const uint64_t *sizes, kin_err *err) {
    if (!m->files) {
        *n_added = 0;
        if (begin(m, message, n_files, sizes, err) != 0) return KIN_MANIFEST_TRANSFER_BAD;
    }
    bool in_order = message->chunk_bytes == m->chunk_bytes && message->first == *n_added && message->n_hashes > 0;
    if (!in_order || message->n_hashes > m->n_chunks - *n_added) {
        kin_err_set(err, "its messages with the model's hashes are inconsistent");
        return KIN_MANIFEST_TRANSFER_BAD;
    }
    memcpy((uint8_t *)m->hashes + (size_t)*n_added * KIN_SHA256_BYTES, message->hashes,
           (size_t)message->n_hashes * KIN_SHA256_BYTES);
    *n_added += message->n_hashes;
    return *n_added == m->n_chunks ? KIN_MANIFEST_TRANSFER_WHOLE : KIN_MANIFEST_TRANSFER_MORE;
}
