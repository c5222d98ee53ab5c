// Takes the place of web.c and download.c in a program that was built without libcurl.
#ifndef KIN_HAVE_CURL
#include "pull/download.h"
#include "pull/web.h"

static int missing(kin_err *err) {
    return kin_err_set(
        err, "this kin was built without libcurl and cannot download; fetch the file with another program (curl -LO URL)");
}

bool kin_web_is_there(void) {
    return false;
}

const char *kin_web_library(void) {
    return NULL;
}

int kin_web_get(const kin_web_request *request, kin_web_answer *answer, char **body, size_t *len, kin_err *err) {
    (void)request, (void)answer, (void)body, (void)len;
    return missing(err);
}

int kin_web_probe(const kin_web_request *request, kin_web_answer *answer, kin_err *err) {
    (void)request, (void)answer;
    return missing(err);
}

int kin_web_head(const kin_web_request *request, uint64_t n, char **head, size_t *len, kin_err *err) {
    (void)request, (void)n, (void)head, (void)len;
    return missing(err);
}

int kin_web_refused(const char *what, const kin_web_answer *answer, kin_err *err) {
    (void)what, (void)answer;
    return missing(err);
}

int kin_download(const kin_download_options *options, kin_err *err) {
    (void)options;
    return missing(err);
}
#endif
