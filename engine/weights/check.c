// Resident blocks are checked against their hash before they are mapped: that reads their bytes, which are needed right
// afterwards anyway. If not all blocks fit, each is checked when it is first acquired, in the ring or in its mapping. Experts are
// fetched on demand, never as a whole block: a background thread checks them, past the page cache.
#include "engine/weights/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "engine/weights/mapping.h"
#include "engine/weights/pack.h"
#include "sys/background.h"

static void log_other(kin_weights *w) {
    if (atomic_exchange(&w->has_logged_other, true)) return;
    kin_log(KIN_LOG_WARN, "%s: the weights differ from the packed ones; packing again", kin_gguf_file_path(w->model->gguf, 0));
}

static void log_damaged(kin_weights *w, bool was_used) {
    if (atomic_exchange(&w->has_logged_damaged, true)) return;
    kin_log(KIN_LOG_WARN, "%s: damaged; packing its weights again%s", kin_packed_path(w->packed),
            was_used ? "; the output so far may be wrong, repeat the request" : "");
}

bool kin_weights_trust(kin_weights *w, kin_weights_block *b) {
    if (!kin_packed_is_current(w->packed, b->i_packed) && !kin_packed_renew(w->packed, b->i_packed, kin_weights_source_hash(b))) {
        log_other(w);
        return false;
    }
    b->unchecked = !kin_packed_is_checked(w->packed, b->i_packed);
    if (!b->unchecked) return true;
    if (w->must_stream) {
        if (!b->experts) atomic_fetch_add(&w->n_to_check, 1);
        return true;
    }
    b->unchecked = false;
    if (kin_packed_check(w->packed, b->i_packed, NULL) == KIN_PACKED_SOUND) return true;
    log_damaged(w, false);
    return false;
}

// Experts are packed a few at a time, in address space for all of them.
static int mend_experts(kin_weights *w, kin_weights_block *b, kin_err *err) {
    kin_err ignored;
    void *space = mmap(NULL, b->packed_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return kin_err_set(err, "out of address space");
    b->source_hash = kin_weights_source_hash(b);
    int rc = kin_weights_pack_experts(w, b, space, err);
    munmap(space, b->packed_bytes);
    if (kin_packed_seal(w->packed, rc == 0 ? err : &ignored) != 0) rc = KIN_FAIL; // in any case: it lets others use the file
    if (rc == 0 && w->experts) kin_experts_forget(w->experts, (int)(b->i_packed / KIN_WEIGHT_BLOCK_COUNT));
    return rc;
}

static int mend_block(kin_weights *w, kin_weights_block *b, const uint8_t *at, kin_err *err) {
    uint8_t *repacked = malloc(b->packed_bytes);
    if (!repacked) return kin_err_set(err, "out of memory");
    int rc = kin_weights_pack(w, b, repacked, err);
    if (rc == 0) rc = kin_packed_mend(w->packed, b->i_packed, repacked, kin_weights_source_hash(b), err);
    if (rc == 0 && at != b->base) memcpy((uint8_t *)at, repacked, b->packed_bytes); // the ring may be written to
    free(repacked);
    return rc;
}

static int mend(kin_weights *w, kin_weights_block *b, const uint8_t *at, kin_err *err) {
    log_damaged(w, false);
    int rc = b->expert_stride > 0 ? mend_experts(w, b, err) : mend_block(w, b, at, err);
    kin_weights_point_at_mapping(b);
    return rc == 0 ? 0 : kin_err_prefix(err, "the prepacked weights are damaged and cannot be repacked");
}

int kin_weights_check(kin_weights *w, kin_weights_block *b, const uint8_t *at, kin_err *err) {
    if (atomic_load(&b->damaged)) {
        if (mend(w, b, at, err) != 0) return KIN_FAIL;
        atomic_store(&b->damaged, false);
        atomic_fetch_sub(&w->n_to_check, 1);
    }
    if (b->experts || !b->unchecked) return 0;
    if (kin_packed_check(w->packed, b->i_packed, at) != KIN_PACKED_SOUND && mend(w, b, at, err) != 0) return KIN_FAIL;
    b->unchecked = false;
    atomic_fetch_sub(&w->n_to_check, 1);
    return 0;
}

bool kin_weights_has_unchecked(const kin_weights *w) {
    for (size_t i = 0; i < w->n_blocks; i++) {
        if (w->blocks[i].experts && w->blocks[i].unchecked) return true;
    }
    return false;
}

void kin_weights_check_behind(kin_weights *w) {
    kin_background_thread();
    for (size_t i = 0; i < w->n_blocks && !atomic_load(&w->closing); i++) {
        kin_weights_block *b = &w->blocks[i];
        if (!b->experts || !b->unchecked) continue; // the computing thread checks the others
        kin_time began = kin_clock_now();
        if (kin_packed_check_behind(w->packed, b->i_packed, &w->closing) == KIN_PACKED_DAMAGED) {
            log_damaged(w, true);
            atomic_store(&b->damaged, true);
            atomic_fetch_add(&w->n_to_check, 1);
        }
        kin_background_rest(began, kin_stream_is_reading, &w->closing);
    }
}
