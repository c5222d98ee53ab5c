// Messages about parts of the model file.
#include <string.h>

#include "pure/proto/message_impl.h"

// HASHES_WANTED: hash model

static void put_hashes_wanted(kin_writer *w, const kin_proto_hashes_wanted *m) {
    kin_proto_put_hash(w, &m->model);
}

static void read_hashes_wanted(kin_reader *r, kin_proto_hashes_wanted *m) {
    kin_proto_read_hash(r, &m->model);
}

KIN_PROTO_DEFINE(HASHES_WANTED, hashes_wanted)

//     HASHES
//     byte  0  u32  chunk_bytes (a power of two, 2^16 to 2^26)
//           4  u16  n_files (1 to 64)
//           6  n_files x { u64 size (>= 1); str name: no folders, not "." or ".." }
//              u32  first
//              u32  n_hashes (0 to 16384)
//              n_hashes x hash, of the chunks first, first + 1, ...

uint64_t kin_proto_n_chunks(const kin_proto_hashes *m) {
    uint64_t n = 0;
    for (int i = 0; i < m->n_files; i++) n += m->file[i].size / m->chunk_bytes + (m->file[i].size % m->chunk_bytes != 0);
    return n;
}

static void put_hashes(kin_writer *w, const kin_proto_hashes *m) {
    kin_assert(m->n_files >= 0 && m->n_files <= KIN_PROTO_MAX_FILES && m->n_hashes <= KIN_PROTO_MAX_HASHES);
    kin_writer_u32(w, m->chunk_bytes);
    kin_writer_u16(w, (uint16_t)m->n_files);
    for (int i = 0; i < m->n_files; i++) {
        kin_writer_u64(w, m->file[i].size);
        kin_writer_str(w, m->file[i].name, KIN_PROTO_MAX_STR);
    }
    kin_writer_u32(w, m->first);
    kin_writer_u32(w, m->n_hashes);
    kin_writer_bytes(w, m->hashes, sizeof(kin_proto_hash) * m->n_hashes);
}

static bool is_file_name(const char *name) {
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strpbrk(name, "/\\");
}

static void read_file(kin_reader *r, kin_proto_file *file, int i) {
    file->size = kin_reader_size(r, "size of a file");
    kin_reader_str(r, file->name, KIN_PROTO_MAX_STR, "name of a file");
    if (file->size == 0) kin_reader_fail(r, "file %d is empty", i);
    if (!is_file_name(file->name)) kin_reader_fail(r, "'%s' is not the name of a file", file->name);
}

static void read_hashes(kin_reader *r, kin_proto_hashes *m) {
    m->chunk_bytes = kin_reader_range(r, kin_reader_u32(r), KIN_PROTO_MIN_CHUNK_BYTES, KIN_PROTO_MAX_CHUNK_BYTES, "chunk_bytes");
    if (m->chunk_bytes & (m->chunk_bytes - 1)) kin_reader_fail(r, "chunk_bytes is not a power of two");
    m->n_files = (int)kin_reader_range(r, kin_reader_u16(r), 1, KIN_PROTO_MAX_FILES, "number of files");
    for (int i = 0; i < m->n_files; i++) read_file(r, &m->file[i], i);
    m->first = kin_reader_u32(r);
    m->n_hashes = kin_reader_range(r, kin_reader_u32(r), 0, KIN_PROTO_MAX_HASHES, "number of hashes");
    uint64_t n_chunks = kin_proto_n_chunks(m);
    if (n_chunks > KIN_PROTO_MAX_CHUNKS) kin_reader_fail(r, "the model has more than %d chunks", KIN_PROTO_MAX_CHUNKS);
    if ((uint64_t)m->first + m->n_hashes > n_chunks) kin_reader_fail(r, "hashes of chunks after the model's last");
    m->hashes = kin_reader_bytes(r, sizeof(kin_proto_hash) * m->n_hashes);
}

KIN_PROTO_DEFINE(HASHES, hashes)

//     GET                               DATA
//     byte  0  hash  model              byte  0  u32  i_chunk
//          32  u32   i_chunk                  4  u32  offset
//          36  u32   offset                   8  bytes (1 to 256 KiB)
//          40  u32   length (>= 1)
// i_chunk < 2^22, and offset + length is at most 2^26, the largest chunk.

static uint32_t read_chunk(kin_reader *r) {
    return kin_reader_range(r, kin_reader_u32(r), 0, KIN_PROTO_MAX_CHUNKS - 1, "chunk");
}

static void check_range(kin_reader *r, uint64_t offset, uint64_t n) {
    if (n == 0) kin_reader_fail(r, "an empty range");
    if (offset + n > KIN_PROTO_MAX_CHUNK_BYTES) kin_reader_fail(r, "a range beyond the largest chunk");
}

static void put_get(kin_writer *w, const kin_proto_get *m) {
    kin_proto_put_hash(w, &m->model);
    kin_writer_u32(w, m->i_chunk);
    kin_writer_u32(w, m->offset);
    kin_writer_u32(w, m->length);
}

static void read_get(kin_reader *r, kin_proto_get *m) {
    kin_proto_read_hash(r, &m->model);
    m->i_chunk = read_chunk(r);
    m->offset = kin_reader_u32(r);
    m->length = kin_reader_u32(r);
    check_range(r, m->offset, m->length);
}

KIN_PROTO_DEFINE(GET, get)

static void put_data_head(kin_writer *w, const kin_proto_data *m) {
    kin_writer_u32(w, m->i_chunk);
    kin_writer_u32(w, m->offset);
}

static void put_data(kin_writer *w, const kin_proto_data *m) {
    kin_assert(m->n_bytes <= KIN_FRAME_DATA_BYTES);
    put_data_head(w, m);
    kin_writer_bytes(w, m->bytes, m->n_bytes);
}

static void read_data(kin_reader *r, kin_proto_data *m) {
    m->i_chunk = read_chunk(r);
    m->offset = kin_reader_u32(r);
    size_t n = (size_t)(r->end - r->at);
    if (n > KIN_FRAME_DATA_BYTES) kin_reader_fail(r, "%zu bytes, more than %u", n, KIN_FRAME_DATA_BYTES);
    check_range(r, m->offset, n);
    m->bytes = kin_reader_bytes(r, n);
    m->n_bytes = m->bytes ? (uint32_t)n : 0;
}

KIN_PROTO_DEFINE(DATA, data)

size_t kin_proto_encode_data_head(uint8_t *buf, size_t cap, const kin_proto_data *m) {
    kin_writer w = {.to = buf, .cap = cap};
    put_data_head(&w, m);
    return w.n;
}

// LACK: u32 i_chunk (< 2^22, or 2^32 - 1: nothing of that model)

static void put_lack(kin_writer *w, const kin_proto_lack *m) {
    kin_writer_u32(w, m->i_chunk);
}

static void read_lack(kin_reader *r, kin_proto_lack *m) {
    m->i_chunk = kin_reader_u32(r);
    if (m->i_chunk != KIN_PROTO_NO_CHUNK) kin_reader_range(r, m->i_chunk, 0, KIN_PROTO_MAX_CHUNKS - 1, "chunk");
}

KIN_PROTO_DEFINE(LACK, lack)

//     HAVE
//     byte  0  hash  model
//          32  id    of the device that has the chunks
//          48  endpoint of that device
//              u32   n_chunks (1 to 2^22)
//              bitmap [(n_chunks + 7) / 8]: chunk i is bit i % 8 of byte i / 8; bits from n_chunks on are 0

static size_t bitmap_bytes(const kin_proto_have *m) {
    return ((size_t)m->n_chunks + 7) / 8;
}

static void put_have(kin_writer *w, const kin_proto_have *m) {
    kin_assert(m->n_chunks <= KIN_PROTO_MAX_CHUNKS);
    kin_proto_put_hash(w, &m->model);
    kin_proto_put_id(w, &m->id);
    kin_proto_put_endpoint(w, &m->endpoint);
    kin_writer_u32(w, m->n_chunks);
    kin_writer_bytes(w, m->bitmap, bitmap_bytes(m));
}

static void read_have(kin_reader *r, kin_proto_have *m) {
    kin_proto_read_hash(r, &m->model);
    kin_proto_read_id(r, &m->id);
    kin_proto_read_endpoint(r, &m->endpoint);
    m->n_chunks = kin_reader_range(r, kin_reader_u32(r), 1, KIN_PROTO_MAX_CHUNKS, "number of chunks");
    m->bitmap = kin_reader_bytes(r, bitmap_bytes(m));
    unsigned used = m->n_chunks % 8;
    if (m->bitmap && used && m->bitmap[m->n_chunks / 8] >> used) kin_reader_fail(r, "bits after the last chunk");
}

KIN_PROTO_DEFINE(HAVE, have)

bool kin_proto_have_chunk(const kin_proto_have *m, uint32_t i_chunk) {
    kin_assert(i_chunk < m->n_chunks);
    return m->bitmap[i_chunk / 8] >> i_chunk % 8 & 1;
}

//     KEPT
//     byte  0  id    of the device that has the pages
//          16  endpoint of that device
//              u32   page_bytes (1 to 2^26)
//              u16   n_names (0 to 1024)
//              n_names x hash: name of a page

static void put_kept(kin_writer *w, const kin_proto_kept *m) {
    kin_assert(m->n_names <= KIN_PROTO_MAX_KEPT);
    kin_proto_put_id(w, &m->id);
    kin_proto_put_endpoint(w, &m->endpoint);
    kin_writer_u32(w, m->page_bytes);
    kin_writer_u16(w, (uint16_t)m->n_names);
    kin_writer_bytes(w, m->names, sizeof(kin_proto_hash) * m->n_names);
}

static void read_kept(kin_reader *r, kin_proto_kept *m) {
    kin_proto_read_id(r, &m->id);
    kin_proto_read_endpoint(r, &m->endpoint);
    m->page_bytes = kin_reader_range(r, kin_reader_u32(r), 1, KIN_PROTO_MAX_CHUNK_BYTES, "page_bytes");
    m->n_names = kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_KEPT, "number of names");
    m->names = kin_reader_bytes(r, sizeof(kin_proto_hash) * m->n_names);
}

KIN_PROTO_DEFINE(KEPT, kept)
