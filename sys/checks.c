#include "sys/checks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "sys/file_times.h"
#include "sys/whole_file.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

static const char magic[8] = {'k', 'i', 'n', 'c', 'h', 'k', 'd', '1'};

enum { HEADER_BYTES = 24, HASH_BYTES = 8, PARTS_MAX = 1 << 24, BOOT_TEXT = 64 };

// ---- states

uint64_t kin_file_stamp(int fd, uint64_t seed) {
    struct stat st;
    if (seed == 0 || fstat(fd, &st) != 0) return 0;
    struct timespec written = kin_file_written_time(&st), changed = kin_file_changed_time(&st);
    const uint64_t facts[] = {(uint64_t)st.st_ino,       (uint64_t)st.st_size,     (uint64_t)written.tv_sec,
                              (uint64_t)written.tv_nsec, (uint64_t)changed.tv_sec, (uint64_t)changed.tv_nsec};
    uint64_t stamp = kin_hash64(facts, sizeof facts, seed);
    return stamp ? stamp : 1;
}

// Reads an id that changes with every boot. Empty if the system has none.
static void read_boot(char text[BOOT_TEXT]) {
    memset(text, 0, BOOT_TEXT);
#ifdef __APPLE__
    size_t n = BOOT_TEXT - 1;
    if (sysctlbyname("kern.bootsessionuuid", text, &n, NULL, 0) != 0) text[0] = '\0';
#else
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (read(fd, text, BOOT_TEXT - 1) < 0) text[0] = '\0';
    close(fd);
#endif
}

uint64_t kin_checks_state(uint64_t stamp) {
    char boot[BOOT_TEXT];
    read_boot(boot);
    if (!boot[0] || stamp == 0) return 0;
    uint64_t state = kin_hash64(boot, sizeof boot, stamp);
    return state ? state : 1;
}

// ---- records

static size_t bits_bytes(size_t n) {
    return (n + 7) / 8;
}

void kin_checks_load(uint8_t *bits, size_t n, const char *path, uint64_t state) {
    uint8_t *bytes;
    size_t n_bytes, body = HEADER_BYTES + bits_bytes(n);
    if (state == 0 || n > PARTS_MAX || kin_whole_file_read(path, body + HASH_BYTES, &bytes, &n_bytes, NULL) != 0) return;
    bool sound = n_bytes == body + HASH_BYTES && memcmp(bytes, magic, sizeof magic) == 0 && kin_get_u64(bytes + 8) == state &&
                 kin_get_u64(bytes + 16) == n && kin_get_u64(bytes + body) == kin_hash64(bytes, body, 0);
    for (size_t i = 0; i < bits_bytes(n) && sound; i++) bits[i] |= bytes[HEADER_BYTES + i];
    free(bytes);
}

int kin_checks_save(const uint8_t *bits, size_t n, const char *path, uint64_t state, kin_err *err) {
    size_t body = HEADER_BYTES + bits_bytes(n);
    if (state == 0 || n > PARTS_MAX) return 0;
    uint8_t *bytes = calloc(1, body + HASH_BYTES);
    if (!bytes) return kin_err_set(err, "out of memory");
    memcpy(bytes, magic, sizeof magic);
    kin_put_u64(bytes + 8, state);
    kin_put_u64(bytes + 16, n);
    memcpy(bytes + HEADER_BYTES, bits, bits_bytes(n));
    kin_checks_load(bytes + HEADER_BYTES, n, path, state);
    kin_put_u64(bytes + body, kin_hash64(bytes, body, 0));
    int rc = kin_whole_file_write(path, bytes, body + HASH_BYTES, err);
    free(bytes);
    return rc;
}
