// A certificate that a server signs itself, so that clients can speak HTTPS to it before anybody has bought or set up one.
//
// It is made once and kept in two PEM files (0600), which are kin's own. A client that is shown its fingerprint by another way
// knows that it speaks to the right server. Key: P-256. Thread: any.
#pragma once

#include "base/err.h"

enum { KIN_CERTIFICATE_FINGERPRINT = 96 }; // bytes with the NUL

// Makes and writes certificate and key, unless the files are there, fit each other, hold for another 30 days, and are for all
// n_names host names and addresses ("desk.local", "192.168.1.7", "::1"). A new one has a new fingerprint.
int kin_certificate_keep(const char *cert_file, const char *key_file, const char *const *names, int n_names, kin_err *err);

// SHA-256 of the first certificate in the file, as browsers show it: "5A:0F:...".
int kin_certificate_fingerprint(const char *cert_file, char text[KIN_CERTIFICATE_FINGERPRINT], kin_err *err);
