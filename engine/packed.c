#include "engine/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "sys/pages.h"

static const char magic[8] = {'k', 'i', 'n', 'p', 'a', 'c', 'k', '1'};

enum { HEADER_BYTES = 64, HEADER_HASHED = 40, ENTRY_BYTES = 32, ENTRY_SEALED = 24 };

typedef struct unit {
    uint64_t offset;
    uint64_t bytes;
    bool valid;    // sealed in the file
    bool written;  // by us, not sealed yet
    uint64_t hash; // of the content, if written
} unit;

struct kin_packed {
    char path[1024];
    int fd;
    kin_packed_key key;
    uint64_t file_bytes;
    size_t n_units;
    unit *units;
};

static uint64_t align_up(uint64_t n) {
    return (n + KIN_PACKED_ALIGN - 1) / KIN_PACKED_ALIGN * KIN_PACKED_ALIGN;
}

static uint64_t seal_of(const kin_packed *p, const uint8_t entry[ENTRY_SEALED]) {
    return kin_hash64(entry, ENTRY_SEALED, p->key.model ^ p->key.variant);
}

static void encode_header(const kin_packed *p, uint8_t header[HEADER_BYTES]) {
    memset(header, 0, HEADER_BYTES);
    memcpy(header, magic, sizeof magic);
    kin_put_u64(header + 8, p->file_bytes);
    kin_put_u64(header + 16, p->n_units);
    kin_put_u64(header + 24, p->key.model);
    kin_put_u64(header + 32, p->key.variant);
    kin_put_u64(header + 40, kin_hash64(header, HEADER_HASHED, 0));
}

// Reads the seals of a file whose header is as it must be; false if the file is not what we would have written.
static bool read_existing(kin_packed *p) {
    struct stat st;
    uint8_t header[HEADER_BYTES], expected[HEADER_BYTES];
    if (fstat(p->fd, &st) != 0 || (uint64_t)st.st_size != p->file_bytes) return false;
    encode_header(p, expected);
    if (pread(p->fd, header, sizeof header, 0) != sizeof header || memcmp(header, expected, sizeof header) != 0) return false;

    for (size_t i = 0; i < p->n_units; i++) {
        uint8_t entry[ENTRY_BYTES];
        if (pread(p->fd, entry, sizeof entry, (off_t)(HEADER_BYTES + i * ENTRY_BYTES)) != sizeof entry) return false;
        p->units[i].valid = kin_get_u64(entry) == p->units[i].offset && kin_get_u64(entry + 8) == p->units[i].bytes &&
                            kin_get_u64(entry + 24) == seal_of(p, entry);
    }
    return true;
}

static int begin_anew(kin_packed *p, kin_err *err) {
    uint8_t header[HEADER_BYTES];
    encode_header(p, header);
    for (size_t i = 0; i < p->n_units; i++) p->units[i].valid = false;
    if (ftruncate(p->fd, 0) != 0 || ftruncate(p->fd, (off_t)p->file_bytes) != 0 ||
        pwrite(p->fd, header, sizeof header, 0) != sizeof header) {
        return kin_err_set(err, "%s: %s", p->path, strerror(errno));
    }
    return 0;
}

// mkdir -p
static int make_dir(const char *dir, kin_err *err) {
    char path[1024];
    snprintf(path, sizeof path, "%s", dir);
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST) return kin_err_set(err, "%s: %s", path, strerror(errno));
        if (!slash) return 0;
        *slash = '/';
    }
}

static int open_file(kin_packed *p, kin_err *err) {
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (p->fd < 0) return kin_err_set(err, "%s: %s", p->path, strerror(errno));
    struct stat st;
    bool existed = fstat(p->fd, &st) == 0 && st.st_size > 0;

    // Readers share the file; whoever would change it must be alone.
    if (flock(p->fd, LOCK_SH | LOCK_NB) != 0) return kin_err_set(err, "%s: another kin is writing it", p->path);
    if (existed && read_existing(p)) {
        futimens(p->fd, NULL); // used now: the last to leave a full cache
        return 0;
    }
    if (flock(p->fd, LOCK_EX | LOCK_NB) != 0) return kin_err_set(err, "%s: another kin is using it", p->path);
    if (existed) kin_log(KIN_LOG_WARN, "%s is damaged or was cut short: it is made anew", p->path);
    return begin_anew(p, err);
}

static uint64_t lay_out(unit *units, size_t n_units, const uint64_t *unit_bytes) {
    uint64_t offset = align_up(HEADER_BYTES + n_units * ENTRY_BYTES);
    for (size_t i = 0; i < n_units; i++) {
        units[i] = (unit){.offset = offset, .bytes = unit_bytes[i]};
        offset += align_up(unit_bytes[i]);
    }
    return offset;
}

// DIR/KEY.pack; false if that is no usable name.
static bool name_file(char *path, size_t n, const char *dir, kin_packed_key key) {
    int len = snprintf(path, n, "%s/%016llx-%016llx" KIN_PACKED_SUFFIX, dir, (unsigned long long)key.model,
                       (unsigned long long)key.variant);
    return dir[0] && len > 0 && (size_t)len < n;
}

bool kin_packed_exists(const char *dir, kin_packed_key key) {
    char path[1024];
    struct stat st;
    return name_file(path, sizeof path, dir, key) && stat(path, &st) == 0;
}

int kin_packed_open(kin_packed **out, const char *dir, kin_packed_key key, size_t n_units, const uint64_t *unit_bytes,
                    kin_err *err) {
    *out = NULL;
    kin_packed *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->fd = -1;
    p->key = key;
    p->n_units = n_units;
    p->units = calloc(n_units, sizeof *p->units);
    if (!p->units) {
        kin_err_set(err, "out of memory");
        goto fail;
    }
    p->file_bytes = lay_out(p->units, n_units, unit_bytes);

    if (!name_file(p->path, sizeof p->path, dir, key)) {
        kin_err_set(err, "'%.40s...' is no name for a folder: empty, or too long", dir);
        goto fail;
    }
    if (make_dir(dir, err) != 0 || open_file(p, err) != 0) goto fail;
    *out = p;
    return 0;

fail:
    kin_packed_close(p);
    return KIN_FAIL;
}

void kin_packed_close(kin_packed *p) {
    if (!p) return;
    if (p->fd >= 0) close(p->fd);
    free(p->units);
    free(p);
}

int kin_packed_fd(const kin_packed *p) {
    return p->fd;
}

const char *kin_packed_path(const kin_packed *p) {
    return p->path;
}

uint64_t kin_packed_offset(const kin_packed *p, size_t i) {
    return p->units[i].offset;
}

bool kin_packed_has(const kin_packed *p, size_t i) {
    return p->units[i].valid;
}

// Whoever writes must be the only one who has the file open; readers share it again after kin_packed_seal.
static int lock_for_writing(kin_packed *p, kin_err *err) {
    if (flock(p->fd, LOCK_EX | LOCK_NB) == 0) return 0;
    flock(p->fd, LOCK_SH | LOCK_NB); // the failed attempt took the shared lock away, which keeps others from cutting the file
    return kin_err_set(err, "%s: another kin is using it", p->path);
}

int kin_packed_write(kin_packed *p, size_t i, const void *bytes, kin_err *err) {
    unit *u = &p->units[i];
    if (lock_for_writing(p, err) != 0) return KIN_FAIL;
    for (uint64_t done = 0; done < u->bytes;) {
        ssize_t n = pwrite(p->fd, (const uint8_t *)bytes + done, u->bytes - done, (off_t)(u->offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return kin_err_set(err, "%s: %s", p->path, strerror(n == 0 ? ENOSPC : errno));
        done += (uint64_t)n;
    }
    u->hash = kin_hash64(bytes, u->bytes, 0);
    u->written = true;
    return 0;
}

int kin_packed_map(const kin_packed *p, size_t i, void *at, kin_err *err) {
    if (KIN_PACKED_ALIGN % kin_page_bytes() != 0)
        return kin_err_set(err, "%s: cannot be mapped in pages of %llu bytes", p->path, (unsigned long long)kin_page_bytes());
    kin_assert((uintptr_t)at % kin_page_bytes() == 0 && p->units[i].offset % kin_page_bytes() == 0);
    void *map = mmap(at, align_up(p->units[i].bytes), PROT_READ, MAP_SHARED | MAP_FIXED, p->fd, (off_t)p->units[i].offset);
    return map == at ? 0 : kin_err_set(err, "%s: cannot map: %s", p->path, strerror(errno));
}

static int write_seal(kin_packed *p, size_t i, kin_err *err) {
    const unit *u = &p->units[i];
    uint8_t entry[ENTRY_BYTES];
    kin_put_u64(entry, u->offset);
    kin_put_u64(entry + 8, u->bytes);
    kin_put_u64(entry + 16, u->hash);
    kin_put_u64(entry + 24, seal_of(p, entry));
    if (pwrite(p->fd, entry, sizeof entry, (off_t)(HEADER_BYTES + i * ENTRY_BYTES)) == sizeof entry) return 0;
    return kin_err_set(err, "%s: %s", p->path, strerror(errno));
}

int kin_packed_seal(kin_packed *p, kin_err *err) {
    int rc = fdatasync(p->fd) == 0 ? 0 : kin_err_set(err, "%s: %s", p->path, strerror(errno));
    for (size_t i = 0; i < p->n_units && rc == 0; i++) {
        unit *u = &p->units[i];
        if (!u->written) continue;
        rc = write_seal(p, i, err);
        u->valid = rc == 0;
        u->written = false;
    }
    if (rc == 0 && fdatasync(p->fd) != 0) rc = kin_err_set(err, "%s: %s", p->path, strerror(errno));
    flock(p->fd, LOCK_SH);
    return rc;
}
