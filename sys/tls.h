// TLS as a filter: bytes in, bytes out. No socket.
//
// Between two parties with a shared key: TLS 1.3 without certificates. The key is an external pre-shared key (RFC 8446, 2.2),
// used with an ephemeral Diffie-Hellman exchange (psk_dhe_ke): recorded traffic stays secret even if the key leaks later. Cipher:
// AES-128-GCM; ChaCha20-Poly1305 if one side has no AES instructions. No tickets, no resumption, no early data. The identity on
// the wire is always "kin1", and nothing else is sent in clear text; a peer without the key is refused before it receives any
// byte that depends on anything else.
//
// Both roles use the same key: an attacker that can redirect traffic can connect a client to its own server. Exchange identities
// inside the connection, and refuse your own.
//
// A server with a certificate, for HTTP: TLS 1.2 or 1.3, for any client, without client authentication. And a client for such
// servers, which proceeds only if the certificate is valid for the host and trusted.
//
// Owner: the caller that opened it. Thread: a context may be shared by connections on several threads, and is freed with the last
// of them; a connection belongs to one thread.
// connection belongs to one thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_TLS_KEY_BYTES 32

typedef struct kin_tls_ctx kin_tls_ctx; // a key, or a certificate, and its settings
typedef struct kin_tls kin_tls;         // one connection

typedef enum kin_tls_state {
    KIN_TLS_HANDSHAKING,
    KIN_TLS_OPEN,
    KIN_TLS_CLOSED, // the peer closed its side
    KIN_TLS_FAILED, // the reason was reported by or to the peer; remaining output is an alert
} kin_tls_state;

// The key is copied, and wiped once the context and all of its connections are closed, in any order.
int kin_tls_ctx_open(kin_tls_ctx **out, const uint8_t key[KIN_TLS_KEY_BYTES], kin_err *err);
// PEM files: the certificate, followed by its chain if any, and its private key. For servers only.
int kin_tls_ctx_open_server(kin_tls_ctx **out, const char *cert_file, const char *key_file, kin_err *err);
// For connections to this host: a name, or a numeric address. Trusts the system's certificate authorities and the certificates in
// ca_file (PEM; NULL: none).
int kin_tls_ctx_open_client(kin_tls_ctx **out, const char *host, const char *ca_file, kin_err *err);
void kin_tls_ctx_close(kin_tls_ctx *ctx);

// A client has output to send at once.
int kin_tls_open(kin_tls **out, kin_tls_ctx *ctx, bool is_client, kin_err *err);
void kin_tls_close(kin_tls *tls);

// Feeds `bytes` received from the peer and advances the handshake; they are borrowed until kin_tls_read returns 0 bytes.
// Afterwards there may be output to send, even on failure. If the shared keys differ, both sides fail with "the other side has
// another key".
int kin_tls_feed(kin_tls *tls, const void *bytes, size_t n, kin_err *err);

// Copies the input that was fed but not read, so that it is no longer borrowed.
int kin_tls_keep_input(kin_tls *tls, kin_err *err);

// Decrypts up to n bytes of the input into buf; *n_read: how many; 0: none for now, or the end (see the state). Read until 0
// after each feed. Fails if the bytes were tampered with.
int kin_tls_read(kin_tls *tls, void *buf, size_t n, size_t *n_read, kin_err *err);

// Encrypts all n bytes as records of at most 16 KiB, one per call if they fit. Only in state KIN_TLS_OPEN.
int kin_tls_write(kin_tls *tls, const void *bytes, size_t n, kin_err *err);

// Returns the most output bytes that n bytes of input can produce.
size_t kin_tls_output_bytes(size_t n);

// Tells the peer that no more data follows.
void kin_tls_finish(kin_tls *tls);

// Returns output for the peer: *n bytes, valid until the next call on this connection. Then either call kin_tls_output_done once
// they are sent, or kin_tls_pop_output to own the buffer, which the caller frees.
const uint8_t *kin_tls_output(const kin_tls *tls, size_t *n);
void kin_tls_output_done(kin_tls *tls);
uint8_t *kin_tls_pop_output(kin_tls *tls, size_t *n);

kin_tls_state kin_tls_state_now(const kin_tls *tls);

// Reason for a failed handshake with a shared key.
typedef enum kin_tls_fault {
    KIN_TLS_FAULT_NONE,      // no failure, or a local reason
    KIN_TLS_FAULT_OTHER_KEY, // the peer has another key
    KIN_TLS_FAULT_STRANGER,  // the peer answers, but not with TLS 1.3 and a shared key: it is not kin
} kin_tls_fault;

kin_tls_fault kin_tls_fault_of(const kin_tls *tls);
