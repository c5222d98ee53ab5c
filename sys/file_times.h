// The times of a file, which stat(2) names differently on macOS.
#ifndef KIN_SYS_FILE_TIMES_H
#define KIN_SYS_FILE_TIMES_H

#include <sys/stat.h>
#include <time.h>

// When it was last read, when its bytes were last written, when its inode last changed (no program can set that one back).
#ifdef __APPLE__
static inline struct timespec kin_file_read_time(const struct stat *st) {
    return st->st_atimespec;
}
static inline struct timespec kin_file_written_time(const struct stat *st) {
    return st->st_mtimespec;
}
static inline struct timespec kin_file_changed_time(const struct stat *st) {
    return st->st_ctimespec;
}
#else
static inline struct timespec kin_file_read_time(const struct stat *st) {
    return st->st_atim;
}
static inline struct timespec kin_file_written_time(const struct stat *st) {
    return st->st_mtim;
}
static inline struct timespec kin_file_changed_time(const struct stat *st) {
    return st->st_ctim;
}
#endif

#endif
