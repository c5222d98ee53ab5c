// A keeper: checks chunks that came from others and writes them to a stock's store, in libuv's thread pool, so many at a time and
// the others in the order in which they came.
//
// Owner: who opened it. Thread: the loop's, for every function and callback.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "ring/stock.h"

typedef struct kin_keeper kin_keeper;

// reason: for WRONG and FAILED. The keeper may be closed inside.
typedef void (*kin_keeper_kept)(void *user, int sender, uint32_t i_chunk, kin_store_result result, const char *reason);

// Holds the stock until nothing is under way any more.
int kin_keeper_open(kin_keeper **out, uv_loop_t *loop, kin_stock *stock, kin_keeper_kept kept, void *user, kin_err *err);

// What waits is dropped; what is being written is, and nobody is told. NULL is allowed.
void kin_keeper_close(kin_keeper *keeper);

// Takes the bytes over // u8 [n], from malloc. sender: any number, told to `kept`. Fails only if out of memory.
int kin_keeper_put(kin_keeper *keeper, int sender, uint32_t i_chunk, uint8_t *bytes, uint32_t n, kin_err *err);

// Whether something of that sender is not kept yet.
bool kin_keeper_has_from(const kin_keeper *keeper, int sender);
