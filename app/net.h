// What commands that talk to other devices share: who this machine is, the cluster's key, addresses, and their options.
#pragma once

#include "app/options.h"
#include "net/key.h"
#include "pure/proto/id.h"

enum { KIN_NET_PORT = 7577 }; // where a head listens, if nobody else does

typedef struct kin_net_options {
    const char *name;      // NULL: the host's
    const char *key_file;  // NULL: in the user's configuration
    const char *listen;    // numeric address, NULL: all
    int port;              // 0: the usual one, or any
    const char *advertise; // addresses, separated by commas; NULL: where others see this machine
} kin_net_options;

enum { KIN_NET_N_OPTIONS = 5 }; // without an end: for a command's own table

void kin_net_option_table(kin_net_options *o, kin_option table[KIN_NET_N_OPTIONS]);

// This machine: its name, and an id that it makes once and keeps beside the key. Of several processes with the same key file each
// has an id of its own, in device-id, device-id-2, ...: the file is locked as long as the process lives.
typedef struct kin_net_self {
    kin_proto_id id;
    uint64_t run; // of this process
    char name[64];
    const char *advertise[KIN_PROTO_MAX_ADDRESSES];
    int n_advertise;
    char advertise_text[1024];
} kin_net_self;

int kin_net_identify(kin_net_self *self, const kin_net_options *o, kin_err *err);
// For who only looks: with an id for once.
int kin_net_identify_visitor(kin_net_self *self, const kin_net_options *o, kin_err *err);

// The head's key: the file's; without one a new code is made, shown on stderr, and both are kept.
int kin_net_head_key(kin_key *key, const kin_net_options *o, kin_err *err);

// The code of which the head's key was made. Fails where none is kept, or where it is of another key. The caller wipes it.
int kin_net_code(char code[KIN_CODE_TEXT], const kin_net_options *o, kin_err *err);
// Another code and its key, kept from now on. Fails while a process of this machine uses the key. The caller wipes it.
int kin_net_new_code(char code[KIN_CODE_TEXT], const kin_net_options *o, kin_err *err);

// A device's: the file's; without one the code is asked for on the terminal. *is_typed: to be kept (kin_net_keep_key) when a head
// has accepted it.
int kin_net_device_key(kin_key *key, bool *is_typed, const kin_net_options *o, kin_err *err);
// The key of the code that is asked for, on the terminal or from what stands in its place.
int kin_net_ask_key(kin_key *key, kin_err *err);
int kin_net_keep_key(const kin_key *key, const kin_net_options *o, kin_err *err);

// Where a head is.
typedef struct kin_net_address {
    char name[256]; // of a host, or a numeric address; empty: to be searched for
    uint16_t port;
} kin_net_address;

// "desk", "10.0.0.7:7577", "[fe80::1]:7577"; the port is KIN_NET_PORT if there is none. NULL: an empty name.
int kin_net_parse_address(const char *text, kin_net_address *out, kin_err *err);
