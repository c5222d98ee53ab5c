#include "model/chunk_notes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "sys/io.h"

static const char magic[8] = {'k', 'i', 'n', 'c', 'h', 'n', 'k', '1'};

enum { HEADER_BYTES = 16, RECORD_BYTES = 16 };

int kin_chunk_notes_init(kin_chunk_notes *notes, uint32_t n_chunks, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err) {
    *notes = (kin_chunk_notes){.n_chunks = n_chunks, .key = kin_hash64(hash, KIN_SHA256_BYTES, 0)};
    notes->words = calloc(kin_chunk_notes_n_words(notes), sizeof *notes->words);
    return notes->words ? 0 : kin_err_set(err, "out of memory for the notes of %" PRIu32 " chunks", n_chunks);
}

void kin_chunk_notes_fini(kin_chunk_notes *notes) {
    free(notes->words);
    *notes = (kin_chunk_notes){0};
}

bool kin_chunk_notes_get(const kin_chunk_notes *notes, uint32_t i_chunk) {
    kin_assert(i_chunk < notes->n_chunks);
    return notes->words[i_chunk / 64] >> i_chunk % 64 & 1;
}

void kin_chunk_notes_set(kin_chunk_notes *notes, uint32_t i_chunk, bool there) {
    kin_assert(i_chunk < notes->n_chunks);
    uint64_t bit = (uint64_t)1 << i_chunk % 64;
    if (there) {
        notes->words[i_chunk / 64] |= bit;
    } else {
        notes->words[i_chunk / 64] &= ~bit;
    }
}

bool kin_chunk_notes_any(const kin_chunk_notes *notes, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; i++) {
        if (kin_chunk_notes_get(notes, i)) return true;
    }
    return false;
}

// ---- the file

static void encode_header(const kin_chunk_notes *notes, uint8_t header[HEADER_BYTES]) {
    memset(header, 0, HEADER_BYTES);
    memcpy(header, magic, sizeof magic);
    kin_put_u32(header + 8, notes->n_chunks);
}

static void encode_record(const kin_chunk_notes *notes, size_t i, uint64_t bits, uint8_t record[RECORD_BYTES]) {
    kin_put_u64(record, bits);
    kin_put_u64(record + 8, kin_hash64(record, 8, notes->key + i));
}

// Returns the bits in the last word that stand for no chunk.
static uint64_t beyond_end(const kin_chunk_notes *notes, size_t i) {
    uint32_t n = notes->n_chunks - (uint32_t)i * 64;
    return n >= 64 ? 0 : ~(uint64_t)0 << n;
}

void kin_chunk_notes_load(kin_chunk_notes *notes, int fd) {
    uint8_t header[HEADER_BYTES], expected[HEADER_BYTES];
    encode_header(notes, expected);
    if (pread(fd, header, sizeof header, 0) != sizeof header || memcmp(header, expected, sizeof header) != 0) return;
    for (size_t i = 0; i < kin_chunk_notes_n_words(notes); i++) {
        uint8_t record[RECORD_BYTES], sealed[RECORD_BYTES];
        if (pread(fd, record, sizeof record, (off_t)(HEADER_BYTES + i * RECORD_BYTES)) != sizeof record) return;
        uint64_t bits = kin_get_u64(record);
        encode_record(notes, i, bits, sealed);
        if (memcmp(record, sealed, sizeof record) == 0 && !(bits & beyond_end(notes, i))) notes->words[i] |= bits;
    }
}

int kin_chunk_notes_save(const kin_chunk_notes *notes, int fd) {
    size_t n_words = kin_chunk_notes_n_words(notes), n = HEADER_BYTES + n_words * RECORD_BYTES;
    uint8_t *bytes = malloc(n);
    if (!bytes) {
        errno = ENOMEM;
        return KIN_FAIL;
    }
    encode_header(notes, bytes);
    for (size_t i = 0; i < n_words; i++) encode_record(notes, i, notes->words[i], bytes + HEADER_BYTES + i * RECORD_BYTES);
    int rc = kin_io_write(fd, bytes, n, 0);
    free(bytes);
    return rc;
}
