// A browser is a member of a ring; the layer that needs rows of the file is at the head.
#include "engine/row_cache.h"

int kin_row_cache_open(kin_row_cache **out, const kin_gguf *gguf, const kin_gguf_tensor *table, kin_err *err) {
    (void)gguf, (void)table;
    *out = NULL;
    return kin_err_set(err, "a browser cannot read single rows of the model's file");
}

void kin_row_cache_close(kin_row_cache *cache) {
    (void)cache;
}

uint64_t kin_row_cache_bytes(int width) {
    (void)width;
    return 0;
}

int kin_row_cache_read(kin_row_cache *cache, const uint64_t *rows, size_t n, float *to, kin_err *err) {
    (void)cache, (void)rows, (void)n, (void)to;
    return kin_err_set(err, "a browser cannot read single rows of the model's file");
}
