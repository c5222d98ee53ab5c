// Parses any bytes as a manifest and as the beginning of a GGUF file. Both come from peers.
#include <stdlib.h>
#include <string.h>

#include "model/manifest.h"
#include "model/ranges.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// Checks the invariants of an accepted manifest.
static void use(const kin_manifest *m) {
    uint64_t total = 0;
    kin_assert(m->n_files >= 1 && m->n_files <= KIN_MANIFEST_FILES_MAX && m->n_chunks >= 1);
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        kin_chunk c = kin_manifest_chunk(m, i);
        uint32_t begin, end;
        kin_assert(c.bytes > 0 && c.bytes <= m->chunk_bytes);
        kin_assert(kin_manifest_chunks_of_range(m, c.i_file, c.offset, c.bytes, &begin, &end, NULL) == 0);
        kin_assert(begin == i && end == i + 1);
        total += c.bytes;
    }
    kin_assert(total == kin_manifest_total(m));
    for (int i = 0; i < m->n_files; i++) kin_assert(kin_manifest_check_name(m->files[i].name, NULL) == 0);
}

static void fuzz_manifest(const uint8_t *bytes, size_t size) {
    kin_manifest m;
    kin_err err = {""};
    if (kin_manifest_parse(&m, bytes, size, NULL, &err) != 0) {
        kin_assert(err.text[0] != '\0');
        return;
    }
    use(&m);
    uint8_t *again = malloc(size);
    kin_assert(again && kin_manifest_bytes(&m) == size);
    kin_manifest_write(&m, again);
    kin_assert(memcmp(bytes, again, size) == 0);
    free(again);
    kin_manifest_fini(&m);
}

// The content hash rejects nearly all inputs to fuzz_manifest, so this builds a manifest from a size and a name, without a hash.
static void fuzz_begin(const uint8_t *bytes, size_t size) {
    kin_manifest m;
    uint64_t file_size;
    char name[64] = "";
    const char *names[1] = {name};
    if (size < sizeof file_size) return;
    memcpy(&file_size, bytes, sizeof file_size);
    memcpy(name, bytes + sizeof file_size, size - sizeof file_size < sizeof name - 1 ? size - sizeof file_size : sizeof name - 1);
    if (file_size > (uint64_t)KIN_CHUNK_BYTES << 8 && file_size < UINT64_MAX / 2) file_size %= (uint64_t)KIN_CHUNK_BYTES << 8;
    if (kin_manifest_begin(&m, KIN_CHUNK_BYTES, 1, &file_size, names, NULL) != 0) return;
    kin_assert(kin_manifest_finish(&m, NULL, NULL) == 0);
    use(&m);
    kin_manifest_fini(&m);
}

static void fuzz_header(const uint8_t *bytes, size_t size) {
    uint64_t reach, whole;
    kin_header_state state = kin_header_measure(bytes, size, size, &whole, NULL);
    kin_assert(state != KIN_HEADER_MORE); // the file ends here
    if (state == KIN_HEADER_WHOLE) kin_assert(whole <= size);
    for (size_t n = 0; n < size; n += 1 + size / 16) {
        kin_header_state part = kin_header_measure(bytes, n, size, &reach, NULL);
        if (part == KIN_HEADER_MORE) kin_assert(reach > n && reach <= size);
        if (part == KIN_HEADER_WHOLE) kin_assert(state == KIN_HEADER_WHOLE && reach == whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    fuzz_manifest(bytes, size);
    fuzz_begin(bytes, size);
    fuzz_header(bytes, size);
    return 0;
}
