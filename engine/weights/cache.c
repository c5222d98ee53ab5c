#include "engine/weights/cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/cache_dir.h"
#include "engine/weights/blocks.h"
#include "sys/background.h"
#include "sys/checks.h"

// A smaller model packs so fast that a cache file is not worthwhile.
#define CACHE_MIN_BYTES (32u << 20)

// The sample suffices, because each block of the cache file also stores what it was made from (packed.h).
int kin_weights_model_identity(const kin_model *model, uint64_t *identity, kin_err *err) {
    return kin_gguf_sample(model->gguf, identity, err);
}

// Returns a stamp of the present state of the model's files; see packed.h.
static uint64_t source_stamp(const kin_model *m) {
    uint64_t stamp = kin_gguf_on_disk(m->gguf);
    for (int i = 0; i < kin_gguf_n_files(m->gguf); i++) stamp = kin_file_stamp(kin_gguf_file_fd(m->gguf, i), stamp);
    return stamp;
}

// A device's slices get a cache file of their own; the key of whole weights is unchanged.
static uint64_t hash_slices(const kin_slices *slices, uint64_t h) {
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_slice *s = &slices->of[id];
        const int64_t fields[] = {id, s->dim, s->begin, s->end};
        if (s->dim != KIN_SLICE_FULL) h = kin_hash64(fields, sizeof fields, h);
    }
    return h;
}

// The file has room for every block of the whole model, so that it is the same file whatever layers a device runs.
static int open_cache(kin_weights *w, kin_err *err) {
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu;
    size_t n_layer_blocks = (size_t)m->hp.n_layer * KIN_WEIGHT_BLOCK_COUNT,
           n = n_layer_blocks + (size_t)kin_weights_count_tiles(m);
    uint64_t *bytes = calloc(n, sizeof *bytes), total = 0;
    uint64_t variant = kin_hash64(w->devices->cpu_variant, strlen(w->devices->cpu_variant), KIN_PANEL_FORMAT);
    if (!bytes) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < n; i++) {
        kin_weights_block b = {0};
        if (i < n_layer_blocks)
            kin_weights_add_layer_block(&b, m, (int)(i / KIN_WEIGHT_BLOCK_COUNT), (kin_weight_block)(i % KIN_WEIGHT_BLOCK_COUNT),
                                        &w->o.slices, NULL, cpu);
        else
            kin_weights_add_tile_block(&b, m, (int)(i - n_layer_blocks), NULL, cpu);
        bytes[i] = b.pack ? b.packed_bytes : 0;
        for (int k = 0; k < b.n_pieces; k++) variant = kin_hash64(&b.pieces[k].layout, sizeof b.pieces[k].layout, variant);
        total += bytes[i];
    }
    kin_packed_key key = {.variant = hash_slices(&w->o.slices, variant)};
    key.model = w->o.identity;
    w->source_stamp = key.model ? 0 : source_stamp(m);
    int rc = key.model ? 0 : kin_weights_model_identity(m, &key.model, err); // a partly fetched file cannot be sampled everywhere
    if (rc == 0 && !kin_packed_exists(w->o.cache_dir, key))
        rc = kin_cache_dir_make_room(w->o.cache_dir, total, w->o.cache_cap, err);
    if (rc == 0) rc = kin_packed_share(&w->packed, w->o.cache_dir, key, w->source_stamp, n, bytes, err);
    free(bytes);
    return rc;
}

int kin_weights_map_block(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (kin_packed_map(w->packed, b->i_packed, b->base, err) != 0) return KIN_FAIL;
    atomic_store(&b->in_file, true);
    return 0;
}

// Moves packed bytes to the cache file and maps it in their place: the same content, but reclaimable by the OS.
static int move_to_file(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (b->dirty && kin_packed_write(w->packed, b->i_packed, b->base, b->source_hash, err) != 0) return KIN_FAIL;
    return kin_weights_map_block(w, b, err);
}

void kin_weights_warn_no_cache(kin_weights *w, const kin_err *err) {
    if (!atomic_exchange(&w->cache_failed, true)) kin_log(KIN_LOG_WARN, "cannot use the prepacked cache: %s", err->text);
}

void kin_weights_try_move(kin_weights *w, kin_weights_block *b) {
    kin_err err;
    if (!w->packed || atomic_load(&w->cache_failed) || move_to_file(w, b, &err) == 0) return;
    kin_weights_warn_no_cache(w, &err);
}

void kin_weights_finish_cache(kin_weights *w) {
    kin_err err;
    kin_background_thread();
    for (size_t i = 0; i < w->n_blocks && !w->must_stream; i++) { // otherwise each has moved, or never will
        kin_weights_block *b = &w->blocks[i];
        if (b->pack && b->dirty && !atomic_load(&b->in_file)) kin_weights_try_move(w, b);
    }
    if (kin_packed_seal(w->packed, &err) != 0) kin_log(KIN_LOG_WARN, "the prepacked cache is incomplete: %s", err.text);
}

bool kin_weights_must_stream(const kin_weights *w) {
    return w->o.mode == KIN_STREAM_RESIDENT && w->o.budget < kin_weights_cpu_bytes(w->model, &w->o);
}

void kin_weights_try_cache(kin_weights *w) {
    uint64_t to_pack = 0;
    kin_err err;
    for (size_t i = 0; i < w->n_blocks; i++) to_pack += w->blocks[i].pack ? w->blocks[i].packed_bytes : 0;
    if (!w->o.cache_dir || (to_pack < CACHE_MIN_BYTES && !kin_weights_must_stream(w)) || to_pack == 0) return;
    if (open_cache(w, &err) != 0) kin_log(KIN_LOG_WARN, "no prepacked cache: %s", err.text);
}
