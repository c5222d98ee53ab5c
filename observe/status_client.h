// The status client (`kin status`): asks a running head for the state of its cluster, as JSON (observe/status_json.h).
//
// Without an address it tries this machine, and then searches the local network, as a device does.
//
// Owner and thread: the caller's; it returns when the report is here.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "net/key.h"
#include "pure/proto/message.h"

typedef struct kin_status_client_options {
    kin_proto_id id;
    const char *name, *version;
    kin_key key;
    const char *head; // address; NULL: search
    uint16_t port;
    int n_reports; // reports to ask for, a second apart; the last one is returned. At least 1
    atomic_bool *stop;
} kin_status_client_options;

// *text: the report, from malloc: bytes of a peer that has the key, at most KIN_FRAME_REPORT_BYTES and a NUL; parse with care.
// KIN_FAIL: no head was found, the peer is not a head, or it did not answer.
int kin_status_client_run(const kin_status_client_options *options, char **text, kin_err *err);
