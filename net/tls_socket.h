// A connection that was a link (kin_link_release), for threads that poll it themselves: no loop, no frames.
//
// Owner and thread: the one thread that holds it. No function blocks; use poll to wait.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sys/tls.h"

enum { KIN_TLS_SOCKET_INPUT = 256 << 10 }; // most bytes per read

typedef struct kin_tls_socket {
    int fd; // -1: none
    kin_tls *tls;
    size_t n_sent;  // bytes of the TLS output already sent
    uint8_t *input; // [KIN_TLS_SOCKET_INPUT], for one read from the socket
} kin_tls_socket;

// Takes over fd and tls, even on failure.
int kin_tls_socket_open(kin_tls_socket *socket, int fd, kin_tls *tls, kin_err *err);
void kin_tls_socket_close(kin_tls_socket *socket); // a struct without a connection is allowed

// Sends pending TLS output as far as the OS accepts it. *moved: some bytes were accepted.
int kin_tls_socket_send(kin_tls_socket *socket, bool *moved, kin_err *err);
bool kin_tls_socket_has_to_send(const kin_tls_socket *socket);

// Receives up to n bytes; *n_read 0: nothing for now. Fails if the connection has ended.
int kin_tls_socket_receive(kin_tls_socket *socket, void *to, size_t n, size_t *n_read, kin_err *err);
