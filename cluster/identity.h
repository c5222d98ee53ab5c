// This machine's identity: its name and id, the key and the code of its cluster (pairing), and the addresses of heads.
//
// Plain functions. Thread: any, one at a time.
#pragma once

#include "cluster/console.h"
#include "net/key.h"
#include "pure/proto/id.h"

enum { KIN_DEFAULT_PORT = 7577 }; // a head's port, if it is free

typedef struct kin_identity_options {
    const char *name;      // NULL: the host's
    const char *key_file;  // NULL: in the user's configuration directory
    const char *listen;    // numeric address; NULL: all
    int port;              // 0: the default one, or any
    const char *advertise; // addresses, separated by commas; NULL: the one that others see
} kin_identity_options;

// This machine: its name, and an id that is created once and stored beside the key. Processes with the same key file have
// separate ids, in device-id, device-id-2, ...: a process locks its file as long as it lives. If the holder was killed and is
// about to end, the new process waits for it, two seconds at most: a device that is restarted at once keeps its id.
typedef struct kin_identity {
    kin_proto_id id;
    uint64_t run; // number of this process
    char name[64];
    const char *advertise[KIN_PROTO_MAX_ADDRESSES];
    int n_advertise;
    char advertise_text[1024];
} kin_identity;

int kin_identity_open(kin_identity *self, const kin_identity_options *o, kin_err *err);
// Opens the identity of a status client. Its id is new each time.
int kin_identity_open_visitor(kin_identity *self, const kin_identity_options *o, kin_err *err);

// Loads the head's key from the file; if there is none, creates a new code, shows it (console->new_code), and stores both.
int kin_identity_head_key(kin_key *key, const kin_identity_options *o, const kin_console *console, kin_err *err);

// Loads the key with which this machine encrypts sequences that it stores for itself: the file kv.key beside the cluster's key,
// created if it is missing. The caller wipes it.
int kin_identity_own_key(kin_key *key, const kin_identity_options *o, kin_err *err);

// Loads the code of the head's key. Fails if none is stored, or if it belongs to another key. The caller wipes it.
int kin_identity_code(char code[KIN_CODE_TEXT], const kin_identity_options *o, kin_err *err);
// Creates another code and its key, and stores them. Fails while a process of this machine uses the key. The caller wipes it.
int kin_identity_new_code(char code[KIN_CODE_TEXT], const kin_identity_options *o, kin_err *err);

// Loads a device's key from the file; if there is none, asks for the code on the terminal. *is_typed: store the key
// (kin_identity_keep_key) once a head has accepted it.
int kin_identity_device_key(kin_key *key, bool *is_typed, const kin_identity_options *o, const kin_console *console,
                            kin_err *err);
// Asks for a code, on the terminal or its substitute, and returns its key.
int kin_identity_ask_key(kin_key *key, const kin_console *console, kin_err *err);
// Reads the code from a file that only its owner may read, and returns its key.
int kin_identity_file_key(kin_key *key, const char *code_file, kin_err *err);
// True if the file of the key exists.
bool kin_identity_has_key(const kin_identity_options *o);
int kin_identity_keep_key(const kin_key *key, const kin_identity_options *o, kin_err *err);

// The address of a head.
typedef struct kin_head_address {
    char name[256]; // host name, or numeric address; empty: search for one
    uint16_t port;
} kin_head_address;

// Parses "desk", "10.0.0.7:7577", "[fe80::1]:7577"; the port defaults to KIN_DEFAULT_PORT. NULL gives an empty name.
int kin_head_address_parse(const char *text, kin_head_address *out, kin_err *err);
