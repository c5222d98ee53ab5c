// Connections between the devices of a group in one process: socket pairs with TLS, given to their exchanges.
//
// Owner: the test. Thread: one.
#pragma once

#include "pipeline/exchange.h"

// Two ends of a connection whose handshake is done.
int kin_group_mesh_connect(int fds[2], kin_tls *tls[2], kin_err *err);

// All exchanges // [n] are in that place, but for their rank, and have connections to each other.
int kin_group_mesh_enter(kin_exchange *const *exchanges, const kin_exchange_place *place, kin_err *err);
