// The pages of a device's KV cache, kept on its disk and taken from there (engine/kv_store.h), as the head asks for them.
//
// Owner and thread: the shard's.
#pragma once

#include "engine/kv.h"
#include "engine/kv_store.h"

typedef struct kin_kv_pages kin_kv_pages;

// Of the cache; pages of another variant are not found.
int kin_kv_pages_open(kin_kv_pages **out, const kin_kv *kv, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES],
                      kin_err *err);
// Waits until what was kept is written, for some seconds at most. NULL is allowed.
void kin_kv_pages_close(kin_kv_pages *pages);

// How many of the first pages of the request are as they should be: kept, or found and now in the cache. One that cannot be
// used is no failure. KIN_FAIL: the sequence has not those pages to keep, or cannot have those to take. pages NULL: none is
// kept or found, but the sequence has those that were to be taken.
int kin_kv_pages_take(kin_kv_pages *pages, kin_kv *kv, const kin_page_request *request, kin_err *err);
