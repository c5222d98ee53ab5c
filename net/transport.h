// A transport: opens and carries byte streams between two processes. A link (net/link.h) turns them into frames.
//
// Threads: there are no locks. A transport, its acceptors and its streams belong to one loop's thread, for every operation and
// callback. Callbacks come from the loop, except that `ended` may also be called inside connect, accept, write, flush and finish.
// All operations may be called inside callbacks. After close or unlisten no callback comes; the memory is freed once the loop has
// run again.
//
// A stream identifies its peer only as far as the transport can: by the shared key and the address. OPEN and ACCEPT identify the
// device (net/dial.h).
//
// Implementations: net/transport_tcp.h, and for tests testkit/pair_transport.h. A new one is another such table;
// kin_link_options.transport selects it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "sys/tls.h"

typedef struct kin_transport kin_transport;

// Base structs: the first member of each implementation's struct.
typedef struct kin_byte_stream {
    const kin_transport *transport;
} kin_byte_stream;

typedef struct kin_acceptor {
    const kin_transport *transport;
} kin_acceptor;

typedef struct kin_byte_stream_options {
    kin_tls_ctx *tls; // borrowed until the loop has released the stream
    uint32_t handshake_ms;
} kin_byte_stream_options;

typedef struct kin_byte_stream_callbacks {
    void (*opened)(void *user);                    // the peer has the same key; writing is possible now
    void (*readable)(void *user);                  // data arrived: read until there is no more
    void (*written)(void *user);                   // fewer bytes are waiting than before
    void (*ended)(void *user, const char *reason); // the stream has ended by itself; close it
} kin_byte_stream_callbacks;

typedef struct kin_byte_stream_counts {
    uint64_t in, out; // bytes on the wire
    size_t waiting;   // bytes written but not yet sent
} kin_byte_stream_counts;

// error NULL: a connection arrived and must be accepted inside this call. Otherwise a connection attempt failed.
typedef void (*kin_acceptor_connected)(void *user, kin_acceptor *acceptor, const char *error);

struct kin_transport {
    // ---- opening. Fails only for local reasons; other failures are reported to `ended`. *out is set before that

    // address: a name or a numeric address; of a name's addresses the first that answers is used.
    int (*connect)(kin_byte_stream **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                   const kin_byte_stream_options *options, const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err);
    // address: numeric; NULL: all of the machine. port 0: any free port.
    int (*listen)(kin_acceptor **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                  kin_acceptor_connected connected, void *user, kin_err *err);
    int (*accept)(kin_byte_stream **out, kin_acceptor *acceptor, const kin_byte_stream_options *options,
                  const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err);
    uint16_t (*port)(const kin_acceptor *acceptor);
    void (*unlisten)(kin_acceptor *acceptor);

    // ---- an open stream

    // Accepts all n bytes. Long writes start sending at once, short ones on `flush`, so that a small frame is one write.
    int (*write)(kin_byte_stream *stream, const void *bytes, size_t n, kin_err *err);
    void (*flush)(kin_byte_stream *stream);
    // Reads up to n available bytes; *n_read 0: no more for now.
    int (*read)(kin_byte_stream *stream, void *buf, size_t n, size_t *n_read, kin_err *err);
    // Ends the sending side: the peer is told once all data is sent. Data received from now on is dropped. `ended` also comes
    // when the peer has closed.
    void (*finish)(kin_byte_stream *stream);

    // ---- a stream in any state

    void (*close)(kin_byte_stream *stream); // drops waiting data
    // Called several times per second until `opened`, to detect timeouts.
    void (*tick)(kin_byte_stream *stream, uint64_t now_ns);
    kin_byte_stream_counts (*counts)(const kin_byte_stream *stream);
    // Returns the bytes sent that the peer has not acknowledged; 0: none, or unknown.
    size_t (*unacknowledged)(const kin_byte_stream *stream);
    // Limits the bytes that the peer has in flight towards us (0: the OS decides), as far as the OS supports it.
    void (*limit_window)(kin_byte_stream *stream, size_t n);
    // Ends the stream like close, but keeps the connection: the caller owns *fd, which is non-blocking, and *tls, which holds
    // data received but not read. Requires an open stream with no waiting output.
    int (*release)(kin_byte_stream *stream, int *fd, kin_tls **tls, kin_err *err);
    kin_tls_fault (*fault)(const kin_byte_stream *stream); // reason for a failed handshake
    // Identify the peer: "192.168.1.7:4100", or before it is connected the address given to connect; and the numeric address
    // alone. Valid as long as the stream.
    const char *(*name)(const kin_byte_stream *stream);
    const char *(*address)(const kin_byte_stream *stream);
};
