// Connections between the devices of a group, with TLS and a fixed key: socket pairs in one process, given to their exchanges;
// also the handshake over the caller's sockets.
//
// Owner: the test. Thread: one.
#pragma once

#include "pipeline/exchange.h"

// Makes the two ends of a connection and completes the handshake.
int kin_group_mesh_connect(int fds[2], kin_tls *tls[2], kin_err *err);

// Does the handshake over a connected socket; blocks until it is done.
int kin_group_mesh_shake_hands(int fd, bool is_client, kin_tls **tls, kin_err *err);

// Enters all exchanges // [n] into that place, each with its rank, and connects them to each other.
int kin_group_mesh_enter(kin_exchange *const *exchanges, const kin_exchange_place *place, kin_err *err);
// The same with socket buffers of about n_bytes; 0: default sizes.
int kin_group_mesh_enter_with_buffers(kin_exchange *const *exchanges, const kin_exchange_place *place, int n_bytes, kin_err *err);
