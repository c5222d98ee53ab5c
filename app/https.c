#include "app/https.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "app/app.h"
#include "net/address.h"
#include "net/key.h"
#include "sys/certificate.h"

enum {
    N_ADDRESSES = 16, // of this machine
    N_NAMES = 5 + N_ADDRESSES,
    PATH_BYTES = 4096
};

// Returns the path of a file beside the cluster's key.
static int path_beside_key(char path[PATH_BYTES], const char *name, kin_err *err) {
    char *slash = kin_key_default_path(path, PATH_BYTES) ? strrchr(path, '/') : NULL;
    size_t room = slash ? PATH_BYTES - (size_t)(slash + 1 - path) : 0;
    if (room <= strlen(name))
        return kin_err_set(err, "there is no home directory for a certificate; give --ssl-cert-file and --ssl-key-file");
    memcpy(slash + 1, name, strlen(name) + 1);
    return 0;
}

// Collects the names that local clients may use in the address.
static int find_names(const char *names[N_NAMES], char host[UV_MAXHOSTNAMESIZE], char local[UV_MAXHOSTNAMESIZE + 8],
                      char addresses[N_ADDRESSES][KIN_ADDRESS_HOST]) {
    int n = 0;
    size_t n_host = UV_MAXHOSTNAMESIZE;
    names[n++] = "localhost";
    names[n++] = "127.0.0.1";
    names[n++] = "::1";
    if (uv_os_gethostname(host, &n_host) == 0 && host[0] != '\0') {
        snprintf(local, UV_MAXHOSTNAMESIZE + 8, "%s.local", host);
        names[n++] = host;
        names[n++] = local;
    }
    int n_addresses = kin_address_own(addresses, N_ADDRESSES);
    for (int i = 0; i < n_addresses; i++) names[n++] = addresses[i];
    return n;
}

static int open_own(kin_tls_ctx **out, kin_err *err) {
    char cert[PATH_BYTES], key[PATH_BYTES], fingerprint[KIN_CERTIFICATE_FINGERPRINT];
    char host[UV_MAXHOSTNAMESIZE], local[UV_MAXHOSTNAMESIZE + 8], addresses[N_ADDRESSES][KIN_ADDRESS_HOST];
    const char *names[N_NAMES];
    int n = find_names(names, host, local, addresses);
    if (path_beside_key(cert, "https.crt", err) != 0 || path_beside_key(key, "https.key", err) != 0 ||
        kin_certificate_keep(cert, key, names, n, err) != 0 || kin_certificate_fingerprint(cert, fingerprint, err) != 0 ||
        kin_tls_ctx_open_server(out, cert, key, err) != 0)
        return KIN_FAIL;
    kin_app_log("HTTPS with the self-signed certificate %s; clients must be told to trust it. SHA-256:", cert);
    kin_app_log("%s", fingerprint);
    return 0;
}

int kin_https_open(kin_tls_ctx **out, const kin_https_options *o, kin_err *err) {
    *out = NULL;
    if (!o->cert_file != !o->key_file)
        return kin_err_set(err,
                           "--ssl-cert-file and --ssl-key-file must be given together; --https uses a self-signed certificate");
    if (o->cert_file) return kin_tls_ctx_open_server(out, o->cert_file, o->key_file, err);
    return o->on ? open_own(out, err) : 0;
}
