// A connection that was a link (kin_link_take), for threads that wait for it themselves: no loop, no frames.
//
// Owner and thread: whoever has it, one at a time. Nothing here blocks; poll says when there is more to do.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sys/tls.h"

enum { KIN_TLS_SOCKET_INPUT = 256 << 10 }; // bytes that one read takes at most

typedef struct kin_tls_socket {
    int fd; // -1: none
    kin_tls *tls;
    size_t n_sent;  // of the TLS output
    uint8_t *input; // [KIN_TLS_SOCKET_INPUT], one read from the socket
} kin_tls_socket;

// Takes over fd and tls, also where it fails.
int kin_tls_socket_open(kin_tls_socket *socket, int fd, kin_tls *tls, kin_err *err);
void kin_tls_socket_close(kin_tls_socket *socket); // one without a connection is allowed

// What TLS has to send, as far as the OS takes it. *moved: it took something.
int kin_tls_socket_send(kin_tls_socket *socket, bool *moved, kin_err *err);
bool kin_tls_socket_has_to_send(const kin_tls_socket *socket);

// Up to n bytes of what has come; *n_read 0: nothing for now. Fails where the connection has ended.
int kin_tls_socket_receive(kin_tls_socket *socket, void *to, size_t n, size_t *n_read, kin_err *err);
