// Parses the bytes of one GGUF file into its metadata and tensor directory.
//
//   offset  size  field
//   0       4     magic "GGUF"
//   4       4     version (2 or 3)
//   8       8     n_tensors
//   16      8     n_kv
//   24            n_kv entries:      string key, u32 kind, value
//                 n_tensors entries: string name, u32 n_dims, u64 ne[n_dims], u32 type, u64 offset
//                 zeros up to a multiple of general.alignment (32 without that key)
//                 tensor data; each tensor at its offset from here, a multiple of the alignment
//
//   string = u64 length, bytes        array = u32 element kind, u64 n, elements        all little-endian
//
// The file is not trusted: every count is verified to fit into its bytes before memory is allocated for it or a loop runs over
// it, so that work and memory stay proportional to the file's size.
#include "model/gguf_parse.h"

#include <ggml.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define HEADER_BYTES 24
#define META_BYTES_MIN 13   // empty key, kind, one byte
#define TENSOR_BYTES_MIN 32 // empty name, one dimension
#define KEY_LEN_MAX 65535   // a limit of the format
#define NAME_LEN_MAX (GGML_MAX_NAME - 1)
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MAX (1u << 20)

// A cursor that never reads beyond the end.
typedef struct cursor {
    const uint8_t *bytes; // [n]
    uint64_t n;           // available bytes: the whole file, or its beginning
    uint64_t size;        // of the file
    uint64_t pos;         // <= n
    uint64_t need;        // end of the last read; if beyond n, it failed because these bytes are not available
} cursor;

static uint64_t left(const cursor *c) {
    return c->size - c->pos;
}

// Returns the next n bytes; NULL if the file has fewer, or they are not available.
static const uint8_t *next_bytes(cursor *c, uint64_t n) {
    if (n > left(c)) return NULL;
    c->need = c->pos + n;
    if (c->need > c->n) return NULL;
    const uint8_t *at = c->bytes + c->pos;
    c->pos += n;
    return at;
}

static bool read_u32(cursor *c, uint32_t *value) {
    const uint8_t *at = next_bytes(c, 4);
    if (at) *value = kin_get_u32(at);
    return at;
}

static bool read_u64(cursor *c, uint64_t *value) {
    const uint8_t *at = next_bytes(c, 8);
    if (at) *value = kin_get_u64(at);
    return at;
}

static bool read_str(cursor *c, kin_str *s) {
    uint64_t len;
    if (!read_u64(c, &len)) return false;
    const uint8_t *at = next_bytes(c, len);
    if (at) *s = (kin_str){.at = (const char *)at, .len = (size_t)len};
    return at;
}

// Control characters in names would reach terminals, and NUL would end C strings early.
static bool is_printable(kin_str s) {
    for (size_t i = 0; i < s.len; i++) {
        unsigned char ch = (unsigned char)s.at[i];
        if (ch < 0x20 || ch == 0x7f) return false;
    }
    return true;
}

// Header

static const struct {
    const char *starts, *is;
} other_formats[] = {
    {"tjgg", "an old GGML file (ggjt), older than GGUF; convert the model again"},
    {"fmgg", "an old GGML file (ggmf), older than GGUF; convert the model again"},
    {"lmgg", "an old GGML file (ggml), older than GGUF; convert the model again"},
    {"algg", "a GGML adapter (ggla), not a model"},
    {"PK\3\4", "a ZIP archive, perhaps a PyTorch checkpoint"},
    {"\x1f\x8b", "gzip-compressed data"},
    {"\177ELF", "a program"},
    {"version https://git-lfs", "a Git LFS pointer; the model itself has not been downloaded"},
    {"<!DOCTYPE", "a web page; the download failed"},
    {"<html", "a web page; the download failed"},
};

static int fail_magic(const uint8_t *bytes, uint64_t size, kin_err *err) {
    if (size == 0) return kin_err_set(err, "not a GGUF file (it is empty)");
    for (size_t i = 0; i < sizeof other_formats / sizeof other_formats[0]; i++) {
        size_t len = strlen(other_formats[i].starts);
        if (size >= len && memcmp(bytes, other_formats[i].starts, len) == 0) {
            return kin_err_set(err, "not a GGUF file but %s", other_formats[i].is);
        }
    }
    if (size > 9 && bytes[8] == '{' && bytes[9] == '"')
        return kin_err_set(err, "not a GGUF file but probably a safetensors file");
    char shown[5] = "....";
    for (uint64_t i = 0; i < 4 && i < size; i++) {
        if (bytes[i] >= 0x20 && bytes[i] < 0x7f) shown[i] = (char)bytes[i];
    }
    return kin_err_set(err, "not a GGUF file (starts with '%.*s')", size < 4 ? (int)size : 4, shown);
}

static int parse_header(cursor *c, uint64_t *n_tensors, uint64_t *n_kv, kin_err *err) {
    if (c->size < 4 || (c->n >= 4 && memcmp(c->bytes, "GGUF", 4) != 0)) return fail_magic(c->bytes, c->n, err);
    const uint8_t *at = next_bytes(c, HEADER_BYTES);
    if (!at) return kin_err_set(err, "ends inside the header (%" PRIu64 " bytes)", c->size);

    uint32_t version = kin_get_u32(at + 4);
    if ((version & 0xffff) == 0 && version != 0)
        return kin_err_set(err, "a big-endian GGUF file; only little-endian files are supported");
    if (version == 1) return kin_err_set(err, "GGUF version 1 is too old; convert the model again");
    if (version < 2 || version > 3)
        return kin_err_set(err, "GGUF version %" PRIu32 " is not supported (supported: 2, 3)", version);

    *n_tensors = kin_get_u64(at + 8);
    *n_kv = kin_get_u64(at + 16);
    return 0;
}

// Metadata

static int skip_strings(cursor *c, uint64_t n, kin_err *err) {
    kin_str s;
    if (n > left(c) / 8) return kin_err_set(err, "an array of %" PRIu64 " strings, more than the file can hold", n);
    for (uint64_t i = 0; i < n; i++) {
        if (!read_str(c, &s)) return kin_err_set(err, "the file ends inside string %" PRIu64 " of %" PRIu64, i, n);
    }
    return 0;
}

static int skip_array(cursor *c, kin_err *err) {
    uint32_t kind;
    uint64_t n;
    if (!read_u32(c, &kind) || !read_u64(c, &n)) return kin_err_set(err, "the file ends inside the array's header");
    if (kind == KIN_GGUF_STRING) return skip_strings(c, n, err);
    if (kind == KIN_GGUF_ARRAY) return kin_err_set(err, "an array of arrays, which is not supported");

    size_t size = kin_gguf_kind_size(kind);
    if (size == 0) return kin_err_set(err, "an array of unknown type %" PRIu32, kind);
    if (n > left(c) / size) return kin_err_set(err, "an array of %" PRIu64 " values, more than the file can hold", n);
    return next_bytes(c, n * size) ? 0 : kin_err_set(err, "the file ends inside the array");
}

static int skip_value(cursor *c, uint32_t kind, kin_err *err) {
    kin_str s;
    if (kind == KIN_GGUF_ARRAY) return skip_array(c, err);
    if (kind == KIN_GGUF_STRING) return read_str(c, &s) ? 0 : kin_err_set(err, "the file ends inside the string");

    size_t size = kin_gguf_kind_size(kind);
    if (size == 0) return kin_err_set(err, "has the unknown type %" PRIu32, kind);
    return next_bytes(c, size) ? 0 : kin_err_set(err, "the file ends inside the value");
}

static int parse_meta_body(cursor *c, kin_gguf_meta *meta, kin_err *err) {
    kin_str key;
    uint32_t kind;
    if (!read_str(c, &key)) return kin_err_set(err, "the file ends inside its key");
    if (key.len > KEY_LEN_MAX) return kin_err_set(err, "its key has %zu bytes, more than %d", key.len, KEY_LEN_MAX);
    if (!is_printable(key)) return kin_err_set(err, "its key holds a control character");
    if (!read_u32(c, &kind)) return kin_err_set(err, "the file ends after its key '%.*s'", KIN_STR_SHOWN(key));

    *meta = (kin_gguf_meta){.key = key, .kind = (kin_gguf_kind)kind, .value = c->bytes + c->pos};
    if (skip_value(c, kind, err) != 0) return kin_err_prefix(err, "'%.*s'", KIN_STR_SHOWN(key));
    return 0;
}

static int parse_meta(cursor *c, kin_gguf_meta *meta, uint64_t i, uint64_t n, kin_err *err) {
    return parse_meta_body(c, meta, err) == 0 ? 0 : kin_err_prefix(err, "metadata entry %" PRIu64 " of %" PRIu64, i, n);
}

static int index_keys(kin_gguf_content *content, kin_err *err) {
    kin_name *names = calloc(content->n_meta ? content->n_meta : 1, sizeof *names);
    if (!names) return kin_err_set(err, "out of memory for %zu metadata entries", content->n_meta);
    for (size_t i = 0; i < content->n_meta; i++) {
        names[i] = (kin_name){.at = content->meta[i].key.at, .len = content->meta[i].key.len, .i = i};
    }
    kin_name_index_init(&content->keys, names, content->n_meta);

    const kin_name *twice = kin_name_index_duplicate(&content->keys);
    if (twice) return kin_err_set(err, "metadata key '%.*s' appears twice", KIN_STR_SHOWN(*twice));
    return 0;
}

static int parse_all_meta(cursor *c, kin_gguf_content *content, uint64_t n_kv, kin_err *err) {
    if (n_kv > left(c) / META_BYTES_MIN) {
        return kin_err_set(err, "announces %" PRIu64 " metadata entries, more than its %" PRIu64 " bytes can hold", n_kv,
                           c->size);
    }
    content->meta = calloc(n_kv ? (size_t)n_kv : 1, sizeof *content->meta);
    if (!content->meta) return kin_err_set(err, "out of memory for %" PRIu64 " metadata entries", n_kv);
    for (; content->n_meta < n_kv; content->n_meta++) {
        if (parse_meta(c, &content->meta[content->n_meta], content->n_meta, n_kv, err) != 0) return KIN_FAIL;
    }
    return index_keys(content, err);
}

const kin_gguf_meta *kin_gguf_content_find(const kin_gguf_content *content, const char *key) {
    const kin_name *name = kin_name_index_find(&content->keys, key, strlen(key));
    return name ? &content->meta[name->i] : NULL;
}

static int get_alignment(const kin_gguf_content *content, uint32_t *alignment, kin_err *err) {
    *alignment = ALIGNMENT_DEFAULT;
    const kin_gguf_meta *meta = kin_gguf_content_find(content, "general.alignment");
    if (!meta) return 0;
    if (kin_gguf_value_u32(meta, alignment, err) != 0) return KIN_FAIL;
    uint32_t a = *alignment;
    if (a == 0 || (a & (a - 1)) != 0 || a > ALIGNMENT_MAX) {
        return kin_err_set(err, "general.alignment is %" PRIu32 ", not a power of two up to %u", a, ALIGNMENT_MAX);
    }
    return 0;
}

// Tensors

static bool multiply_sizes(uint64_t *product, uint64_t factor) { // false if it exceeds INT64_MAX; factor > 0
    if (*product > (uint64_t)INT64_MAX / factor) return false;
    *product *= factor;
    return true;
}

// Types that old programs wrote and ggml has removed, and the present type for the same weights.
static const struct {
    uint32_t type;
    const char *name, *today;
} removed_types[] = {
    {4, "Q4_2", "Q4_0"},      {5, "Q4_3", "Q4_1"},          {31, "Q4_0_4_4", "Q4_0"},     {32, "Q4_0_4_8", "Q4_0"},
    {33, "Q4_0_8_8", "Q4_0"}, {36, "IQ4_NL_4_4", "IQ4_NL"}, {37, "IQ4_NL_4_8", "IQ4_NL"}, {38, "IQ4_NL_8_8", "IQ4_NL"},
};

static int fail_type(uint32_t type, kin_err *err) {
    for (size_t i = 0; i < sizeof removed_types / sizeof removed_types[0]; i++) {
        if (removed_types[i].type == type)
            return kin_err_set(err,
                               "has the unknown type %" PRIu32 " (%s, which ggml has removed); quantize the model again as %s",
                               type, removed_types[i].name, removed_types[i].today);
    }
    return kin_err_set(err, "has the unknown type %" PRIu32, type);
}

// n_bytes = ne[0] / block * bytes per block * ne[1] * ne[2] * ne[3]
static int check_shape(kin_gguf_tensor *t, uint32_t type, kin_err *err) {
    const struct ggml_type_traits *traits = type < GGML_TYPE_COUNT ? ggml_get_type_traits((enum ggml_type)type) : NULL;
    if (!traits || traits->blck_size <= 0 || traits->type_size == 0) return fail_type(type, err);
    t->type = (int)type;

    uint64_t n_elements = 1;
    for (int i = 0; i < KIN_GGUF_MAX_DIMS; i++) {
        if (t->ne[i] <= 0) return kin_err_set(err, "dimension %d is %" PRId64, i, t->ne[i]);
        if (!multiply_sizes(&n_elements, (uint64_t)t->ne[i])) return kin_err_set(err, "has more than 2^63 elements");
    }
    if (t->ne[0] % traits->blck_size != 0) {
        return kin_err_set(err, "has rows of %" PRId64 " elements, not a multiple of the %s block size %" PRId64, t->ne[0],
                           traits->type_name, traits->blck_size);
    }
    t->n_bytes = n_elements / (uint64_t)traits->blck_size;
    if (!multiply_sizes(&t->n_bytes, traits->type_size)) return kin_err_set(err, "has more than 2^63 bytes");
    return 0;
}

static int parse_tensor_body(cursor *c, kin_gguf_tensor *t, kin_err *err) {
    uint32_t n_dims, type;
    uint64_t ne;
    if (!read_u32(c, &n_dims)) return kin_err_set(err, "the file ends inside its directory entry");
    if (n_dims < 1 || n_dims > KIN_GGUF_MAX_DIMS) return kin_err_set(err, "has %" PRIu32 " dimensions, not 1 to 4", n_dims);
    t->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < KIN_GGUF_MAX_DIMS; i++) {
        t->ne[i] = 1;
        if (i >= n_dims) continue;
        if (!read_u64(c, &ne)) return kin_err_set(err, "the file ends inside its directory entry");
        if (ne > INT64_MAX) return kin_err_set(err, "dimension %" PRIu32 " is %" PRIu64, i, ne);
        t->ne[i] = (int64_t)ne;
    }
    if (!read_u32(c, &type) || !read_u64(c, &t->offset)) return kin_err_set(err, "the file ends inside its directory entry");
    return check_shape(t, type, err);
}

static int parse_tensor_name(cursor *c, kin_gguf_tensor *t, kin_err *err) {
    if (!read_str(c, &t->name)) return kin_err_set(err, "the file ends inside its name");
    if (t->name.len > NAME_LEN_MAX) return kin_err_set(err, "its name has %zu bytes, more than %d", t->name.len, NAME_LEN_MAX);
    if (!is_printable(t->name)) return kin_err_set(err, "its name holds a control character");
    return 0;
}

static int parse_tensor(cursor *c, kin_gguf_tensor *t, uint64_t i, uint64_t n, kin_err *err) {
    if (parse_tensor_name(c, t, err) != 0) return kin_err_prefix(err, "tensor %" PRIu64 " of %" PRIu64, i, n);
    if (parse_tensor_body(c, t, err) != 0) return kin_err_prefix(err, "tensor '%.*s'", KIN_STR_SHOWN(t->name));
    return 0;
}

static int parse_all_tensors(cursor *c, kin_gguf_content *content, uint64_t n_tensors, kin_err *err) {
    if (n_tensors > left(c) / TENSOR_BYTES_MIN) {
        return kin_err_set(err, "announces %" PRIu64 " tensors, more than its %" PRIu64 " bytes can hold", n_tensors, c->size);
    }
    content->tensors = calloc(n_tensors ? (size_t)n_tensors : 1, sizeof *content->tensors);
    if (!content->tensors) return kin_err_set(err, "out of memory for %" PRIu64 " tensors", n_tensors);
    for (; content->n_tensors < n_tensors; content->n_tensors++) {
        if (parse_tensor(c, &content->tensors[content->n_tensors], content->n_tensors, n_tensors, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Converts a tensor's offset in the data section to one in the file, and verifies that all its bytes are there.
static int place_tensor(const cursor *c, kin_gguf_tensor *t, uint64_t data_begin, uint32_t alignment, kin_err *err) {
    if (t->offset % alignment != 0) {
        return kin_err_set(err, "tensor '%.*s' has offset %" PRIu64 ", not a multiple of the alignment %" PRIu32,
                           KIN_STR_SHOWN(t->name), t->offset, alignment);
    }
    if (t->offset > UINT64_MAX - data_begin || data_begin + t->offset > UINT64_MAX - t->n_bytes) {
        return kin_err_set(err, "tensor '%.*s' has an impossible offset (%" PRIu64 ")", KIN_STR_SHOWN(t->name), t->offset);
    }
    t->offset += data_begin;
    if (t->offset + t->n_bytes > c->size) {
        return kin_err_set(err, "tensor '%.*s' ends at byte %" PRIu64 ", beyond the end of the file (%" PRIu64 " bytes)",
                           KIN_STR_SHOWN(t->name), t->offset + t->n_bytes, c->size);
    }
    t->data = c->bytes + t->offset;
    return 0;
}

static int compare_offsets(const void *a, const void *b) {
    const kin_gguf_tensor *const *x = a, *const *y = b;
    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static int check_overlaps(const kin_gguf_content *content, kin_err *err) {
    const kin_gguf_tensor **sorted = malloc((content->n_tensors + 1) * sizeof *sorted);
    int rc = 0;
    if (!sorted) return kin_err_set(err, "out of memory for %zu tensors", content->n_tensors);
    for (size_t i = 0; i < content->n_tensors; i++) sorted[i] = &content->tensors[i];
    qsort(sorted, content->n_tensors, sizeof *sorted, compare_offsets);
    for (size_t i = 1; i < content->n_tensors && rc == 0; i++) {
        const kin_gguf_tensor *a = sorted[i - 1], *b = sorted[i];
        if (a->offset + a->n_bytes > b->offset)
            rc = kin_err_set(err, "the tensors '%.*s' and '%.*s' overlap", KIN_STR_SHOWN(a->name), KIN_STR_SHOWN(b->name));
    }
    free(sorted);
    return rc;
}

int kin_gguf_parse(kin_gguf_content *content, const uint8_t *bytes, uint64_t size, kin_err *err) {
    cursor c = {.bytes = bytes, .n = size, .size = size};
    uint64_t n_tensors = 0, n_kv = 0;
    uint32_t alignment;
    if (parse_header(&c, &n_tensors, &n_kv, err) != 0) return KIN_FAIL;
    if (parse_all_meta(&c, content, n_kv, err) != 0) return KIN_FAIL;
    if (get_alignment(content, &alignment, err) != 0) return KIN_FAIL;
    if (parse_all_tensors(&c, content, n_tensors, err) != 0) return KIN_FAIL;

    uint64_t data_begin = (c.pos + alignment - 1) & ~(uint64_t)(alignment - 1);
    for (size_t i = 0; i < content->n_tensors; i++) {
        if (place_tensor(&c, &content->tensors[i], data_begin, alignment, err) != 0) return KIN_FAIL;
    }
    return check_overlaps(content, err);
}

void kin_gguf_content_fini(kin_gguf_content *content) {
    kin_name_index_fini(&content->keys);
    free(content->tensors);
    free(content->meta);
}

static int skip_header(cursor *c, kin_err *err) {
    uint64_t n_tensors, n_kv;
    kin_gguf_meta meta;
    kin_gguf_tensor tensor;
    if (parse_header(c, &n_tensors, &n_kv, err) != 0) return KIN_FAIL;
    for (uint64_t i = 0; i < n_kv; i++)
        if (parse_meta(c, &meta, i, n_kv, err) != 0) return KIN_FAIL;
    for (uint64_t i = 0; i < n_tensors; i++)
        if (parse_tensor(c, &tensor, i, n_tensors, err) != 0) return KIN_FAIL;
    return 0;
}

kin_header_state kin_header_measure(const uint8_t *bytes, uint64_t n, uint64_t file_size, uint64_t *reach, kin_err *err) {
    cursor c = {.bytes = bytes, .n = n < file_size ? n : file_size, .size = file_size};
    bool whole = skip_header(&c, err) == 0;
    *reach = whole ? c.pos : c.need;
    if (whole) return KIN_HEADER_WHOLE;
    return c.need > c.n ? KIN_HEADER_MORE : KIN_HEADER_BROKEN;
}
