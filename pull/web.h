// HTTPS requests for small documents, by libcurl: lists of files and manifests of registries.
//
// Certificates are verified. Proxies (https_proxy, no_proxy), ~/.netrc, and other certificate authorities (SSL_CERT_FILE) are
// those of every program that uses libcurl. Blocking; any thread. Without libcurl at build time all of this fails with a
// sentence.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

bool kin_web_is_there(void);       // true if this program was built with libcurl
const char *kin_web_library(void); // libcurl's version; NULL without it

// What a server says beside the body. Texts that do not fit are dropped.
typedef struct kin_web_answer {
    int status;           // 0: none came
    char etag[200];       // of the file; empty: none, or a weak one
    char linked_etag[80]; // X-Linked-Etag: Hugging Face's hash of the file's content
    char next[1100];      // address of the list's next page; empty: none
    char error_code[64];  // X-Error-Code: "GatedRepo"
    char content_type[64];
    double retry_after_s;  // -1: not given
    uint64_t begin, total; // Content-Range; total also from Content-Length; 0: unknown
    bool has_range;        // there was a Content-Range
    bool accepts_ranges;
} kin_web_answer;

typedef struct kin_web_request {
    const char *url;
    const char *token;  // sent to the host of the URL only; NULL: none
    const char *accept; // the header; NULL: none
    size_t max;         // bytes of the body
    const atomic_bool *stop;
} kin_web_request;

// Gets a document; the caller frees *body. Repeats what may succeed later: no connection, 429 and 5xx, a few times, as long as
// the server asks to wait at most KIN_WEB_MAX_WAIT_S. Any other status than 200 is a failure, which the answer tells; so is a web
// page, as networks send it that ask for a login.
int kin_web_get(const kin_web_request *request, kin_web_answer *answer, char **body, size_t *len, kin_err *err);

// Asks for the first bytes of a file, and reads nothing else: size, ETag and type are in the answer.
int kin_web_probe(const kin_web_request *request, kin_web_answer *answer, kin_err *err);

// Reads the first n bytes of a file, or all if it is shorter; the caller frees *head.
int kin_web_head(const kin_web_request *request, uint64_t n, char **head, size_t *len, kin_err *err);

enum { KIN_WEB_MAX_WAIT_S = 120, KIN_WEB_MAX_TRIES = 6 };

// Writes why a status is none that helps; `what` names the thing. Returns KIN_FAIL.
int kin_web_refused(const char *what, const kin_web_answer *answer, kin_err *err);
