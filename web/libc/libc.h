// The part of the C library that kin's engine uses, for WebAssembly without an operating system: the standard headers beside this
// one include it.
//
// Memory functions (malloc and related) are for the module's main thread only; everything else is for any thread.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

// stdlib.h
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
void *aligned_alloc(size_t alignment, size_t n);
void free(void *p);
_Noreturn void abort(void);
char *getenv(const char *name);              // a page has no environment: returns NULL
double strtod(const char *text, char **end); // only declared: code that refers to it is never called
void qsort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));
void *bsearch(const void *key, const void *base, size_t n, size_t size, int (*compare)(const void *key, const void *element));

// string.h
void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
int memcmp(const void *a, const void *b, size_t n);
void *memchr(const void *p, int c, size_t n);
size_t strlen(const char *s);
size_t strnlen(const char *s, size_t most);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t n);
char *strchr(const char *s, int c);
char *strrchr(const char *s, int c);
char *strpbrk(const char *s, const char *accept);
char *strcat(char *restrict to, const char *restrict from);
char *strdup(const char *s);

// stdio.h. Formats: %% %c %s %d %i %u %x %lld %llu %zu %ld %lu %f %g, with width, precision and 0.
typedef struct FILE FILE;
extern FILE *const stderr;
int snprintf(char *to, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int vsnprintf(char *to, size_t n, const char *fmt, va_list args);
int fprintf(FILE *file, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // a line in the browser's console

// math.h
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define isnan(x) __builtin_isnan(x)
#define isfinite(x) __builtin_isfinite(x)
#define isinf(x) __builtin_isinf(x)
#define floor(x) __builtin_floor(x)
#define ceil(x) __builtin_ceil(x)
#define fabs(x) __builtin_fabs(x)
#define fabsf(x) __builtin_fabsf(x)
#define sqrt(x) __builtin_sqrt(x)
#define sqrtf(x) __builtin_sqrtf(x)
double fmin(double a, double b);
double fmax(double a, double b);
double frexp(double x, int *exponent);
double ldexp(double x, int exponent);
