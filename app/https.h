// HTTPS of kin serve: with a certificate of the user's, or with one that kin makes and keeps in the user's configuration.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sys/tls.h"

typedef struct kin_https_options {
    bool on;                          // with kin's own certificate, unless there are files
    const char *cert_file, *key_file; // PEM; NULL: none
} kin_https_options;

// *out NULL: not wanted. Says the fingerprint of a certificate of kin's own. The caller closes it.
int kin_https_open(kin_tls_ctx **out, const kin_https_options *o, kin_err *err);
