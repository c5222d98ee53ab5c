#include "engine/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "engine/stream.h"
#include "sys/checks.h"
#include "sys/direct.h"
#include "sys/io.h"
#include "sys/pages.h"
#include "sys/whole_file.h"

static const char magic[8] = {'k', 'i', 'n', 'p', 'a', 'c', 'k', '4'};

enum { HEADER_BYTES = 64, HEADER_HASHED = 40, ENTRY_BYTES = 48, ENTRY_SEALED = 40 };

typedef struct block {
    uint64_t offset;
    uint64_t bytes;
    bool valid;            // sealed in the file
    bool written;          // by this process, not sealed yet
    bool checked;          // the content matches its hash
    uint64_t hash;         // of the content
    uint64_t source_hash;  // hash of the weights that it was made from
    uint64_t source_stamp; // stamp of the files that they were in
} block;

struct kin_packed {
    char path[1024];
    int fd;
    kin_packed_key key;
    uint64_t source_stamp;
    uint64_t state; // state of the file when it was opened
    uint64_t file_bytes;
    size_t n_blocks;
    block *blocks;
    pthread_mutex_t mutex; // guards the blocks' fields, sealing and repairing

    int n_users; // guarded by `shared_mutex`, like the list
    kin_packed *next;
};

// Open files that are shared within this process.
static pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;
static kin_packed *shared;

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
    kin_put_u64(header + 16, p->n_blocks);
    kin_put_u64(header + 24, p->key.model);
    kin_put_u64(header + 32, p->key.variant);
    kin_put_u64(header + 40, kin_hash64(header, HEADER_HASHED, 0));
}

// Reads the entries of a file with the expected header; returns false if the file is not what this version would have written.
static bool read_existing(kin_packed *p) {
    struct stat st;
    uint8_t header[HEADER_BYTES], expected[HEADER_BYTES];
    if (fstat(p->fd, &st) != 0 || (uint64_t)st.st_size != p->file_bytes) return false;
    encode_header(p, expected);
    if (pread(p->fd, header, sizeof header, 0) != sizeof header || memcmp(header, expected, sizeof header) != 0) return false;

    for (size_t i = 0; i < p->n_blocks; i++) {
        uint8_t entry[ENTRY_BYTES];
        if (pread(p->fd, entry, sizeof entry, (off_t)(HEADER_BYTES + i * ENTRY_BYTES)) != sizeof entry) return false;
        block *b = &p->blocks[i];
        b->hash = kin_get_u64(entry + 16);
        b->source_hash = kin_get_u64(entry + 24);
        b->source_stamp = kin_get_u64(entry + 32);
        b->valid = kin_get_u64(entry) == b->offset && kin_get_u64(entry + 8) == b->bytes &&
                   kin_get_u64(entry + ENTRY_SEALED) == seal_of(p, entry);
    }
    return true;
}

// True if the file begins like that of an earlier or later format; its name says that it is a cache file.
static bool is_of_another_format(const kin_packed *p) {
    char begin[sizeof magic];
    return pread(p->fd, begin, sizeof begin, 0) == sizeof begin && memcmp(begin, magic, sizeof magic - 1) == 0 &&
           begin[sizeof magic - 1] >= '0' && begin[sizeof magic - 1] <= '9' && begin[sizeof magic - 1] != magic[sizeof magic - 1];
}

static int begin_anew(kin_packed *p, kin_err *err) {
    uint8_t header[HEADER_BYTES];
    encode_header(p, header);
    for (size_t i = 0; i < p->n_blocks; i++) p->blocks[i].valid = false;
    if (ftruncate(p->fd, 0) != 0 || ftruncate(p->fd, (off_t)p->file_bytes) != 0 ||
        pwrite(p->fd, header, sizeof header, 0) != sizeof header) {
        return kin_err_set(err, "%s: %s", p->path, strerror(errno));
    }
    return 0;
}

// ---- record of checked blocks

typedef struct note_path {
    char text[1024 + sizeof KIN_PACKED_CHECKED_SUFFIX];
} note_path;

static note_path name_note(const kin_packed *p) {
    note_path path;
    snprintf(path.text, sizeof path.text, "%s" KIN_PACKED_CHECKED_SUFFIX, p->path);
    return path;
}

// The mtime of the record is the last use: changing the cache file's own mtime would look like a change of its content.
static void touch_note(const kin_packed *p) {
    int fd = open(name_note(p).text, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return;
    futimens(fd, NULL);
    close(fd);
}

static void load_checks(kin_packed *p) {
    uint8_t *bits = calloc(p->n_blocks / 8 + 1, 1);
    p->state = kin_checks_state(kin_file_stamp(p->fd, 1));
    if (bits) kin_checks_load(bits, p->n_blocks, name_note(p).text, p->state);
    for (size_t i = 0; i < p->n_blocks && bits; i++) p->blocks[i].checked = kin_checks_has(bits, i);
    free(bits);
}

static void save_checks(const kin_packed *p) {
    kin_err err;
    uint8_t *bits = calloc(p->n_blocks / 8 + 1, 1), *before = calloc(p->n_blocks / 8 + 1, 1);
    if (bits && before && p->fd >= 0 && kin_checks_state(kin_file_stamp(p->fd, 1)) == p->state) {
        for (size_t i = 0; i < p->n_blocks; i++) {
            if (p->blocks[i].valid && p->blocks[i].checked) kin_checks_add(bits, i);
        }
        kin_checks_load(before, p->n_blocks, name_note(p).text, p->state);
        bool has_more = false;
        for (size_t i = 0; i < p->n_blocks / 8 + 1; i++) has_more = has_more || (bits[i] & ~before[i]);
        if (has_more && kin_checks_save(bits, p->n_blocks, name_note(p).text, p->state, &err) != 0)
            kin_log(KIN_LOG_DEBUG, "%s", err.text); // the next start checks again
    }
    free(before);
    free(bits);
}

// ---- open and close

static int open_file(kin_packed *p, kin_err *err) {
    const int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC; // do not wait for a FIFO in its place
    p->fd = open(p->path, flags | O_RDWR | O_CREAT, 0644);
    // On a read-only disk, or in a folder of another user, an existing file can still be used.
    if (p->fd < 0 && (errno == EROFS || errno == EACCES || errno == EPERM)) p->fd = open(p->path, flags | O_RDONLY);
    if (p->fd < 0 && errno == ELOOP) return kin_err_set(err, "%s: is a symbolic link; remove it", p->path);
    if (p->fd < 0) return kin_err_set(err, "%s: %s", p->path, strerror(errno));
    struct stat st;
    if (fstat(p->fd, &st) != 0) return kin_err_set(err, "%s: %s", p->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return kin_err_set(err, "%s: is not a regular file; remove it", p->path);
    bool existed = st.st_size > 0;

    // Readers share the file; a writer needs it exclusively.
    if (flock(p->fd, LOCK_SH | LOCK_NB) != 0) return kin_err_set(err, "%s: being written by another kin", p->path);
    touch_note(p);
    if (existed && read_existing(p)) {
        load_checks(p);
        return 0;
    }
    if (flock(p->fd, LOCK_EX | LOCK_NB) != 0) return kin_err_set(err, "%s: in use by another kin", p->path);
    if (existed && !is_of_another_format(p)) kin_log(KIN_LOG_WARN, "%s is damaged or truncated; creating it again", p->path);
    return begin_anew(p, err);
}

static uint64_t lay_out(block *blocks, size_t n_blocks, const uint64_t *block_bytes) {
    uint64_t offset = align_up(HEADER_BYTES + n_blocks * ENTRY_BYTES);
    for (size_t i = 0; i < n_blocks; i++) {
        blocks[i] = (block){.offset = offset, .bytes = block_bytes[i]};
        offset += align_up(block_bytes[i]);
    }
    return offset;
}

// Forms DIR/KEY.pack; returns false if that is no usable name.
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

static void free_packed(kin_packed *p) {
    if (p->state) save_checks(p);
    if (p->fd >= 0) close(p->fd);
    pthread_mutex_destroy(&p->mutex);
    free(p->blocks);
    free(p);
}

static kin_packed *find_shared(const char *path, uint64_t source_stamp, size_t n_blocks, const uint64_t *block_bytes) {
    for (kin_packed *p = shared; p; p = p->next) {
        bool is_same = strcmp(p->path, path) == 0 && p->source_stamp == source_stamp && p->n_blocks == n_blocks;
        for (size_t i = 0; i < n_blocks && is_same; i++) is_same = p->blocks[i].bytes == block_bytes[i];
        if (is_same) return p;
    }
    return NULL;
}

int kin_packed_open(kin_packed **out, const char *dir, kin_packed_key key, uint64_t source_stamp, size_t n_blocks,
                    const uint64_t *block_bytes, kin_err *err) {
    *out = NULL;
    kin_packed *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->fd = -1;
    pthread_mutex_init(&p->mutex, NULL);
    p->key = key;
    p->source_stamp = source_stamp;
    p->n_blocks = n_blocks;
    p->blocks = calloc(n_blocks, sizeof *p->blocks);
    if (!p->blocks) {
        kin_err_set(err, "out of memory");
        goto fail;
    }
    p->file_bytes = lay_out(p->blocks, n_blocks, block_bytes);

    if (!name_file(p->path, sizeof p->path, dir, key)) {
        kin_err_set(err, "'%.40s...' is not a directory name: empty or too long", dir);
        goto fail;
    }
    if (kin_folder_make(dir, err) != 0 || open_file(p, err) != 0) goto fail;
    *out = p;
    return 0;

fail:
    free_packed(p);
    return KIN_FAIL;
}

int kin_packed_share(kin_packed **out, const char *dir, kin_packed_key key, uint64_t source_stamp, size_t n_blocks,
                     const uint64_t *block_bytes, kin_err *err) {
    char path[1024];
    int rc = 0;
    pthread_mutex_lock(&shared_mutex);
    *out = name_file(path, sizeof path, dir, key) ? find_shared(path, source_stamp, n_blocks, block_bytes) : NULL;
    if (!*out) {
        rc = kin_packed_open(out, dir, key, source_stamp, n_blocks, block_bytes, err);
        if (rc == 0) (*out)->next = shared;
        if (rc == 0) shared = *out;
    }
    if (*out) (*out)->n_users++;
    pthread_mutex_unlock(&shared_mutex);
    return rc;
}

void kin_packed_close(kin_packed *p) {
    if (!p) return;
    pthread_mutex_lock(&shared_mutex);
    if (p->n_users == 0 || --p->n_users == 0) {
        kin_packed **at = &shared;
        while (*at && *at != p) at = &(*at)->next;
        if (*at) *at = p->next;
        free_packed(p);
    }
    pthread_mutex_unlock(&shared_mutex);
}

int kin_packed_fd(const kin_packed *p) {
    return p->fd;
}

const char *kin_packed_path(const kin_packed *p) {
    return p->path;
}

kin_packed_key kin_packed_get_key(const kin_packed *p) {
    return p->key;
}

uint64_t kin_packed_offset(const kin_packed *p, size_t i) {
    return p->blocks[i].offset;
}

bool kin_packed_has(kin_packed *p, size_t i) {
    pthread_mutex_lock(&p->mutex);
    bool has = p->blocks[i].valid;
    pthread_mutex_unlock(&p->mutex);
    return has;
}

// ---- trusting blocks

// Writes an entry with its seal, or with zeros in its place. This and the next two functions need the mutex held.
static int write_entry(kin_packed *p, size_t i, bool sealed, kin_err *err) {
    const block *b = &p->blocks[i];
    uint8_t entry[ENTRY_BYTES];
    kin_put_u64(entry, b->offset);
    kin_put_u64(entry + 8, b->bytes);
    kin_put_u64(entry + 16, b->hash);
    kin_put_u64(entry + 24, b->source_hash);
    kin_put_u64(entry + 32, b->source_stamp);
    kin_put_u64(entry + ENTRY_SEALED, sealed ? seal_of(p, entry) : 0);
    if (pwrite(p->fd, entry, sizeof entry, (off_t)(HEADER_BYTES + i * ENTRY_BYTES)) == sizeof entry) return 0;
    return kin_err_set(err, "%s: %s", p->path, strerror(errno));
}

// Marks the block as absent, also for later starts. If that cannot be written, the next start finds the damage again.
static void drop_unit(kin_packed *p, size_t i) {
    kin_err err;
    p->blocks[i].valid = p->blocks[i].checked = false;
    if (write_entry(p, i, false, &err) != 0) kin_log(KIN_LOG_DEBUG, "%s", err.text);
}

static bool renew(kin_packed *p, size_t i, uint64_t source_hash) {
    kin_err err;
    block *b = &p->blocks[i];
    if (b->source_hash != source_hash) {
        drop_unit(p, i);
        return false;
    }
    b->source_stamp = p->source_stamp;
    if (write_entry(p, i, true, &err) != 0) kin_log(KIN_LOG_DEBUG, "%s", err.text); // the next start compares again
    return true;
}

bool kin_packed_is_current(kin_packed *p, size_t i) {
    pthread_mutex_lock(&p->mutex);
    bool is = p->source_stamp == 0 || p->blocks[i].source_stamp == p->source_stamp;
    pthread_mutex_unlock(&p->mutex);
    return is;
}

bool kin_packed_renew(kin_packed *p, size_t i, uint64_t source_hash) {
    pthread_mutex_lock(&p->mutex);
    bool is_same = renew(p, i, source_hash);
    pthread_mutex_unlock(&p->mutex);
    return is_same;
}

bool kin_packed_is_checked(kin_packed *p, size_t i) {
    pthread_mutex_lock(&p->mutex);
    bool is = p->blocks[i].checked || p->blocks[i].written;
    pthread_mutex_unlock(&p->mutex);
    return is;
}

// In pieces, so that it can also be computed while reading in pieces.
uint64_t kin_packed_hash(const void *bytes, size_t n, uint64_t seed) {
    for (size_t at = 0; at < n; at += KIN_PACKED_PIECE)
        seed = kin_hash64((const uint8_t *)bytes + at, n - at < KIN_PACKED_PIECE ? n - at : KIN_PACKED_PIECE, seed);
    return seed;
}

static kin_packed_result judge(kin_packed *p, size_t i, uint64_t hash) {
    pthread_mutex_lock(&p->mutex);
    bool is_sound = hash == p->blocks[i].hash;
    if (is_sound)
        p->blocks[i].checked = true;
    else
        drop_unit(p, i);
    pthread_mutex_unlock(&p->mutex);
    return is_sound ? KIN_PACKED_SOUND : KIN_PACKED_DAMAGED;
}

static kin_packed_result check_file(kin_packed *p, size_t i, int fd, const atomic_bool *stop) {
    const block *b = &p->blocks[i];
    uint64_t hash = 0;
    void *piece;
    if (posix_memalign(&piece, KIN_STREAM_ALIGN, KIN_PACKED_PIECE) != 0) return KIN_PACKED_STOPPED;
    for (uint64_t at = 0; at < b->bytes; at += KIN_PACKED_PIECE) {
        size_t n = b->bytes - at < KIN_PACKED_PIECE ? (size_t)(b->bytes - at) : KIN_PACKED_PIECE;
        size_t aligned = (n + KIN_STREAM_ALIGN - 1) / KIN_STREAM_ALIGN * KIN_STREAM_ALIGN;
        // O_DIRECT needs aligned sizes; the file has these bytes, because it ends at a multiple of KIN_PACKED_ALIGN.
        if ((stop && atomic_load(stop)) || kin_io_read(fd, piece, aligned, b->offset + at) != (ssize_t)aligned) {
            free(piece);
            return KIN_PACKED_STOPPED;
        }
        hash = kin_hash64(piece, n, hash);
    }
    free(piece);
    return judge(p, i, hash);
}

kin_packed_result kin_packed_check(kin_packed *p, size_t i, const void *bytes) {
    return bytes ? judge(p, i, kin_packed_hash(bytes, p->blocks[i].bytes, 0)) : check_file(p, i, p->fd, NULL);
}

kin_packed_result kin_packed_check_behind(kin_packed *p, size_t i, const atomic_bool *stop) {
    int direct = kin_direct_open(p->fd);
    kin_packed_result result = check_file(p, i, direct >= 0 ? direct : p->fd, stop);
    if (direct >= 0) close(direct);
    return result;
}

// ---- writing

// A writer must be the only process that has the file open; readers share it again after kin_packed_seal.
static int lock_for_writing(kin_packed *p, kin_err *err) {
    if (flock(p->fd, LOCK_EX | LOCK_NB) == 0) return 0;
    flock(p->fd, LOCK_SH | LOCK_NB); // the failed attempt dropped the shared lock, which keeps others from truncating the file
    return kin_err_set(err, "%s: in use by another kin", p->path);
}

// Linux caches a file in pages as large as each write or read made them: if two blocks share a huge page, each would write its
// part into small pages. Reading the place first, while it is empty, creates the huge page that both then write into.
static void make_huge_page(const kin_packed *p, uint64_t at) {
    void *map = mmap(NULL, KIN_HUGE_PAGE, PROT_READ, MAP_SHARED, p->fd, (off_t)at);
    if (map == MAP_FAILED) return;
    if (kin_pages_advise_huge(map, KIN_HUGE_PAGE)) kin_pages_fetch(map, 1, true);
    munmap(map, KIN_HUGE_PAGE);
}

static void make_huge_pages(const kin_packed *p, uint64_t begin, uint64_t end) {
    uint64_t first = begin / KIN_HUGE_PAGE * KIN_HUGE_PAGE, last = (end - 1) / KIN_HUGE_PAGE * KIN_HUGE_PAGE;
    if (begin == end) return;
    make_huge_page(p, first);
    if (last > first) make_huge_page(p, last);
}

int kin_packed_write_part(kin_packed *p, size_t i, const void *bytes, uint64_t begin, uint64_t end, uint64_t *hash,
                          kin_err *err) {
    const block *b = &p->blocks[i];
    if (lock_for_writing(p, err) != 0) return KIN_FAIL;
    make_huge_pages(p, b->offset + begin, b->offset + end);
    if (kin_io_write(p->fd, bytes, end - begin, b->offset + begin) != 0)
        return kin_err_set(err, "%s: %s", p->path, strerror(errno));
    *hash = kin_packed_hash(bytes, end - begin, *hash);
    return 0;
}

static int write_content(kin_packed *p, size_t i, const void *bytes, uint64_t *hash, kin_err *err) {
    *hash = 0;
    return kin_packed_write_part(p, i, bytes, 0, p->blocks[i].bytes, hash, err);
}

static void note_content(kin_packed *p, size_t i, uint64_t hash, uint64_t source_hash) {
    block *b = &p->blocks[i];
    b->hash = hash;
    b->source_hash = source_hash;
    b->source_stamp = p->source_stamp;
}

void kin_packed_note_written(kin_packed *p, size_t i, uint64_t hash, uint64_t source_hash) {
    pthread_mutex_lock(&p->mutex);
    note_content(p, i, hash, source_hash);
    p->blocks[i].written = true;
    pthread_mutex_unlock(&p->mutex);
}

// Two threads may write a block at the same time, with the same bytes.
int kin_packed_write(kin_packed *p, size_t i, const void *bytes, uint64_t source_hash, kin_err *err) {
    uint64_t hash;
    if (write_content(p, i, bytes, &hash, err) != 0) return KIN_FAIL;
    kin_packed_note_written(p, i, hash, source_hash);
    return 0;
}

int kin_packed_map(const kin_packed *p, size_t i, void *at, kin_err *err) {
    if (KIN_PACKED_ALIGN % kin_page_bytes() != 0)
        return kin_err_set(err, "%s: cannot be mapped in pages of %llu bytes", p->path, (unsigned long long)kin_page_bytes());
    kin_assert((uintptr_t)at % kin_page_bytes() == 0 && p->blocks[i].offset % kin_page_bytes() == 0);
    void *map = mmap(at, align_up(p->blocks[i].bytes), PROT_READ, MAP_SHARED | MAP_FIXED, p->fd, (off_t)p->blocks[i].offset);
    return map == at ? 0 : kin_err_set(err, "%s: cannot map: %s", p->path, strerror(errno));
}

static int sync_file(const kin_packed *p, kin_err *err) {
    return kin_io_sync(p->fd) == 0 ? 0 : kin_err_set(err, "%s: %s", p->path, strerror(errno));
}

int kin_packed_mend(kin_packed *p, size_t i, const void *bytes, uint64_t source_hash, kin_err *err) {
    uint64_t hash = 0;
    pthread_mutex_lock(&p->mutex);
    int rc = write_content(p, i, bytes, &hash, err);
    if (rc == 0) note_content(p, i, hash, source_hash);
    if (rc == 0) rc = sync_file(p, err);
    if (rc == 0) rc = write_entry(p, i, true, err);
    p->blocks[i].valid = p->blocks[i].checked = rc == 0;
    flock(p->fd, LOCK_SH);
    pthread_mutex_unlock(&p->mutex);
    return rc;
}

int kin_packed_seal(kin_packed *p, kin_err *err) {
    pthread_mutex_lock(&p->mutex);
    int rc = sync_file(p, err);
    for (size_t i = 0; i < p->n_blocks && rc == 0; i++) {
        block *b = &p->blocks[i];
        if (!b->written) continue;
        rc = write_entry(p, i, true, err);
        b->valid = b->checked = rc == 0; // the content was written from memory just now
        b->written = false;
    }
    if (rc == 0) rc = sync_file(p, err);
    flock(p->fd, LOCK_SH);
    pthread_mutex_unlock(&p->mutex);
    return rc;
}
