// File reads and writes that continue when pread() or pwrite() stops early: after a signal or a partial transfer. Also socket
// queries, and blocking of SIGPIPE.
//
// Thread: any. Blocking.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

// Reads up to n bytes from offset `at`; fewer only at the end of the file. On KIN_FAIL errno has the reason.
ssize_t kin_io_read(int fd, void *to, size_t n, uint64_t at);

// The same, but stops after `least` bytes: O_DIRECT cannot continue past an end of file that is not block-aligned.
ssize_t kin_io_read_least(int fd, void *to, size_t n, size_t least, uint64_t at);

// Writes all n bytes. On KIN_FAIL errno has the reason.
int kin_io_write(int fd, const void *from, size_t n, uint64_t at);

// Returns the bytes written to a connection that the peer has not acknowledged; 0: none, or unknown on this system.
size_t kin_io_unacknowledged(int fd);

// Limits the receive window of a TCP connection, so that the peer has at most n bytes in flight; 0: the OS decides. Has no effect
// if the OS does not support it.
void kin_io_limit_window(int fd, size_t n);

// Returns when all written data is safe on the disk. On KIN_FAIL errno has the reason.
int kin_io_sync(int fd);

// Blocks SIGPIPE in this thread. libuv writes with write(): a connection closed by the peer would otherwise kill the process.
void kin_io_block_sigpipe(void);
