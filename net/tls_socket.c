#include "net/tls_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 // macOS: the thread blocks the signal instead
#endif

int kin_tls_socket_open(kin_tls_socket *s, int fd, kin_tls *tls, kin_err *err) {
    *s = (kin_tls_socket){.fd = fd, .tls = tls, .input = malloc(KIN_TLS_SOCKET_INPUT)};
    if (s->input) return 0;
    kin_tls_socket_close(s);
    return kin_err_set(err, "out of memory");
}

void kin_tls_socket_close(kin_tls_socket *s) {
    if (s->fd >= 0) close(s->fd);
    kin_tls_close(s->tls);
    free(s->input);
    *s = (kin_tls_socket){.fd = -1};
}

static int ended(kin_err *err) {
    return kin_err_set(err, "it closed its connection");
}

static bool is_later(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

int kin_tls_socket_send(kin_tls_socket *s, bool *moved, kin_err *err) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(s->tls, &n);
    while (s->n_sent < n) {
        ssize_t sent = send(s->fd, bytes + s->n_sent, n - s->n_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && is_later()) return 0;
        if (sent < 0) return ended(err);
        s->n_sent += (size_t)sent;
        *moved = true;
    }
    kin_tls_output_done(s->tls);
    s->n_sent = 0;
    return 0;
}

bool kin_tls_socket_has_to_send(const kin_tls_socket *s) {
    size_t n;
    kin_tls_output(s->tls, &n);
    return n > 0;
}

int kin_tls_socket_receive(kin_tls_socket *s, void *to, size_t n, size_t *n_read, kin_err *err) {
    for (;;) {
        if (kin_tls_read(s->tls, to, n, n_read, err) != 0) return KIN_FAIL;
        if (*n_read > 0) return 0;
        if (kin_tls_state_now(s->tls) != KIN_TLS_OPEN) return ended(err);
        ssize_t came = recv(s->fd, s->input, KIN_TLS_SOCKET_INPUT, MSG_DONTWAIT);
        if (came < 0 && is_later()) return 0;
        if (came <= 0) return ended(err);
        if (kin_tls_feed(s->tls, s->input, (size_t)came, err) != 0) return KIN_FAIL;
    }
}
