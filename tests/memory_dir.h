// The folder for tests that create and remove thousands of small files and do not need a real disk. ext4 searches past all inodes
// that were freed in the last five seconds for each new file, which took half of such a test's time.
#pragma once

#include <unistd.h>

static inline const char *memory_dir(void) {
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}
