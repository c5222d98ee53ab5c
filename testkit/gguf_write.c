#include "testkit/gguf_write.h"

#include <errno.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

#define ALIGNMENT_DEFAULT 32
#define CHUNK_BYTES (1u << 20) // tensor data requested from a fill callback at once, unless a row is larger

typedef struct buffer {
    uint8_t *at; // [size]
    size_t size, capacity;
} buffer;

typedef struct tensor {
    char *name;
    int type, n_dims;
    int64_t ne[KIN_GGUF_MAX_DIMS];
    const uint8_t *data; // or NULL: fill
    kin_gguf_fill fill;
    void *user;
} tensor;

struct kin_gguf_writer {
    uint32_t alignment;
    bool hollow;
    buffer meta; // entries in file format
    uint64_t n_meta;
    tensor *tensors; // [n_tensors]
    size_t n_tensors;
};

// Bytes

static uint8_t *grow(buffer *b, size_t n) {
    if (b->size + n > b->capacity) {
        b->capacity = 2 * (b->size + n);
        b->at = realloc(b->at, b->capacity);
        kin_assert(b->at);
    }
    b->size += n;
    return b->at + b->size - n;
}

static void put_bytes(buffer *b, const void *bytes, size_t n) {
    if (n) memcpy(grow(b, n), bytes, n);
}

static void put_u32(buffer *b, uint32_t v) {
    kin_put_u32(grow(b, 4), v);
}

static void put_u64(buffer *b, uint64_t v) {
    kin_put_u64(grow(b, 8), v);
}

static void put_str(buffer *b, const char *text) {
    put_u64(b, strlen(text));
    put_bytes(b, text, strlen(text));
}

static size_t kind_size(kin_gguf_kind kind) {
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return sizes[kind];
}

// New, free

kin_gguf_writer *kin_gguf_writer_new(void) {
    kin_gguf_writer *w = calloc(1, sizeof *w);
    kin_assert(w);
    w->alignment = ALIGNMENT_DEFAULT;
    return w;
}

void kin_gguf_writer_free(kin_gguf_writer *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_tensors; i++) free(w->tensors[i].name);
    free(w->tensors);
    free(w->meta.at);
    free(w);
}

// Metadata

static void put_key(buffer *b, const char *key, kin_gguf_kind kind) {
    put_str(b, key);
    put_u32(b, kind);
}

static void put_int(buffer *b, const char *key, kin_gguf_kind kind, int64_t value) {
    uint8_t bytes[8];
    kin_put_u64(bytes, (uint64_t)value);
    put_key(b, key, kind);
    put_bytes(b, bytes, kind_size(kind));
}

void kin_gguf_writer_align(kin_gguf_writer *w, uint32_t alignment) {
    kin_assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    w->alignment = alignment;
    kin_gguf_writer_put_int(w, "general.alignment", KIN_GGUF_U32, alignment);
}

void kin_gguf_writer_hollow(kin_gguf_writer *w) {
    w->hollow = true;
}

void kin_gguf_writer_put_int(kin_gguf_writer *w, const char *key, kin_gguf_kind kind, int64_t value) {
    kin_assert(kind_size(kind) > 0 && kind != KIN_GGUF_F32 && kind != KIN_GGUF_F64);
    put_int(&w->meta, key, kind, value);
    w->n_meta++;
}

void kin_gguf_writer_put_float(kin_gguf_writer *w, const char *key, kin_gguf_kind kind, double value) {
    kin_assert(kind == KIN_GGUF_F32 || kind == KIN_GGUF_F64);
    float narrow = (float)value;
    uint32_t bits32;
    uint64_t bits64;
    memcpy(&bits32, &narrow, sizeof bits32);
    memcpy(&bits64, &value, sizeof bits64);
    put_key(&w->meta, key, kind);
    if (kind == KIN_GGUF_F32) {
        put_u32(&w->meta, bits32);
    } else {
        put_u64(&w->meta, bits64);
    }
    w->n_meta++;
}

void kin_gguf_writer_put_str(kin_gguf_writer *w, const char *key, const char *text) {
    put_key(&w->meta, key, KIN_GGUF_STRING);
    put_str(&w->meta, text);
    w->n_meta++;
}

void kin_gguf_writer_put_array(kin_gguf_writer *w, const char *key, kin_gguf_kind kind, uint64_t n, const void *elements) {
    kin_assert(kind_size(kind) > 0);
    put_key(&w->meta, key, KIN_GGUF_ARRAY);
    put_u32(&w->meta, kind);
    put_u64(&w->meta, n);
    put_bytes(&w->meta, elements, (size_t)n * kind_size(kind));
    w->n_meta++;
}

void kin_gguf_writer_put_strs(kin_gguf_writer *w, const char *key, uint64_t n, const char *const *texts) {
    put_key(&w->meta, key, KIN_GGUF_ARRAY);
    put_u32(&w->meta, KIN_GGUF_STRING);
    put_u64(&w->meta, n);
    for (uint64_t i = 0; i < n; i++) put_str(&w->meta, texts[i]);
    w->n_meta++;
}

// Tensors

static tensor *add(kin_gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne) {
    kin_assert(n_dims >= 1 && n_dims <= KIN_GGUF_MAX_DIMS);
    w->tensors = realloc(w->tensors, (w->n_tensors + 1) * sizeof *w->tensors);
    kin_assert(w->tensors);
    tensor *t = &w->tensors[w->n_tensors++];
    *t = (tensor){.name = strdup(name), .type = type, .n_dims = n_dims};
    kin_assert(t->name);
    for (int i = 0; i < KIN_GGUF_MAX_DIMS; i++) t->ne[i] = i < n_dims ? ne[i] : 1;
    return t;
}

void kin_gguf_writer_add(kin_gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne, const void *data) {
    add(w, name, type, n_dims, ne)->data = data;
}

void kin_gguf_writer_add_filled(kin_gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne, kin_gguf_fill fill,
                                void *user) {
    tensor *t = add(w, name, type, n_dims, ne);
    t->fill = fill;
    t->user = user;
}

static size_t row_bytes(const tensor *t) {
    return ggml_row_size((enum ggml_type)t->type, t->ne[0]);
}

static uint64_t n_rows(const tensor *t) {
    return (uint64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

static uint64_t align_up(uint64_t n, uint32_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

// Writing. Errors of the stream are sticky and checked once, at the end.

// The tensors that go into one file, and that file's metadata besides the model's own.
typedef struct part {
    size_t begin, end; // tensors [begin, end)
    int no, n_parts;   // n_parts 0: not split
} part;

static void write_zeros(FILE *out, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) putc(0, out);
}

static void write_head(const kin_gguf_writer *w, const part *p, FILE *out) {
    buffer head = {0};
    bool says_alignment = p->no > 0 && w->alignment != ALIGNMENT_DEFAULT; // the first part has it in the metadata
    uint64_t n_meta = (p->no == 0 ? w->n_meta : 0) + says_alignment + (p->n_parts ? 3 : 0);
    put_bytes(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, p->end - p->begin);
    put_u64(&head, n_meta);
    if (p->no == 0) put_bytes(&head, w->meta.at, w->meta.size);
    if (says_alignment) put_int(&head, "general.alignment", KIN_GGUF_U32, w->alignment);
    if (p->n_parts) {
        put_int(&head, "split.no", KIN_GGUF_U16, p->no);
        put_int(&head, "split.count", KIN_GGUF_U16, p->n_parts);
        put_int(&head, "split.tensors.count", KIN_GGUF_I32, (int64_t)w->n_tensors);
    }
    uint64_t offset = 0;
    for (size_t i = p->begin; i < p->end; i++) {
        const tensor *t = &w->tensors[i];
        put_str(&head, t->name);
        put_u32(&head, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) put_u64(&head, (uint64_t)t->ne[d]);
        put_u32(&head, (uint32_t)t->type);
        put_u64(&head, offset);
        offset = align_up(offset + n_rows(t) * row_bytes(t), w->alignment);
    }
    fwrite(head.at, 1, head.size, out);
    write_zeros(out, align_up(head.size, w->alignment) - head.size);
    free(head.at);
}

static void write_filled(const tensor *t, FILE *out) {
    uint64_t rows = n_rows(t), step = CHUNK_BYTES / row_bytes(t);
    if (step == 0) step = 1;
    uint8_t *chunk = malloc(step * row_bytes(t));
    kin_assert(chunk);
    for (uint64_t begin = 0; begin < rows && !ferror(out); begin += step) {
        uint64_t n = rows - begin < step ? rows - begin : step;
        t->fill(t->user, begin, n, chunk);
        fwrite(chunk, row_bytes(t), n, out);
    }
    free(chunk);
}

static void write_part(const kin_gguf_writer *w, const part *p, FILE *out) {
    write_head(w, p, out);
    for (size_t i = p->begin; i < p->end; i++) {
        const tensor *t = &w->tensors[i];
        uint64_t n_bytes = n_rows(t) * row_bytes(t);
        if (t->data) {
            fwrite(t->data, 1, n_bytes, out);
        } else {
            write_filled(t, out);
        }
        write_zeros(out, align_up(n_bytes, w->alignment) - n_bytes);
    }
}

static int write_hollow(const kin_gguf_writer *w, const part *p, FILE *out) {
    uint64_t end = 0;
    write_head(w, p, out);
    for (size_t i = p->begin; i < p->end; i++) end += align_up(n_rows(&w->tensors[i]) * row_bytes(&w->tensors[i]), w->alignment);
    return fflush(out) != 0 || ftruncate(fileno(out), (off_t)((uint64_t)ftello(out) + end)) != 0 ? KIN_FAIL : 0;
}

static int save_part(const kin_gguf_writer *w, const part *p, const char *path, kin_err *err) {
    FILE *out = fopen(path, "wb");
    int failed = 0;
    if (!out) return kin_err_set(err, "%s: %s", path, strerror(errno));
    if (w->hollow)
        failed = write_hollow(w, p, out);
    else
        write_part(w, p, out);
    failed = failed || ferror(out);
    if (fclose(out) != 0 || failed) return kin_err_set(err, "%s: cannot write: %s", path, strerror(errno));
    return 0;
}

int kin_gguf_writer_save(const kin_gguf_writer *w, const char *path, kin_err *err) {
    part all = {.end = w->n_tensors};
    return save_part(w, &all, path, err);
}

void kin_gguf_writer_save_bytes(const kin_gguf_writer *w, uint8_t **bytes, size_t *size) {
    part all = {.end = w->n_tensors};
    char *at = NULL;
    FILE *out = open_memstream(&at, size);
    kin_assert(out);
    write_part(w, &all, out);
    kin_assert(!ferror(out) && fclose(out) == 0);
    *bytes = (uint8_t *)at;
}

int kin_gguf_writer_save_split(const kin_gguf_writer *w, const char *prefix, int n_parts, kin_err *err) {
    kin_assert(n_parts >= 1 && n_parts <= 99999);
    size_t path_size = strlen(prefix) + sizeof "-00001-of-00003.gguf" + 20;
    char *path = malloc(path_size);
    kin_assert(path);
    int result = 0;
    for (int no = 0; no < n_parts && result == 0; no++) {
        part p = {.no = no, .n_parts = n_parts};
        p.begin = w->n_tensors * (size_t)no / (size_t)n_parts;
        p.end = w->n_tensors * (size_t)(no + 1) / (size_t)n_parts;
        snprintf(path, path_size, "%s-%05d-of-%05d.gguf", prefix, no + 1, n_parts);
        result = save_part(w, &p, path, err);
    }
    free(path);
    return result;
}
