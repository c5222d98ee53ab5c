// The transport over TCP, with TLS 1.3 and the cluster's key (sys/tls.h). SIGPIPE is blocked in the thread that opens a stream.
#pragma once

#include "net/transport.h"

extern const kin_transport kin_transport_tcp;
