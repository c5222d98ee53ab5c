#include "ring/stock.h"

#include <stdlib.h>

struct kin_stock {
    uv_work_t work;
    uv_loop_t *loop;
    kin_store *store;
    int n_holders;
};

int kin_stock_new(kin_stock **out, uv_loop_t *loop, kin_store *store, kin_err *err) {
    kin_stock *s = *out = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    *s = (kin_stock){.work = {.data = s}, .loop = loop, .store = store, .n_holders = 1};
    return 0;
}

kin_stock *kin_stock_hold(kin_stock *s) {
    s->n_holders++;
    return s;
}

static void close_store(uv_work_t *work) {
    kin_store_close(((kin_stock *)work->data)->store);
}

static void on_closed(uv_work_t *work, int status) {
    (void)status;
    free(work->data);
}

void kin_stock_let_go(kin_stock *s) {
    if (!s) return;
    kin_assert(s->n_holders > 0);
    if (--s->n_holders > 0) return;
    uv_queue_work(s->loop, &s->work, close_store, on_closed);
}

kin_store *kin_stock_store(const kin_stock *s) {
    return s->store;
}
