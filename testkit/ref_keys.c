#include "testkit/ref_keys.h"

#include <limits.h>
#include <stdio.h>

enum { KEY_MAX = 80 };

static const char *key_of(const kin_ref_keys *k, const char *name, char key[KEY_MAX]) {
    snprintf(key, KEY_MAX, "%s.%s", k->family, name);
    return key;
}

int kin_ref_get_int(const kin_ref_keys *k, const char *name, int absent, int *value) {
    char key[KEY_MAX];
    uint32_t read = (uint32_t)absent;
    if (kin_gguf_get_u32(k->gguf, key_of(k, name, key), &read, k->err) < 0) return KIN_FAIL;
    if (read > INT_MAX) return kin_err_set(k->err, "%s: %u is too large", key, (unsigned)read);
    *value = (int)read;
    return 0;
}

int kin_ref_get_float(const kin_ref_keys *k, const char *name, float absent, float *value) {
    char key[KEY_MAX];
    *value = absent;
    return kin_gguf_get_f32(k->gguf, key_of(k, name, key), value, k->err) < 0 ? KIN_FAIL : 0;
}

int kin_ref_get_bool(const kin_ref_keys *k, const char *name, bool absent, bool *value) {
    char key[KEY_MAX];
    *value = absent;
    return kin_gguf_get_bool(k->gguf, key_of(k, name, key), value, k->err) < 0 ? KIN_FAIL : 0;
}

int kin_ref_get_str(const kin_ref_keys *k, const char *name, kin_str absent, kin_str *value) {
    char key[KEY_MAX];
    *value = absent;
    return kin_gguf_get_str(k->gguf, key_of(k, name, key), value, k->err) < 0 ? KIN_FAIL : 0;
}

// Gets element il of an array of numbers. Returns false if the key is no array that has it.
static bool get_at(const kin_ref_keys *k, const char *name, int il, double *value) {
    char key[KEY_MAX];
    kin_err ignored;
    kin_gguf_array array;
    if (kin_gguf_get_array(k->gguf, key_of(k, name, key), &array, &ignored) != 0) return false;
    if ((uint64_t)il >= array.n || kin_gguf_kind_size(array.kind) == 0) return false;
    *value = kin_gguf_array_f64(&array, (uint64_t)il);
    return true;
}

int kin_ref_get_int_at(const kin_ref_keys *k, const char *name, int il, int absent, int *value) {
    double read;
    if (!get_at(k, name, il, &read)) return kin_ref_get_int(k, name, absent, value);
    if (!(read >= 0 && read <= INT_MAX)) return kin_err_set(k->err, "%s: %g for layer %d", name, read, il);
    *value = (int)read;
    return 0;
}

int kin_ref_get_float_at(const kin_ref_keys *k, const char *name, int il, float absent, float *value) {
    double read;
    if (!get_at(k, name, il, &read)) return kin_ref_get_float(k, name, absent, value);
    *value = (float)read;
    return 0;
}

uint64_t kin_ref_get_u64_at(const kin_ref_keys *k, const char *name, int i) {
    char key[KEY_MAX];
    kin_err ignored;
    kin_gguf_array array;
    if (kin_gguf_get_array(k->gguf, key_of(k, name, key), &array, &ignored) != 0 || (uint64_t)i >= array.n) return 0;
    return array.kind == KIN_GGUF_U64 || array.kind == KIN_GGUF_I32 || array.kind == KIN_GGUF_U32
               ? (uint64_t)kin_gguf_array_i64(&array, (uint64_t)i)
               : 0;
}
