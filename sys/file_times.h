// A file's timestamps, which stat(2) names differently on macOS.
#ifndef KIN_SYS_FILE_TIMES_H
#define KIN_SYS_FILE_TIMES_H

#include <sys/stat.h>
#include <time.h>

// Times of the last read, the last write of its bytes, and the last change of its inode (which no program can set back).
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
