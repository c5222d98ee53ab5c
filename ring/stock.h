// A stock: a store of model parts (model/store.h) that several parts of a process use: the fetch that fills it (ring/fetch.h),
// the share that serves it (ring/share.h), and whoever runs the model from it. The last one that lets go closes the store, in
// libuv's thread pool, because that may wait for the disk.
//
// Everybody who keeps the pointer holds it once, and lets go once. The pools' threads use the store inside between the two.
//
// Thread: the loop's, for every function. The loop must run until it has nothing to do before it is closed.
#pragma once

#include <uv.h>

#include "base/err.h"
#include "model/store.h"

typedef struct kin_stock kin_stock;

// Takes over the store, held once. On failure the store stays the caller's.
int kin_stock_new(kin_stock **out, uv_loop_t *loop, kin_store *store, kin_err *err);

kin_stock *kin_stock_hold(kin_stock *stock); // returns it
void kin_stock_let_go(kin_stock *stock);     // NULL is allowed

// Valid while it is held.
kin_store *kin_stock_store(const kin_stock *stock);
