// Whether the cache file's units can be trusted (engine/packed.h says when they must be checked).
//
// Units that stay in memory are checked against their hash before they are mapped: their bytes are read once for that, and are
// needed at once anyway. Where not all fit, a unit is checked when it is first acquired, in the ring or in its mapping.
// Experts are fetched by need, never as a whole: a background thread checks them, past the page cache.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/weights_impl.h"
#include "sys/background.h"

uint64_t kin_weights_source_hash(const kin_weights_unit *u) {
    uint64_t hash = 0;
    for (int i = 0; i < u->n_pieces; i++) hash = kin_packed_hash(u->pieces[i].data, u->pieces[i].bytes, hash);
    return hash;
}

static void say_other(kin_weights *w) {
    if (atomic_exchange(&w->said_other, true)) return;
    kin_log(KIN_LOG_WARN, "%s: has other weights than those that were packed: they are packed again",
            kin_gguf_file_path(w->model->gguf, 0));
}

static void say_damaged(kin_weights *w, bool was_used) {
    if (atomic_exchange(&w->said_damaged, true)) return;
    kin_log(KIN_LOG_WARN, "%s: was damaged; its weights are packed again%s", kin_packed_path(w->packed),
            was_used ? "; the text so far may be wrong: ask again" : "");
}

bool kin_weights_trust(kin_weights *w, kin_weights_unit *u) {
    if (!kin_packed_is_current(w->packed, u->i_packed) && !kin_packed_renew(w->packed, u->i_packed, kin_weights_source_hash(u))) {
        say_other(w);
        return false;
    }
    u->unchecked = !kin_packed_is_checked(w->packed, u->i_packed);
    if (!u->unchecked) return true;
    if (w->must_stream) {
        if (!u->experts) atomic_fetch_add(&w->n_to_check, 1);
        return true;
    }
    u->unchecked = false;
    if (kin_packed_check(w->packed, u->i_packed, NULL) == KIN_PACKED_SOUND) return true;
    say_damaged(w, false);
    return false;
}

static int mend(kin_weights *w, kin_weights_unit *u, const uint8_t *at, kin_err *err) {
    say_damaged(w, false);
    uint8_t *fresh = malloc(u->packed_bytes);
    if (!fresh) return kin_err_set(err, "out of memory");
    kin_weights_pack(u, fresh);
    int rc = kin_packed_mend(w->packed, u->i_packed, fresh, kin_weights_source_hash(u), err);
    if (rc == 0 && at != u->base) memcpy((uint8_t *)at, fresh, u->packed_bytes); // the ring is ours to write to
    free(fresh);
    kin_weights_point_at_mapping(u);
    return rc == 0 ? 0 : kin_err_prefix(err, "the prepacked weights are damaged and cannot be packed again now");
}

int kin_weights_check(kin_weights *w, kin_weights_unit *u, const uint8_t *at, kin_err *err) {
    if (atomic_load(&u->damaged)) {
        if (mend(w, u, at, err) != 0) return KIN_FAIL;
        atomic_store(&u->damaged, false);
        atomic_fetch_sub(&w->n_to_check, 1);
    }
    if (u->experts || !u->unchecked) return 0;
    if (kin_packed_check(w->packed, u->i_packed, at) != KIN_PACKED_SOUND && mend(w, u, at, err) != 0) return KIN_FAIL;
    u->unchecked = false;
    atomic_fetch_sub(&w->n_to_check, 1);
    return 0;
}

bool kin_weights_has_unchecked(const kin_weights *w) {
    for (size_t i = 0; i < w->n_units; i++) {
        if (w->units[i].experts && w->units[i].unchecked) return true;
    }
    return false;
}

void kin_weights_check_behind(kin_weights *w) {
    kin_background_thread();
    for (size_t i = 0; i < w->n_units && !atomic_load(&w->closing); i++) {
        kin_weights_unit *u = &w->units[i];
        if (!u->experts || !u->unchecked) continue; // the others are the computing thread's
        if (kin_packed_check_behind(w->packed, u->i_packed, &w->closing) != KIN_PACKED_DAMAGED) continue;
        say_damaged(w, true);
        atomic_store(&u->damaged, true);
        atomic_fetch_add(&w->n_to_check, 1);
    }
}
