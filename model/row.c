#include "model/row.h"

#include <fcntl.h>
#include <ggml.h>
#include <string.h>

enum { PART_BYTES = 8 << 10 }; // bytes of a row read at once

// Reads the row in parts that consist of whole blocks.
int kin_row_read(const kin_gguf *gguf, const kin_gguf_tensor *t, uint64_t row, float *x, kin_err *err) {
    enum ggml_type type = (enum ggml_type)t->type;
    ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
    int64_t n_embd = t->ne[0], block = ggml_blck_size(type);
    int64_t part = PART_BYTES / (int64_t)ggml_type_size(type) * block;
    uint64_t at = row * ggml_row_size(type, n_embd);
    uint8_t bytes[PART_BYTES];

    for (int64_t done = 0; done < n_embd; done += part) {
        int64_t n = n_embd - done < part ? n_embd - done : part;
        size_t n_bytes = ggml_row_size(type, n);
        if (kin_gguf_read(gguf, t, at, bytes, n_bytes, err) != 0) return KIN_FAIL;
        if (type == GGML_TYPE_F32)
            memcpy(x + done, bytes, n_bytes);
        else
            to_float(bytes, x + done, n);
        at += n_bytes;
    }
    return 0;
}

void kin_row_prefetch(const kin_gguf *gguf, const kin_gguf_tensor *t, uint64_t row) {
#ifdef POSIX_FADV_WILLNEED
    const size_t bytes = ggml_row_size((enum ggml_type)t->type, t->ne[0]);
    if (kin_gguf_on_disk(gguf))
        posix_fadvise(kin_gguf_file_fd(gguf, t->i_file), (off_t)(t->offset + row * bytes), (off_t)bytes, POSIX_FADV_WILLNEED);
#else
    (void)gguf, (void)t, (void)row;
#endif
}
