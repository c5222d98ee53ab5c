#include "libc.h"

// Each is one instruction (bulk memory).
void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    return __builtin_memcpy(to, from, n);
}
void *memmove(void *to, const void *from, size_t n) {
    return __builtin_memmove(to, from, n);
}
void *memset(void *to, int value, size_t n) {
    return __builtin_memset(to, value, n);
}

int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *p = a, *q = b;
    for (; n && *p == *q; n--, p++, q++) continue;
    return n ? *p - *q : 0;
}

void *memchr(const void *p, int c, size_t n) {
    const unsigned char *at = p;
    for (; n; n--, at++)
        if (*at == (unsigned char)c) return (void *)at;
    return NULL;
}

size_t strlen(const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    return n;
}

size_t strnlen(const char *s, size_t most) {
    size_t n = 0;
    while (n < most && s[n]) n++;
    return n;
}

int strncmp(const char *a, const char *b, size_t n) {
    for (; n && *a == *b && *a; n--, a++, b++) continue;
    return n ? (unsigned char)*a - (unsigned char)*b : 0;
}

int strcmp(const char *a, const char *b) {
    return strncmp(a, b, SIZE_MAX);
}

char *strchr(const char *s, int c) {
    for (;; s++) {
        if (*s == (char)c) return (char *)s;
        if (!*s) return NULL;
    }
}

char *strrchr(const char *s, int c) {
    char *found = NULL;
    for (; (s = strchr(s, c)); s++) {
        found = (char *)s;
        if (!c) break;
    }
    return found;
}

char *strpbrk(const char *s, const char *accept) {
    for (; *s; s++)
        if (strchr(accept, *s)) return (char *)s;
    return NULL;
}

char *strcat(char *restrict to, const char *restrict from) {
    memcpy(to + strlen(to), from, strlen(from) + 1);
    return to;
}

char *strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = malloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

char *getenv(const char *name) {
    (void)name;
    return NULL;
}

static void swap(unsigned char *a, unsigned char *b, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

// Sifts the element at `root` down in the heap of n.
static void sink(unsigned char *base, size_t root, size_t n, size_t size, int (*compare)(const void *, const void *)) {
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && compare(base + child * size, base + (child + 1) * size) < 0) child++;
        if (compare(base + root * size, base + child * size) >= 0) return;
        swap(base + root * size, base + child * size, size);
    }
}

// Heap sort: no quadratic worst case.
void qsort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b)) {
    for (size_t i = n / 2; i-- > 0;) sink(base, i, n, size, compare);
    for (size_t i = n; i-- > 1;) {
        swap(base, (unsigned char *)base + i * size, size);
        sink(base, 0, i, size, compare);
    }
}

void *bsearch(const void *key, const void *base, size_t n, size_t size, int (*compare)(const void *key, const void *element)) {
    const unsigned char *at = base;
    while (n) {
        const unsigned char *middle = at + n / 2 * size;
        int order = compare(key, middle);
        if (order == 0) return (void *)middle;
        if (order > 0) {
            at = middle + size;
            n -= n / 2 + 1;
        } else {
            n /= 2;
        }
    }
    return NULL;
}
