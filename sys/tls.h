// TLS: bytes in, bytes out. No socket.
//
// Between two who share a key: TLS 1.3, without certificates. The key is an external pre-shared key (RFC 8446, 2.2), used with an
// ephemeral Diffie-Hellman exchange (psk_dhe_ke): what was recorded stays secret even if the key is lost later. Cipher:
// AES-128-GCM; ChaCha20-Poly1305 where one of the two has no AES in its processor. There are no tickets, no resumption, no early
// data. The identity on the wire is "kin1" for everybody, and nothing else is in clear text; a side without the key is refused
// before it has seen a byte of ours that depends on anything else.
//
// The same key serves both roles: whoever can redirect traffic can lead a client back to its own server. Say who you are inside,
// and refuse yourself.
//
// A server with a certificate, for HTTP: TLS 1.2 or 1.3, for any client, which is not asked who it is. And a client of such a
// server, which goes on only where the certificate is of the host and of somebody who is trusted.
//
// Owner: who opened it. Thread: a context may be shared by connections of several threads, and is freed by the last one; a
// connection belongs to one thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_TLS_KEY_BYTES 32

typedef struct kin_tls_ctx kin_tls_ctx; // a key, or a certificate, and how it is used
typedef struct kin_tls kin_tls;         // one connection

typedef enum kin_tls_state {
    KIN_TLS_HANDSHAKING,
    KIN_TLS_OPEN,
    KIN_TLS_CLOSED, // the other side said that it is done
    KIN_TLS_FAILED, // it told, or was told, why; what there is to send is an alert
} kin_tls_state;

// The key is copied, and wiped when the context and all of its connections are closed, in any order.
int kin_tls_ctx_open(kin_tls_ctx **out, const uint8_t key[KIN_TLS_KEY_BYTES], kin_err *err);
// PEM files: the certificate, with those above it behind it if there are any, and its private key. For servers only.
int kin_tls_ctx_open_server(kin_tls_ctx **out, const char *cert_file, const char *key_file, kin_err *err);
// For connections to this host: a name, or numbers. Trusted are those whom the system trusts, and the certificates in ca_file
// (PEM; NULL: none).
int kin_tls_ctx_open_client(kin_tls_ctx **out, const char *host, const char *ca_file, kin_err *err);
void kin_tls_ctx_close(kin_tls_ctx *ctx);

// A client has its first bytes to send at once.
int kin_tls_open(kin_tls **out, kin_tls_ctx *ctx, bool is_client, kin_err *err);
void kin_tls_close(kin_tls *tls);

// Takes `bytes`, which came from the other side, and moves the handshake on; they are borrowed until kin_tls_read says 0.
// Afterwards there may be something to send, also when it fails. Where shared keys differ, both sides fail with "the other side
// has another key".
int kin_tls_feed(kin_tls *tls, const void *bytes, size_t n, kin_err *err);

// What was fed and not read yet is borrowed no more: the connection has a copy.
int kin_tls_keep_input(kin_tls *tls, kin_err *err);

// Decrypts up to n bytes of what was fed into buf, and says in *n_read how many; 0: nothing (more) for now, or the end (see the
// state). Read until 0 after each feed. Fails on bytes that were tampered with.
int kin_tls_read(kin_tls *tls, void *buf, size_t n, size_t *n_read, kin_err *err);

// Encrypts all n bytes as records of at most 16 KiB, one for each call where they fit. Only when open.
int kin_tls_write(kin_tls *tls, const void *bytes, size_t n, kin_err *err);

// Most bytes of output that n bytes become.
size_t kin_tls_output_bytes(size_t n);

// Tells the other side that nothing follows.
void kin_tls_finish(kin_tls *tls);

// What is to be sent to the other side: *n bytes, valid until the next call on this connection. Then say that they are gone; or
// take them along: the caller frees them.
const uint8_t *kin_tls_output(const kin_tls *tls, size_t *n);
void kin_tls_output_done(kin_tls *tls);
uint8_t *kin_tls_output_take(kin_tls *tls, size_t *n);

kin_tls_state kin_tls_state_now(const kin_tls *tls);

// Why a handshake with a key failed.
typedef enum kin_tls_fault {
    KIN_TLS_FAULT_NONE,      // it has not, or for a reason of this side
    KIN_TLS_FAULT_OTHER_KEY, // the other side has another key
    KIN_TLS_FAULT_STRANGER,  // the other side answers, but not with TLS 1.3 and a shared key: it is no kin
} kin_tls_fault;

kin_tls_fault kin_tls_fault_of(const kin_tls *tls);
