#include "app/join_page.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "net/address.h"
#include "serve/server.h"
#include "serve/tabs/tab_page.h"

struct kin_join_page {
    kin_server *server;
    kin_tls_ctx *tls; // NULL: no TLS
};

static bool is_any(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static bool has_code(const kin_identity_options *net) {
    char code[KIN_CODE_TEXT];
    bool has = kin_identity_code(code, net, NULL) == 0;
    kin_code_wipe(code, sizeof code);
    return has;
}

void kin_join_page_print(const kin_identity_options *net, const char *host, uint16_t port, bool is_https, const char *prefix) {
    char own[1][KIN_ADDRESS_HOST];
    if (!has_code(net)) return;
    if (!is_https && !kin_address_is_loopback(host)) {
        kin_app_log("browsers cannot join without HTTPS; give --https to let them");
        return;
    }
    if (is_any(host) && kin_address_own(own, 1) == 1) host = own[0];
    bool is_v6 = strchr(host, ':') != NULL;
    kin_app_log("browsers join at http%s://%s%s%s:%u%s/join with the code shown by 'kin code'", is_https ? "s" : "",
                is_v6 ? "[" : "", host, is_v6 ? "]" : "", (unsigned)port, prefix ? prefix : "");
}

static int open_server(kin_join_page *p, const kin_session *s, int port, const kin_https_options *files, kin_err *err) {
    const char *listen = s->fleet.o.net.listen ? s->fleet.o.net.listen : "0.0.0.0";
    kin_https_options https = *files;
    https.on = !kin_address_is_loopback(listen);
    kin_server_options o = {.http = kin_http_options_default(),
                            .access = {.host = listen, .cors = KIN_CORS_NONE},
                            .alias = s->model_name,
                            .browsers = true,
                            .only_joins = true,
                            .leaves_signals = true};
    if (kin_https_open(&p->tls, &https, err) != 0) return KIN_FAIL;
    o.http.host = listen;
    o.http.port = (uint16_t)port;
    o.http.tls = p->tls;
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    // Its threads inherit it: Ctrl-C must reach the thread that may be reading a prompt.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = kin_server_open(&p->server, &o, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) return KIN_FAIL;
    kin_join_page_print(&s->fleet.o.net, listen, kin_server_port(p->server), p->tls != NULL, NULL);
    return 0;
}

int kin_join_page_open(kin_join_page **out, const kin_session *session, int port, const kin_https_options *https, kin_err *err) {
    *out = NULL;
    if (!kin_tab_page_has_engine())
        return kin_err_set(err, "this kin was built without the browser engine; building it needs clang-19 and lld-19");
    kin_join_page *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    if (open_server(p, session, port, https, err) != 0) {
        kin_join_page_close(p);
        return kin_err_prefix(err, "--browsers");
    }
    kin_server_set_ring(p->server, session);
    *out = p;
    return 0;
}

void kin_join_page_close(kin_join_page *p) {
    if (!p) return;
    kin_server_close(p->server);
    kin_tls_ctx_close(p->tls);
    free(p);
}
