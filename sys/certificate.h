// A self-signed certificate, so that a server offers HTTPS without a certificate that was bought or configured.
//
// It is created once and kept in two PEM files (0600) that belong to kin. A client that learns the fingerprint through another
// channel can verify the server. Key: P-256. Thread: any.
#pragma once

#include "base/err.h"

enum { KIN_CERTIFICATE_FINGERPRINT = 96 }; // bytes with the NUL

// Creates and writes certificate and key, unless the files exist, match each other, are valid for at least 30 more days, and
// cover all n_names host names and addresses ("desk.local", "192.168.1.7", "::1"). A new certificate has a new fingerprint.
int kin_certificate_keep(const char *cert_file, const char *key_file, const char *const *names, int n_names, kin_err *err);

// Formats the SHA-256 of the first certificate in the file as browsers show it: "5A:0F:...".
int kin_certificate_fingerprint(const char *cert_file, char text[KIN_CERTIFICATE_FINGERPRINT], kin_err *err);
