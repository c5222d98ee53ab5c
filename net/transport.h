// A transport: how streams of bytes between two processes are opened and carried. A link (net/link.h) makes frames of them.
//
// Locks and threads: there are no locks. A transport, its acceptors and its streams belong to the thread of one loop, for every
// operation and callback.
// Callbacks come from the loop, but for `ended`, which may also come inside of connect, accept, write, flush and finish. Inside
// of all callbacks every operation may be called. After close or unlisten nothing is called; the memory goes when the loop has
// run once more.
//
// A stream says who is at its other end only as far as the transport knows: that it has the same key, and its address. Which
// device it is, OPEN and ACCEPT say (net/dial.h).
//
// Implementations: net/transport_tcp.h, and for tests testkit/pair_transport.h. A new one is a table like theirs;
// kin_link_options.transport chooses.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "sys/tls.h"

typedef struct kin_transport kin_transport;

// Both are the beginning of an implementation's struct.
typedef struct kin_byte_stream {
    const kin_transport *transport;
} kin_byte_stream;

typedef struct kin_acceptor {
    const kin_transport *transport;
} kin_acceptor;

typedef struct kin_byte_stream_options {
    kin_tls_ctx *tls; // borrowed until the stream is gone from the loop
    uint32_t handshake_ms;
} kin_byte_stream_options;

typedef struct kin_byte_stream_callbacks {
    void (*opened)(void *user);                    // the other side has the same key. Now bytes can be written
    void (*readable)(void *user);                  // bytes have come: read until there are none
    void (*written)(void *user);                   // less waits than before
    void (*ended)(void *user, const char *reason); // it has ended by itself; it is to be closed
} kin_byte_stream_callbacks;

typedef struct kin_byte_stream_counts {
    uint64_t in, out; // bytes on the wire
    size_t waiting;   // bytes that were written and are not yet out
} kin_byte_stream_counts;

// error NULL: somebody has connected, and is to be accepted inside of this call. Else: somebody could not.
typedef void (*kin_acceptor_connected)(void *user, kin_acceptor *acceptor, const char *error);

struct kin_transport {
    // ---- opening. They fail only on what is wrong here; everything else is told to `ended`. *out is set before that

    // address: numbers or a name; of a name's addresses the first that answers.
    int (*connect)(kin_byte_stream **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                   const kin_byte_stream_options *options, const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err);
    // address: numbers; NULL: all of the machine. port 0: any free one.
    int (*listen)(kin_acceptor **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                  kin_acceptor_connected connected, void *user, kin_err *err);
    int (*accept)(kin_byte_stream **out, kin_acceptor *acceptor, const kin_byte_stream_options *options,
                  const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err);
    uint16_t (*port)(const kin_acceptor *acceptor);
    void (*unlisten)(kin_acceptor *acceptor);

    // ---- an open stream

    // Takes all n bytes. Long ones begin to leave at once, short ones by `flush`, so that a small frame is one write.
    int (*write)(kin_byte_stream *stream, const void *bytes, size_t n, kin_err *err);
    void (*flush)(kin_byte_stream *stream);
    // Up to n of the bytes that have come; *n_read 0: there are no more for now.
    int (*read)(kin_byte_stream *stream, void *buf, size_t n, size_t *n_read, kin_err *err);
    // Nothing follows: the other side is told so when all is out. What comes from now on is dropped. `ended` comes when the other
    // side has closed, too.
    void (*finish)(kin_byte_stream *stream);

    // ---- a stream in any state

    void (*close)(kin_byte_stream *stream); // what waits is dropped
    // Several times a second until `opened`: time passes for who does not answer.
    void (*tick)(kin_byte_stream *stream, uint64_t now_ns);
    kin_byte_stream_counts (*counts)(const kin_byte_stream *stream);
    // Of the bytes that are out, those that the other side has not acknowledged; 0: none, or not known.
    size_t (*unacknowledged)(const kin_byte_stream *stream);
    // Of the bytes that the other side sends, no more are to be under way than so many (0: as many as the OS likes), as far as
    // the OS can see to that.
    void (*take_at_most)(kin_byte_stream *stream, size_t n);
    // Ends the stream as close does, but the connection stays: *fd, which does not block, and *tls, which has what came and was
    // not read yet, are the caller's. Only of one that is open, of which nothing waits to be written.
    int (*take)(kin_byte_stream *stream, int *fd, kin_tls **tls, kin_err *err);
    kin_tls_fault (*fault)(const kin_byte_stream *stream); // of the handshake, where it ended because of one
    // Of the other side: "192.168.1.7:4100", as given to connect until it is connected; and the address alone, numeric. They live
    // as long as the stream.
    const char *(*name)(const kin_byte_stream *stream);
    const char *(*address)(const kin_byte_stream *stream);
};
