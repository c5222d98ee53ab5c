// HTTPS of kin serve: the choice of the certificate. app/ is a program, not a library, so its file is compiled in here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/https.c"

static char said[2][512];
static int n_said;

void kin_app_log(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(said[n_said++ % 2], sizeof said[0], fmt, args);
    va_end(args);
}

static void a_certificate_of_its_own_is_kept_and_its_fingerprint_said(void **state) {
    (void)state;
    char folder[] = "/tmp/kin-https-XXXXXX", path[64], first[512];
    kin_tls_ctx *ctx;
    kin_err err = {""};
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CONFIG_HOME", folder, 1);
    if (kin_https_open(&ctx, &(kin_https_options){.on = true}, &err) != 0) fail_msg("%s", err.text);
    assert_non_null(ctx);
    kin_tls_ctx_close(ctx);
    assert_int_equal(n_said, 2);
    assert_non_null(strstr(said[0], folder));
    assert_int_equal(strlen(said[1]), 95);
    memcpy(first, said[1], sizeof first);
    assert_int_equal(kin_https_open(&ctx, &(kin_https_options){.on = true}, &err), 0);
    kin_tls_ctx_close(ctx);
    assert_string_equal(said[1], first);
    static const char *const names[] = {"kin/https.crt", "kin/https.key"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    snprintf(path, sizeof path, "%s/kin", folder);
    rmdir(path);
    rmdir(folder);
}

static void files_come_in_pairs_and_without_any_there_is_none(void **state) {
    (void)state;
    kin_tls_ctx *ctx;
    kin_err err = {""};
    assert_int_equal(kin_https_open(&ctx, &(kin_https_options){0}, &err), 0);
    assert_null(ctx);
    assert_int_equal(kin_https_open(&ctx, &(kin_https_options){.cert_file = "a.pem"}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "must be given together"));
    assert_int_equal(kin_https_open(&ctx, &(kin_https_options){.on = true, .key_file = "a.pem"}, &err), KIN_FAIL);
    assert_int_equal(kin_https_open(&ctx, &(kin_https_options){.cert_file = "/no.pem", .key_file = "/no.key"}, &err), KIN_FAIL);
    assert_ptr_equal(strstr(err.text, "/no.pem: "), err.text);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    assert_int_equal(kin_https_open(&ctx, &(kin_https_options){.on = true}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no home directory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_certificate_of_its_own_is_kept_and_its_fingerprint_said),
        cmocka_unit_test(files_come_in_pairs_and_without_any_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
