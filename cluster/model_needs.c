#include "cluster/model_needs.h"

#include <string.h>
#include <sys/mman.h>

#include "engine/shard.h"
#include "engine/shard_memory.h"
#include "model/model.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

static uint64_t needs_of(const kin_model *model) {
    kin_shard_options o = kin_shard_options_defaults(model);
    o.windows = kin_windows_one(0, model->hp.n_layer, 0);
    o.n_ctx = model->hp.n_ctx_train < KIN_NEEDS_CTX ? model->hp.n_ctx_train : KIN_NEEDS_CTX;
    o.n_sequences = 1;
    o.output = true;
    return kin_shard_fixed_bytes(model, &o);
}

int kin_model_needs(const uint8_t *head, uint64_t n, uint64_t file_size, uint64_t *reach, uint64_t *beside) {
    kin_model model;
    kin_header_state state = kin_header_measure(head, n, file_size, reach, NULL);
    if (state == KIN_HEADER_MORE) return *reach > n && *reach <= file_size ? KIN_ABSENT : KIN_FAIL;
    if (state == KIN_HEADER_BROKEN || n > file_size || file_size > SIZE_MAX / 2) return KIN_FAIL;
    // The weights are zeros that take no memory.
    uint8_t *bytes = mmap(NULL, (size_t)file_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) return KIN_FAIL;
    memcpy(bytes, head, (size_t)n);
    int rc = kin_model_open_bytes(&model, "the model", bytes, (size_t)file_size, NULL);
    if (rc == 0) *beside = needs_of(&model);
    if (rc == 0) kin_model_close(&model);
    munmap(bytes, (size_t)file_size);
    return rc;
}
