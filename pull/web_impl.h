// What pull/web.c and pull/download.c share: a request of libcurl with kin's settings, and its answer's header.
#pragma once

#include <curl/curl.h>

#include "pull/web.h"

// Creates a request; headers [out] must live as long. NULL: out of memory. Its header lines go into *answer.
CURL *kin_web_request_new(const kin_web_request *request, kin_web_answer *answer, struct curl_slist **headers);

// True if a request that failed this way may succeed later.
bool kin_web_may_recover(CURLcode code, int status);

// Returns how long to wait before try number n_failed + 1 (1, 2, ...), in seconds; more than KIN_WEB_MAX_WAIT_S: do not.
double kin_web_wait_s(const kin_web_answer *answer, int n_failed);

// Writes the sentence for a request that failed without a status.
int kin_web_failed(const char *url, CURLcode code, const char *detail, kin_err *err);
