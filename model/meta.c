#include "model/meta.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 128 };

static const char *full_key(const kin_meta *k, const char *key, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, "%s.%s", k->family, key);
    return name;
}

static void check_range(kin_meta *k, const char *name, int64_t value, int min, int max) {
    if (value < min || value > max)
        kin_meta_fail(k, "'%s' is %lld, but must be between %d and %d", name, (long long)value, min, max);
}

static int value_or_fallback(kin_meta *k, const char *name, int rc, int64_t value, int fallback, int min, int max) {
    if (rc == KIN_ABSENT && fallback != KIN_KEY_REQUIRED) return fallback;
    if (rc == KIN_ABSENT)
        kin_meta_fail(k, "the key '%s' is missing", name);
    else if (rc == 0)
        check_range(k, name, value, min, max);
    else
        k->failed = true;
    return k->failed ? 0 : (int)value;
}

int kin_meta_int(kin_meta *k, const char *key, int fallback, int min, int max) {
    char name[NAME_BYTES];
    uint32_t value = 0;
    if (k->failed) return 0;
    int rc = kin_gguf_get_u32(k->gguf, full_key(k, key, name), &value, k->err);
    return value_or_fallback(k, name, rc, value, fallback, min, max);
}

// Finds an array with one number per layer. Returns false if the key has no array.
static bool find_list(kin_meta *k, const char *name, kin_gguf_array *array) {
    kin_err ignored;
    if (kin_gguf_get_array(k->gguf, name, array, &ignored) != 0) return false;
    if (array->kind == KIN_GGUF_STRING || array->kind == KIN_GGUF_F32 || array->kind == KIN_GGUF_F64)
        kin_meta_fail(k, "'%s' must be an array of integers", name);
    else if (array->n != (uint64_t)k->n_layer)
        kin_meta_fail(k, "'%s' has %llu numbers for %d layers", name, (unsigned long long)array->n, k->n_layer);
    return true;
}

int kin_meta_int_at(kin_meta *k, const char *key, int il, int fallback, int min, int max) {
    char name[NAME_BYTES];
    kin_gguf_array array;
    if (k->failed) return 0;
    if (!find_list(k, full_key(k, key, name), &array)) return kin_meta_int(k, key, fallback, min, max);
    return k->failed ? 0 : value_or_fallback(k, name, 0, kin_gguf_array_i64(&array, (uint64_t)il), fallback, min, max);
}

uint64_t kin_meta_u64_at(kin_meta *k, const char *key, uint64_t i, uint64_t *n) {
    char name[NAME_BYTES];
    kin_gguf_array array;
    kin_err ignored;
    if (k->failed) return 0;
    if (kin_gguf_get_array(k->gguf, full_key(k, key, name), &array, &ignored) != 0) {
        *n = 1;
        return (uint64_t)kin_meta_int(k, key, KIN_KEY_REQUIRED, 0, INT32_MAX);
    }
    *n = array.n;
    if (array.kind == KIN_GGUF_STRING || array.kind == KIN_GGUF_F32 || array.kind == KIN_GGUF_F64)
        kin_meta_fail(k, "'%s' must be an array of integers", name);
    else if (i >= array.n)
        kin_meta_fail(k, "'%s' has %llu numbers, but number %llu is needed", name, (unsigned long long)array.n,
                      (unsigned long long)i + 1);
    return k->failed ? 0 : (uint64_t)kin_gguf_array_i64(&array, i);
}

int kin_meta_int_of_all(kin_meta *k, const char *key, int fallback, int min, int max) {
    int first = kin_meta_int_at(k, key, 0, fallback, min, max);
    for (int il = 1; il < k->n_layer; il++)
        if (kin_meta_int_at(k, key, il, fallback, min, max) != first)
            kin_meta_fail(k, "'%s.%s' differs between layers, which is not supported", k->family, key);
    return first;
}

float kin_meta_float(kin_meta *k, const char *key, float fallback, float min, float max) {
    char name[NAME_BYTES];
    float value = fallback;
    if (k->failed) return 0;
    int rc = kin_gguf_get_f32(k->gguf, full_key(k, key, name), &value, k->err);
    if (rc < 0 && rc != KIN_ABSENT)
        k->failed = true;
    else if (rc == 0 && !(value >= min && value <= max))
        kin_meta_fail(k, "'%s' is %g, but must be between %g and %g", name, (double)value, (double)min, (double)max);
    return k->failed ? 0 : value;
}

float kin_meta_float_at(kin_meta *k, const char *key, int il, float fallback, float min, float max) {
    char name[NAME_BYTES];
    kin_gguf_array array;
    if (k->failed) return 0;
    int rc = kin_gguf_get_array(k->gguf, full_key(k, key, name), &array, k->err);
    if (rc == KIN_ABSENT) return fallback;
    if (rc != 0 || array.kind != KIN_GGUF_F32 || array.n != (uint64_t)k->n_layer) {
        kin_meta_fail(k, "'%s' must be an array of %d numbers", name, k->n_layer);
        return 0;
    }
    float value = (float)kin_gguf_array_f64(&array, (uint64_t)il);
    if (!(value >= min && value <= max))
        kin_meta_fail(k, "'%s' contains %g, but must be between %g and %g", name, (double)value, (double)min, (double)max);
    return k->failed ? 0 : value;
}

bool kin_meta_bool(kin_meta *k, const char *key, bool fallback) {
    char name[NAME_BYTES];
    bool value = fallback;
    if (k->failed) return false;
    int rc = kin_gguf_get_bool(k->gguf, full_key(k, key, name), &value, k->err);
    k->failed = rc != 0 && rc != KIN_ABSENT;
    return value;
}

kin_str kin_meta_str(kin_meta *k, const char *key, const char *fallback) {
    char name[NAME_BYTES];
    kin_str value = {fallback, strlen(fallback)};
    if (k->failed) return value;
    int rc = kin_gguf_get_str(k->gguf, full_key(k, key, name), &value, k->err);
    k->failed = rc != 0 && rc != KIN_ABSENT;
    return value;
}

void kin_meta_routing(kin_meta *k, kin_routing *r, kin_gating gating, bool normalize) {
    // indexed by the key's value
    static const kin_gating gatings[] = {0, KIN_GATING_SOFTMAX, KIN_GATING_SIGMOID, KIN_GATING_CHOSEN, KIN_GATING_SOFTPLUS};
    int number = kin_meta_int(k, "expert_gating_func", 0, 0, 4);
    float scale = kin_meta_float(k, "expert_weights_scale", 0, 0, 1e6f);
    r->gating = number ? gatings[number] : gating;
    r->normalize = kin_meta_bool(k, "expert_weights_norm", normalize);
    r->scale = scale != 0 ? scale : 1;
    r->n_group = kin_meta_int(k, "expert_group_count", 0, 0, KIN_ROUTE_GROUPS);
    r->n_group_used = kin_meta_int(k, "expert_group_used_count", r->n_group, 0, r->n_group);
    if (!k->failed && r->n_group > 1 && (r->n_expert % r->n_group != 0 || r->n_group_used < 1))
        kin_meta_fail(k, "%d experts in %d groups with %d groups used: not possible", r->n_expert, r->n_group, r->n_group_used);
    if (!k->failed && r->n_group > 1 && r->n_used > r->n_expert / r->n_group * r->n_group_used)
        kin_meta_fail(k, "cannot choose %d experts from %d groups", r->n_used, r->n_group_used);
}

void kin_meta_fail(kin_meta *k, const char *format, ...) {
    kin_err text;
    va_list args;
    if (k->failed) return;
    va_start(args, format);
    vsnprintf(text.text, sizeof text.text, format, args);
    va_end(args);
    k->failed = kin_err_set(k->err, "%s", text.text) != 0;
}
