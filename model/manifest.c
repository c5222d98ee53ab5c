#include "model/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hex.h"
#include "pure/text/utf8.h"

static const char magic[8] = {'k', 'i', 'n', 'm', 'a', 'n', 'i', '1'};

enum { HEADER_BYTES = 20, FILE_BYTES = 10, HASH = KIN_SHA256_BYTES };

kin_hash_hex kin_hash_to_hex(const uint8_t hash[HASH]) {
    kin_hash_hex hex;
    *kin_hex_put(hex.text, hash, HASH) = '\0';
    return hex;
}

// ---- in memory

int kin_manifest_check_name(const char *name, kin_err *err) {
    size_t len = strlen(name);
    if (len == 0 || len > KIN_MANIFEST_NAME_MAX) return kin_err_set(err, "a file name of %zu bytes is not supported", len);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return kin_err_set(err, "'%s' is not a valid file name", name);
    for (size_t i = 0; i < len;) {
        int n = kin_utf8_len(name + i, len - i);
        if (n <= 0) return kin_err_set(err, "a file name is not UTF-8");
        uint32_t c = kin_utf8_get(name + i, n);
        if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == '/' || c == '\\') {
            return kin_err_set(err, "a file name contains the character U+%04" PRIX32, c);
        }
        i += (size_t)n;
    }
    return 0;
}

static int check_limits(uint32_t chunk_bytes, int n_files, kin_err *err) {
    if (chunk_bytes < KIN_CHUNK_BYTES_MIN || chunk_bytes > KIN_CHUNK_BYTES || (chunk_bytes & (chunk_bytes - 1)) != 0) {
        return kin_err_set(err, "chunks of %" PRIu32 " bytes; must be a power of two from %d to %" PRIu32, chunk_bytes,
                           KIN_CHUNK_BYTES_MIN, KIN_CHUNK_BYTES);
    }
    if (n_files < 1 || n_files > KIN_MANIFEST_FILES_MAX) {
        return kin_err_set(err, "%d files; a model has 1 to %d", n_files, KIN_MANIFEST_FILES_MAX);
    }
    return 0;
}

static int add_file(kin_manifest *m, uint64_t size, const char *name, kin_err *err) {
    if (kin_manifest_check_name(name, err) != 0) return KIN_FAIL;
    if (size == 0) return kin_err_set(err, "%s: is empty", name);
    uint64_t n_chunks = size / m->chunk_bytes + (size % m->chunk_bytes != 0);
    if (n_chunks > KIN_MANIFEST_CHUNKS_MAX - m->n_chunks) {
        return kin_err_set(err, "%s: the model has more than %" PRIu32 " chunks of %" PRIu32 " bytes", name,
                           KIN_MANIFEST_CHUNKS_MAX, m->chunk_bytes);
    }
    kin_manifest_file *file = &m->files[m->n_files++];
    *file = (kin_manifest_file){.size = size, .chunk_begin = m->n_chunks, .chunk_end = m->n_chunks + (uint32_t)n_chunks};
    memcpy(file->name, name, strlen(name) + 1);
    m->n_chunks = file->chunk_end;
    return 0;
}

int kin_manifest_begin(kin_manifest *m, uint32_t chunk_bytes, int n_files, const uint64_t *sizes, const char *const *names,
                       kin_err *err) {
    *m = (kin_manifest){.chunk_bytes = chunk_bytes};
    if (check_limits(chunk_bytes, n_files, err) != 0) return KIN_FAIL;
    m->files = calloc((size_t)n_files, sizeof *m->files);
    if (!m->files) return kin_err_set(err, "out of memory");
    for (int i = 0; i < n_files; i++) {
        if (add_file(m, sizes[i], names[i], err) != 0) goto fail;
    }
    m->hashes = calloc(m->n_chunks, sizeof *m->hashes);
    if (m->hashes) return 0;
    kin_err_set(err, "out of memory for the hashes of %" PRIu32 " chunks", m->n_chunks);

fail:
    kin_manifest_fini(m);
    return KIN_FAIL;
}

void kin_manifest_fini(kin_manifest *m) {
    free(m->files);
    free(m->hashes);
    *m = (kin_manifest){0};
}

static int content_hash(const kin_manifest *m, uint8_t hash[HASH], kin_err *err) {
    kin_sha256_stream *stream;
    uint8_t head[6], size[8];
    if (kin_sha256_open(&stream, err) != 0) return KIN_FAIL;
    kin_put_u32(head, m->chunk_bytes);
    head[4] = (uint8_t)m->n_files; // u16; at most 64 files
    head[5] = 0;
    int rc = kin_sha256_add(stream, head, sizeof head, err);
    for (int i = 0; i < m->n_files && rc == 0; i++) {
        kin_put_u64(size, m->files[i].size);
        rc = kin_sha256_add(stream, size, sizeof size, err);
    }
    if (rc == 0) rc = kin_sha256_add(stream, m->hashes, (size_t)m->n_chunks * HASH, err);
    if (rc == 0) rc = kin_sha256_end(stream, hash, err);
    kin_sha256_close(stream);
    return rc;
}

int kin_manifest_finish(kin_manifest *m, const uint8_t *expected, kin_err *err) {
    if (content_hash(m, m->hash, err) != 0) return KIN_FAIL;
    if (!expected || memcmp(m->hash, expected, HASH) == 0) return 0;
    return kin_err_set(err, "the chunk hashes belong to the model %.16s, not to %.16s", kin_hash_to_hex(m->hash).text,
                       kin_hash_to_hex(expected).text);
}

int kin_manifest_copy(kin_manifest *m, const kin_manifest *from, kin_err *err) {
    *m = *from;
    m->files = calloc((size_t)from->n_files, sizeof *m->files);
    m->hashes = calloc(from->n_chunks, sizeof *m->hashes);
    if (!m->files || !m->hashes) {
        kin_manifest_fini(m);
        return kin_err_set(err, "out of memory for the hashes of %" PRIu32 " chunks", from->n_chunks);
    }
    memcpy(m->files, from->files, (size_t)from->n_files * sizeof *m->files);
    memcpy(m->hashes, from->hashes, (size_t)from->n_chunks * sizeof *m->hashes);
    return 0;
}

// ---- as bytes

size_t kin_manifest_bytes(const kin_manifest *m) {
    size_t n = HEADER_BYTES + ((size_t)m->n_chunks + 1) * HASH;
    for (int i = 0; i < m->n_files; i++) n += FILE_BYTES + strlen(m->files[i].name);
    return n;
}

void kin_manifest_write(const kin_manifest *m, uint8_t *bytes) {
    memcpy(bytes, magic, sizeof magic);
    kin_put_u32(bytes + 8, m->chunk_bytes);
    kin_put_u32(bytes + 12, (uint32_t)m->n_files);
    kin_put_u32(bytes + 16, m->n_chunks);
    uint8_t *at = bytes + HEADER_BYTES;
    for (int i = 0; i < m->n_files; i++) {
        size_t len = strlen(m->files[i].name);
        kin_put_u64(at, m->files[i].size);
        at[8] = (uint8_t)len;
        at[9] = 0;
        memcpy(at + FILE_BYTES, m->files[i].name, len);
        at += FILE_BYTES + len;
    }
    memcpy(at, m->hashes, (size_t)m->n_chunks * HASH);
    memcpy(at + (size_t)m->n_chunks * HASH, m->hash, HASH);
}

typedef struct listed_files {
    uint64_t sizes[KIN_MANIFEST_FILES_MAX];
    char names[KIN_MANIFEST_FILES_MAX][KIN_MANIFEST_NAME_MAX + 1];
    const char *name_ptrs[KIN_MANIFEST_FILES_MAX];
} listed_files;

// Returns the bytes of the list, 0 if it is malformed.
static size_t parse_files(listed_files *files, int n_files, const uint8_t *bytes, size_t n) {
    size_t pos = 0;
    for (int i = 0; i < n_files; i++) {
        if (n - pos < FILE_BYTES) return 0;
        size_t len = kin_get_u16(bytes + pos + 8);
        files->sizes[i] = kin_get_u64(bytes + pos);
        pos += FILE_BYTES;
        if (len > KIN_MANIFEST_NAME_MAX || n - pos < len || memchr(bytes + pos, '\0', len)) return 0;
        memcpy(files->names[i], bytes + pos, len);
        files->names[i][len] = '\0';
        files->name_ptrs[i] = files->names[i];
        pos += len;
    }
    return pos;
}

static int malformed(const char *what, kin_err *err) {
    return kin_err_set(err, "not a model manifest: %s", what);
}

// `files` is the caller's storage, because it is too large for a stack.
static int parse(kin_manifest *m, listed_files *files, const uint8_t *bytes, size_t n, const uint8_t *expected, kin_err *err) {
    if (n < HEADER_BYTES || memcmp(bytes, magic, sizeof magic) != 0) return malformed("the header is wrong", err);
    uint32_t chunk_bytes = kin_get_u32(bytes + 8), n_files = kin_get_u32(bytes + 12), n_chunks = kin_get_u32(bytes + 16);
    if (n_files > KIN_MANIFEST_FILES_MAX || check_limits(chunk_bytes, (int)n_files, err) != 0) {
        return malformed("the chunk size or the number of files is invalid", err);
    }
    size_t pos = parse_files(files, (int)n_files, bytes + HEADER_BYTES, n - HEADER_BYTES);
    if (pos == 0) return malformed("the list of files is damaged", err);
    pos += HEADER_BYTES;
    if (n_chunks > KIN_MANIFEST_CHUNKS_MAX || n - pos != ((size_t)n_chunks + 1) * HASH) {
        return malformed("it is truncated or too long", err);
    }
    if (kin_manifest_begin(m, chunk_bytes, (int)n_files, files->sizes, files->name_ptrs, err) != 0) return KIN_FAIL;
    if (m->n_chunks != n_chunks) return malformed("the number of chunks does not match the file sizes", err);
    memcpy(m->hashes, bytes + pos, (size_t)n_chunks * HASH);
    if (kin_manifest_finish(m, expected, err) != 0) return KIN_FAIL;
    return memcmp(m->hash, bytes + n - HASH, HASH) == 0 ? 0 : malformed("the content hash is wrong", err);
}

int kin_manifest_parse(kin_manifest *m, const uint8_t *bytes, size_t n, const uint8_t *expected, kin_err *err) {
    *m = (kin_manifest){0};
    listed_files *files = malloc(sizeof *files);
    if (!files) return kin_err_set(err, "out of memory");
    int rc = parse(m, files, bytes, n, expected, err);
    free(files);
    if (rc != 0) kin_manifest_fini(m);
    return rc;
}

// ---- inspection

uint64_t kin_manifest_total(const kin_manifest *m) {
    uint64_t sum = 0;
    for (int i = 0; i < m->n_files; i++) sum += m->files[i].size;
    return sum;
}

kin_chunk kin_manifest_chunk(const kin_manifest *m, uint32_t i_chunk) {
    kin_assert(i_chunk < m->n_chunks);
    int i = 0;
    while (i_chunk >= m->files[i].chunk_end) i++;
    uint64_t offset = (uint64_t)(i_chunk - m->files[i].chunk_begin) * m->chunk_bytes, left = m->files[i].size - offset;
    return (kin_chunk){.i_file = i, .offset = offset, .bytes = left < m->chunk_bytes ? (uint32_t)left : m->chunk_bytes};
}

int kin_manifest_chunks_of_range(const kin_manifest *m, int i_file, uint64_t offset, uint64_t bytes, uint32_t *begin,
                                 uint32_t *end, kin_err *err) {
    if (i_file < 0 || i_file >= m->n_files)
        return kin_err_set(err, "file %d does not exist; the model has %d", i_file, m->n_files);
    const kin_manifest_file *file = &m->files[i_file];
    if (offset > file->size || bytes > file->size - offset) {
        return kin_err_set(err, "%s: has %" PRIu64 " bytes, not %" PRIu64 " at %" PRIu64, file->name, file->size, bytes, offset);
    }
    *begin = file->chunk_begin + (uint32_t)(offset / m->chunk_bytes);
    *end = bytes == 0 ? *begin : file->chunk_begin + (uint32_t)((offset + bytes - 1) / m->chunk_bytes) + 1;
    return 0;
}

kin_chunk_check kin_manifest_check_chunk(const kin_manifest *m, uint32_t i_chunk, const void *bytes, size_t n, kin_err *err) {
    uint8_t hash[HASH];
    if (i_chunk >= m->n_chunks) {
        kin_err_set(err, "the model has %" PRIu32 " chunks, no chunk %" PRIu32, m->n_chunks, i_chunk);
        return KIN_CHUNK_WRONG;
    }
    uint32_t expected = kin_manifest_chunk(m, i_chunk).bytes;
    if (n != expected) {
        kin_err_set(err, "chunk %" PRIu32 " has %" PRIu32 " bytes, not %zu", i_chunk, expected, n);
        return KIN_CHUNK_WRONG;
    }
    if (kin_sha256(bytes, n, hash, err) != 0) return KIN_CHUNK_UNCHECKED;
    if (memcmp(hash, m->hashes[i_chunk], HASH) == 0) return KIN_CHUNK_RIGHT;
    kin_err_set(err, "the bytes of chunk %" PRIu32 " are damaged: their hash differs from the model's", i_chunk);
    return KIN_CHUNK_WRONG;
}
