#include "testkit/group_mesh.h"

#include <sys/socket.h>
#include <unistd.h>

static const uint8_t key[KIN_TLS_KEY_BYTES] = {1, 2, 3};

// Moves the pending output of one end to the other.
static int carry(kin_tls *from, kin_tls *to, kin_err *err) {
    uint8_t byte;
    size_t n, n_read;
    const uint8_t *bytes = kin_tls_output(from, &n);
    if (n == 0) return 0;
    if (kin_tls_feed(to, bytes, n, err) != 0 || kin_tls_read(to, &byte, 1, &n_read, err) != 0) return KIN_FAIL;
    kin_tls_output_done(from);
    return 0;
}

static int shake_hands(kin_tls *tls[2], kin_err *err) {
    for (int i = 0; i < 8; i++) {
        if (carry(tls[i % 2], tls[1 - i % 2], err) != 0) return KIN_FAIL;
    }
    bool open = kin_tls_state_now(tls[0]) == KIN_TLS_OPEN && kin_tls_state_now(tls[1]) == KIN_TLS_OPEN;
    return open ? 0 : kin_err_set(err, "no handshake");
}

int kin_group_mesh_connect(int fds[2], kin_tls *tls[2], kin_err *err) {
    kin_tls_ctx *ctx;
    tls[0] = tls[1] = NULL;
    if (kin_tls_ctx_open(&ctx, key, err) != 0) return KIN_FAIL;
    int rc = kin_tls_open(&tls[0], ctx, true, err);
    if (rc == 0) rc = kin_tls_open(&tls[1], ctx, false, err);
    if (rc == 0) rc = shake_hands(tls, err);
    if (rc == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) rc = kin_err_set(err, "no sockets");
    kin_tls_ctx_close(ctx); // the connections keep it
    if (rc == 0) return 0;
    kin_tls_close(tls[0]);
    kin_tls_close(tls[1]);
    return KIN_FAIL;
}

static int send_output(int fd, kin_tls *tls, kin_err *err) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(tls, &n);
    if (n > 0 && send(fd, bytes, n, MSG_NOSIGNAL) != (ssize_t)n) return kin_err_set(err, "cannot send");
    kin_tls_output_done(tls);
    return 0;
}

static int handshake(int fd, kin_tls *tls, kin_err *err) {
    uint8_t bytes[4096], none;
    size_t n_read;
    if (send_output(fd, tls, err) != 0) return KIN_FAIL;
    while (kin_tls_state_now(tls) == KIN_TLS_HANDSHAKING) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) return kin_err_set(err, "it closed its connection");
        if (kin_tls_feed(tls, bytes, (size_t)n, err) != 0 || kin_tls_read(tls, &none, 0, &n_read, err) != 0) return KIN_FAIL;
        if (kin_tls_keep_input(tls, err) != 0 || send_output(fd, tls, err) != 0) return KIN_FAIL; // sums may follow the handshake
    }
    return kin_tls_state_now(tls) == KIN_TLS_OPEN ? 0 : kin_err_set(err, "no handshake");
}

int kin_group_mesh_shake_hands(int fd, bool is_client, kin_tls **tls, kin_err *err) {
    kin_tls_ctx *ctx;
    *tls = NULL;
    if (kin_tls_ctx_open(&ctx, key, err) != 0) return KIN_FAIL;
    int rc = kin_tls_open(tls, ctx, is_client, err);
    if (rc == 0) rc = handshake(fd, *tls, err);
    kin_tls_ctx_close(ctx); // the connection keeps it
    if (rc == 0) return 0;
    kin_tls_close(*tls);
    *tls = NULL;
    return KIN_FAIL;
}

int kin_group_mesh_enter(kin_exchange *const *exchanges, const kin_exchange_place *of, kin_err *err) {
    return kin_group_mesh_enter_with_buffers(exchanges, of, 0, err);
}

int kin_group_mesh_enter_with_buffers(kin_exchange *const *exchanges, const kin_exchange_place *of, int n_bytes, kin_err *err) {
    kin_exchange_place place = *of;
    for (place.rank = 0; place.rank < of->n_ranks; place.rank++) kin_exchange_enter(exchanges[place.rank], &place);
    for (int a = 0; a < of->n_ranks; a++) {
        for (int b = a + 1; b < of->n_ranks; b++) {
            int fds[2];
            kin_tls *tls[2];
            if (kin_group_mesh_connect(fds, tls, err) != 0) return KIN_FAIL;
            for (int i = 0; i < 2 && n_bytes > 0; i++) setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &n_bytes, sizeof n_bytes);
            kin_exchange_give(exchanges[a], of->epoch, b, fds[0], tls[0]);
            kin_exchange_give(exchanges[b], of->epoch, a, fds[1], tls[1]);
        }
    }
    return 0;
}
