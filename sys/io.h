// Reads and writes of files that go on where pread() and pwrite() stop early: after a signal, or with a part. And the signal that
// writes to connections raise.
//
// Thread: any. Blocking.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

// Up to n bytes from `at` on; fewer only where the file ends. KIN_FAIL: errno says why.
ssize_t kin_io_read(int fd, void *to, size_t n, uint64_t at);

// The same, but satisfied with `least` bytes: O_DIRECT cannot go on behind the end of a file that is no whole block.
ssize_t kin_io_read_least(int fd, void *to, size_t n, size_t least, uint64_t at);

// All n bytes. KIN_FAIL: errno says why.
int kin_io_write(int fd, const void *from, size_t n, uint64_t at);

// Bytes that were written to a connection and that the other side has not acknowledged yet; 0: none, or not known here.
size_t kin_io_unacknowledged(int fd);

// Of a TCP connection: the other side may have no more than so many bytes under way; 0: as many as the OS likes. Nothing happens
// where the OS has no such thing.
void kin_io_take_at_most(int fd, size_t n);

// What was written is safe on the disk when it returns. KIN_FAIL: errno says why.
int kin_io_sync(int fd);

// In this thread. libuv writes with write(): a connection that the other side has closed would end the process.
void kin_io_block_sigpipe(void);
