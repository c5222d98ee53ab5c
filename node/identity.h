// Who this machine is to others: its name and id, the key and the code of its cluster (pairing), and the addresses of heads.
//
// Plain functions. Thread: any, one at a time.
#pragma once

#include "net/key.h"
#include "node/console.h"
#include "pure/proto/id.h"

enum { KIN_DEFAULT_PORT = 7577 }; // where a head listens, if nobody else does

typedef struct kin_identity_options {
    const char *name;      // NULL: the host's
    const char *key_file;  // NULL: in the user's configuration
    const char *listen;    // numeric address, NULL: all
    int port;              // 0: the usual one, or any
    const char *advertise; // addresses, separated by commas; NULL: where others see this machine
} kin_identity_options;

// This machine: its name, and an id that it makes once and keeps beside the key. Of several processes with the same key file each
// has an id of its own, in device-id, device-id-2, ...: the file is locked as long as the process lives. One that was killed and
// is about to end is waited for, two seconds at most: who starts it again at once has the same device.
typedef struct kin_identity {
    kin_proto_id id;
    uint64_t run; // of this process
    char name[64];
    const char *advertise[KIN_PROTO_MAX_ADDRESSES];
    int n_advertise;
    char advertise_text[1024];
} kin_identity;

int kin_identity_open(kin_identity *self, const kin_identity_options *o, kin_err *err);
// For who only looks: with an id for once.
int kin_identity_open_visitor(kin_identity *self, const kin_identity_options *o, kin_err *err);

// The head's key: the file's; without one a new code is made, shown (console->new_code), and both are kept.
int kin_identity_head_key(kin_key *key, const kin_identity_options *o, const kin_console *console, kin_err *err);

// What this machine encrypts with that keeps texts for itself alone: in the file kv.key beside the cluster's key, made when it is
// missing. The caller wipes it.
int kin_identity_own_key(kin_key *key, const kin_identity_options *o, kin_err *err);

// The code of which the head's key was made. Fails where none is kept, or where it is of another key. The caller wipes it.
int kin_identity_code(char code[KIN_CODE_TEXT], const kin_identity_options *o, kin_err *err);
// Another code and its key, kept from now on. Fails while a process of this machine uses the key. The caller wipes it.
int kin_identity_new_code(char code[KIN_CODE_TEXT], const kin_identity_options *o, kin_err *err);

// A device's: the file's; without one the code is asked for on the terminal. *is_typed: to be kept (kin_identity_keep_key) when a
// head has accepted it.
int kin_identity_device_key(kin_key *key, bool *is_typed, const kin_identity_options *o, const kin_console *console,
                            kin_err *err);
// The key of the code that is asked for, on the terminal or from what stands in its place.
int kin_identity_ask_key(kin_key *key, const kin_console *console, kin_err *err);
int kin_identity_keep_key(const kin_key *key, const kin_identity_options *o, kin_err *err);

// Where a head is.
typedef struct kin_head_address {
    char name[256]; // of a host, or a numeric address; empty: to be searched for
    uint16_t port;
} kin_head_address;

// "desk", "10.0.0.7:7577", "[fe80::1]:7577"; the port is KIN_DEFAULT_PORT if there is none. NULL: an empty name.
int kin_head_address_parse(const char *text, kin_head_address *out, kin_err *err);
