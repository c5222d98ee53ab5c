#include "app/version.h"

#include <jansson.h>
#include <llhttp.h>
#include <openssl/crypto.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <wslay/wslay.h>

#include "engine/ggml_info.h"
#include "kernels/kernels.h"
#include "pull/web.h"
#include "sys/highs.h"

extern const char kin_commit[]; // of the build (tools/cmake/commit.cmake); "" without git

// Lists the back-ends that this processor can run, best first, then the others.
static void print_kernels(void) {
    for (int can = 1; can >= 0; can--) {
        const char *before = can ? "" : "; not on this processor: ";
        if (can) printf("kernels    ");
        for (int i = 0; kin_kernels_at(i); i++) {
            if (kin_kernels_can_run(kin_kernels_at(i)) != can) continue;
            printf("%s%s", before, kin_kernels_at(i)->name);
            before = ", ";
        }
    }
    printf("\n");
}

static void print_library(const char *name, const char *version) {
    printf(", %s%s%s", version ? "" : "no ", name, version ? " " : "");
    if (version) printf("%s", version);
}

void kin_version_print(void) {
    char pcre2[64] = "", backends[256];
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    kin_ggml_list_backends(backends, sizeof backends);

    printf("kin %s%s%s%s\n", KIN_VERSION, kin_commit[0] ? " (commit " : "", kin_commit, kin_commit[0] ? ")" : "");
    print_kernels();
    printf("ggml       %s with %s\n", kin_ggml_version(), backends[0] ? backends : "no back-end");
    printf("libraries  OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING));
    print_library("libuv", uv_version_string());
    printf(", llhttp %d.%d.%d, wslay %s", LLHTTP_VERSION_MAJOR, LLHTTP_VERSION_MINOR, LLHTTP_VERSION_PATCH, WSLAY_VERSION);
    printf(", PCRE2 %.*s", (int)strcspn(pcre2, " "), pcre2); // its date follows
    print_library("jansson", jansson_version_str());
    print_library("libcurl", kin_web_library());
    print_library("HiGHS", kin_highs_version());
    printf("\n");
}
