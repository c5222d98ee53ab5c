// Connections between the devices of a group, with TLS and a key that is no secret: socket pairs in one process, given to their
// exchanges; and sockets of the caller's.
//
// Owner: the test. Thread: one.
#pragma once

#include "pipeline/exchange.h"

// Two ends of a connection whose handshake is done.
int kin_group_mesh_connect(int fds[2], kin_tls *tls[2], kin_err *err);

// The handshake over a connected socket; waits for it.
int kin_group_mesh_shake_hands(int fd, bool is_client, kin_tls **tls, kin_err *err);

// All exchanges // [n] are in that place, but for their rank, and have connections to each other.
int kin_group_mesh_enter(kin_exchange *const *exchanges, const kin_exchange_place *place, kin_err *err);
// The same with sockets that take about so many bytes; 0: as they are.
int kin_group_mesh_enter_with_buffers(kin_exchange *const *exchanges, const kin_exchange_place *place, int n_bytes, kin_err *err);
