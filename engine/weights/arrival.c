// Blocks that arrive after open: those of all windows but the first, which is being computed meanwhile.
//
// A thread fills them in order as they come. No token is complete before the last of them, so the thread keeps its normal
// priority until it goes on to the cache file. The computing thread waits for CPU layers block by block; it copies GPU layers
// itself, when a run first needs them. Nothing streams during this time, because the bytes to read ahead are not there yet. Once
// all have arrived, kin_weights_settle opens the streamer.
#include "engine/weights/arrival.h"

#include "base/clock.h"
#include "engine/weights/cache.h"
#include "engine/weights/check.h"
#include "engine/weights/mapping.h"
#include "engine/weights/place.h"

static void load_later(kin_weights *w) {
    kin_weights_fill_later(w);
    pthread_mutex_lock(&w->mutex);
    w->has_arrived = !w->has_failed;
    pthread_mutex_unlock(&w->mutex);
}

static void *run_packer(void *arg) {
    kin_weights *w = arg;
    if (w->has_later) load_later(w);
    if (w->has_failed || !w->packed) return NULL; // no other thread sets it any more
    if (kin_weights_has_dirty(w)) kin_weights_finish_cache(w);
    kin_weights_check_behind(w);
    return NULL;
}

int kin_weights_start_packer(kin_weights *w, kin_err *err) {
    bool has_work = w->packed && (kin_weights_has_dirty(w) || kin_weights_has_unchecked(w));
    if (!w->has_later && !has_work) return 0;
    w->finishing = pthread_create(&w->packer, NULL, run_packer, w) == 0;
    return w->finishing || !w->has_later ? 0 : kin_err_set(err, "cannot start the thread that loads the remaining weights");
}

void kin_weights_stop_packer(kin_weights *w) {
    if (!w->finishing) return;
    atomic_store(&w->closing, true);
    if (w->has_later) w->o.arrival->leave(w->o.arrival->user);
    pthread_join(w->packer, NULL);
    w->finishing = false;
}

// A failure of any block also fails those that are not here yet, since nothing more will arrive.
static int await_here(kin_weights *w, const kin_weights_block *b, kin_err *err) {
    if (atomic_load(&b->here)) return 0;
    pthread_mutex_lock(&w->mutex);
    kin_busy_begin(&w->waiting, kin_clock_now());
    while (!atomic_load(&b->here) && !w->has_failed) pthread_cond_wait(&w->changed, &w->mutex);
    kin_busy_end(&w->waiting, kin_clock_now());
    bool is_here = atomic_load(&b->here);
    if (!is_here) *err = w->failure;
    pthread_mutex_unlock(&w->mutex);
    return is_here ? 0 : KIN_FAIL;
}

int kin_weights_acquire_arriving(kin_weights *w, int i_compute_block, kin_err *err) {
    for (size_t i = 0; i < w->n_blocks; i++) {
        kin_weights_block *b = &w->blocks[i];
        if (b->i_compute_block != i_compute_block || b->device->is_gpu) continue;
        if (await_here(w, b, err) != 0 || kin_weights_unpack_if_lost(w, b, err) != 0) return KIN_FAIL;
        if (b->pack && kin_weights_check(w, b, b->base, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Weights that must stream cannot stay in memory.
void kin_weights_release_arriving(kin_weights *w, int i_compute_block) {
    for (size_t i = 0; i < w->n_blocks && w->must_stream; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (b->i_compute_block == i_compute_block && !b->device->is_gpu) kin_weights_drop_pages(w, b);
    }
}
