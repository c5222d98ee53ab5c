// Opens any bytes as a model file. kin_gguf must open or refuse them, and everything that it then returns must be readable.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static volatile uint8_t touched;

static void touch(const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) touched = (uint8_t)(touched + ((const uint8_t *)bytes)[i]);
}

static void touch_array(const kin_gguf_array *array) {
    const uint8_t *cursor = array->at;
    for (uint64_t i = 0; i < array->n; i++) {
        if (array->kind == KIN_GGUF_STRING) {
            kin_str s = kin_gguf_array_next_str(&cursor);
            touch(s.at, s.len);
        } else {
            touched = (uint8_t)(touched + (kin_gguf_array_f64(array, i) > 0));
            if (array->kind != KIN_GGUF_F32 && array->kind != KIN_GGUF_F64) (void)kin_gguf_array_i64(array, i);
        }
    }
}

static void touch_meta(const kin_gguf *gguf, size_t i) {
    char text[80];
    kin_str name = kin_gguf_meta_key(gguf, i);
    char *key = strndup(name.at, name.len);
    uint32_t u;
    float f;
    bool b;
    kin_str s;
    kin_gguf_array array;
    kin_err err;
    if (!key) return;
    kin_gguf_meta_text(gguf, i, text, 1 + i % sizeof text);
    int n_kinds = 0; // a value is of exactly one kind; an integer may be out of range
    n_kinds += kin_gguf_get_u32(gguf, key, &u, &err) == 0;
    n_kinds += kin_gguf_get_f32(gguf, key, &f, &err) == 0;
    n_kinds += kin_gguf_get_bool(gguf, key, &b, &err) == 0;
    if (kin_gguf_get_str(gguf, key, &s, &err) == 0) {
        n_kinds++;
        touch(s.at, s.len);
    }
    if (kin_gguf_get_array(gguf, key, &array, &err) == 0) {
        n_kinds++;
        touch_array(&array);
    }
    kin_assert(n_kinds <= 1);
    free(key);
}

static void touch_tensor(const kin_gguf *gguf, size_t i) {
    const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
    char *name = strndup(t->name.at, t->name.len);
    if (!name) return;
    kin_assert(kin_gguf_find_tensor(gguf, name) == t);
    kin_assert(t->n_dims >= 1 && t->n_dims <= KIN_GGUF_MAX_DIMS && t->n_bytes > 0);
    kin_assert(t->offset + t->n_bytes <= kin_gguf_file_size(gguf, t->i_file));
    touch(t->data, 1);
    touch(t->data + t->n_bytes - 1, 1);
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kin_gguf *gguf;
    kin_err err = {""};
    if (kin_gguf_open_bytes(&gguf, "fuzz.gguf", bytes, size, &err) != 0) {
        kin_assert(strncmp(err.text, "fuzz.gguf: ", strlen("fuzz.gguf: ")) == 0);
        return 0;
    }
    for (size_t i = 0; i < kin_gguf_n_meta(gguf); i++) touch_meta(gguf, i);
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) touch_tensor(gguf, i);
    kin_gguf_close(gguf);
    return 0;
}
