#include "model/name_index.h"

#include <stdlib.h>
#include <string.h>

static int compare_text(const kin_name *a, const kin_name *b) {
    size_t shorter = a->len < b->len ? a->len : b->len;
    int order = shorter ? memcmp(a->at, b->at, shorter) : 0;
    if (order) return order;
    return (a->len > b->len) - (a->len < b->len);
}

static int compare_names(const void *pa, const void *pb) {
    const kin_name *a = pa, *b = pb;
    int order = compare_text(a, b);
    return order ? order : (a->i > b->i) - (a->i < b->i);
}

static int compare_to_key(const void *key, const void *element) {
    return compare_text(key, element);
}

void kin_name_index_init(kin_name_index *index, kin_name *names, size_t n) {
    *index = (kin_name_index){.sorted = names, .n = n};
    if (n > 1) qsort(names, n, sizeof *names, compare_names);
}

void kin_name_index_fini(kin_name_index *index) {
    free(index->sorted);
    *index = (kin_name_index){0};
}

const kin_name *kin_name_index_find(const kin_name_index *index, const char *text, size_t len) {
    if (index->n == 0) return NULL;
    kin_name key = {.at = text, .len = len};
    return bsearch(&key, index->sorted, index->n, sizeof *index->sorted, compare_to_key);
}

const kin_name *kin_name_index_duplicate(const kin_name_index *index) {
    for (size_t i = 1; i < index->n; i++) {
        if (compare_text(&index->sorted[i - 1], &index->sorted[i]) == 0) return &index->sorted[i];
    }
    return NULL;
}
