#include "fetch/chunk_store.h"

#include <stdlib.h>

struct kin_chunk_store {
    uv_work_t work;
    uv_loop_t *loop;
    kin_store *store;
    bool *is_private; // [n_chunks]; NULL: none
    int n_holders;
};

int kin_chunk_store_new(kin_chunk_store **out, uv_loop_t *loop, kin_store *store, kin_err *err) {
    kin_chunk_store *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    *s = (kin_chunk_store){.work = {.data = s}, .loop = loop, .store = store, .n_holders = 1};
    return 0;
}

kin_chunk_store *kin_chunk_store_hold(kin_chunk_store *s) {
    s->n_holders++;
    return s;
}

static void close_store(uv_work_t *work) {
    kin_store_close(((kin_chunk_store *)work->data)->store);
}

static void on_store_closed(uv_work_t *work, int status) {
    kin_chunk_store *s = work->data;
    (void)status;
    free(s->is_private);
    free(s);
}

void kin_chunk_store_release(kin_chunk_store *s) {
    if (!s) return;
    kin_assert(s->n_holders > 0);
    if (--s->n_holders > 0) return;
    uv_queue_work(s->loop, &s->work, close_store, on_store_closed);
}

kin_store *kin_chunk_store_store(const kin_chunk_store *s) {
    return s->store;
}

void kin_chunk_store_set_private(kin_chunk_store *s, bool *is_private) {
    free(s->is_private);
    s->is_private = is_private;
}

bool kin_chunk_store_withholds(const kin_chunk_store *s, uint32_t i_chunk) {
    return s->is_private && s->is_private[i_chunk];
}
