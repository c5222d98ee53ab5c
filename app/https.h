// HTTPS for kin serve, with the user's certificate or with one that kin creates and keeps in the user's configuration.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sys/tls.h"

typedef struct kin_https_options {
    bool on;                          // use kin's own certificate, unless files are given
    const char *cert_file, *key_file; // PEM; NULL: not given
} kin_https_options;

// *out is NULL if HTTPS is off. Prints the fingerprint of kin's own certificate. The caller closes the context.
int kin_https_open(kin_tls_ctx **out, const kin_https_options *o, kin_err *err);
