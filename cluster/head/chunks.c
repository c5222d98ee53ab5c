#include "cluster/head/chunks.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/ranges.h"

// Embedding and output layer stay on the head.
static int withhold_private(kin_cluster_chunks *c, kin_err *err) {
    bool *is_private = calloc(c->o->manifest->n_chunks, sizeof *is_private);
    if (!is_private) return kin_err_set(err, "out of memory");
    if (kin_ranges_private(c->o->model->gguf, c->o->manifest, is_private, err) != 0) {
        free(is_private);
        return KIN_FAIL;
    }
    kin_chunk_store_set_private(c->store, is_private);
    return 0;
}

void kin_cluster_chunks_begin(kin_cluster_chunks *c) {
    kin_err err;
    kin_store *store = NULL;
    if (kin_chunk_server_open(&c->ring->server, kin_endpoint_loop(c->ring->endpoint), NULL, &err) != 0 ||
        kin_store_open_files(&store, c->o->manifest, c->o->paths, &err) != 0 ||
        kin_chunk_store_new(&c->store, kin_endpoint_loop(c->ring->endpoint), store, &err) != 0 ||
        withhold_private(c, &err) != 0) {
        kin_log(KIN_LOG_WARN, "devices cannot fetch the model from this head: %s", err.text);
        if (!c->store) kin_store_close(store);
        return;
    }
    kin_chunk_server_set_store(c->ring->server, c->store);
}

void kin_cluster_chunks_relay(const kin_cluster_chunks *c, uint32_t from, kin_proto_have *have) {
    const kin_membership_device *d = kin_cluster_devices_on(c->devices, from);
    if (!d || memcmp(have->model.bytes, c->o->manifest->hash, sizeof have->model.bytes) != 0) return;
    if (have->n_chunks != c->o->manifest->n_chunks) return;
    have->id = d->id;
    if (kin_connections_endpoint(c->devices->connections, from, &have->endpoint))
        kin_connections_relay(c->devices->connections, from, have);
}

void kin_cluster_chunks_end(kin_cluster_chunks *c) {
    kin_chunk_store_release(c->store);
}
