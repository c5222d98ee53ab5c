#include "serve/http/http_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/address.h"

enum { BACKLOG = 1024 };

struct kin_http_listener {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    kin_http_listener_connected connected;
    void *user;
};

static void on_connection(uv_stream_t *stream, int status) {
    kin_http_listener *l = stream->data;
    if (status == 0) l->connected(l->user, stream);
}

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

void kin_http_listener_close(kin_http_listener *l) {
    if (l) uv_close(&l->handle, on_closed);
}

// ---- Unix sockets

static bool is_path(const char *address) {
    size_t n = strlen(address);
    return n >= 5 && strcmp(address + n - 5, ".sock") == 0;
}

static int connect_to(const struct sockaddr_un *at) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return errno;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    int rc = connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 ? 0 : errno;
    close(fd);
    return rc;
}

// Removes a socket file left behind by a process that has ended.
static int remove_stale(const struct sockaddr_un *at, kin_err *err) {
    struct stat file;
    if (lstat(at->sun_path, &file) != 0) return 0;
    if (!S_ISSOCK(file.st_mode))
        return kin_err_set(err, "%s exists but is not a socket; move it away, or give another path", at->sun_path);
    if (connect_to(at) != ECONNREFUSED)
        return kin_err_set(err, "another process listens on %s; stop it, or give another path", at->sun_path);
    if (unlink(at->sun_path) == 0) return 0;
    return kin_err_set(err, "cannot remove the old socket %s: %s", at->sun_path, strerror(errno));
}

static int bind_pipe(kin_http_listener *l, const char *path, kin_err *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path)
        return kin_err_set(err, "%s: a socket path has at most %zu bytes", path, sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path));
    if (remove_stale(&at, err) != 0) return KIN_FAIL;
    int rc = uv_pipe_bind(&l->pipe, path);
    return rc == 0 ? 0 : kin_err_set(err, "cannot listen on %s: %s", path, uv_strerror(rc));
}

// ---- TCP

static int bind_tcp(kin_http_listener *l, const char *address, uint16_t port, kin_err *err) {
    kin_address at;
    if (!kin_address_parse(&at, address, port))
        return kin_err_set(err, "cannot listen on %s: must be a numeric address, localhost, or a path that ends in .sock",
                           address);
    int rc = uv_tcp_bind(&l->tcp, (const struct sockaddr *)&at.at, 0);
    return rc == 0 ? 0 : kin_err_set(err, "cannot listen on %s: %s", address, uv_strerror(rc));
}

// ----

int kin_http_listener_open(kin_http_listener **out, uv_loop_t *loop, const char *address, uint16_t port,
                           kin_http_listener_connected connected, void *user, kin_err *err) {
    *out = NULL;
    kin_http_listener *l = calloc(1, sizeof *l);
    if (!l) return kin_err_set(err, "out of memory");
    l->connected = connected;
    l->user = user;
    if (is_path(address))
        uv_pipe_init(loop, &l->pipe, 0);
    else
        uv_tcp_init(loop, &l->tcp);
    l->handle.data = l;
    if ((is_path(address) ? bind_pipe(l, address, err) : bind_tcp(l, address, port, err)) != 0) goto fail;
    int rc = uv_listen(&l->stream, BACKLOG, on_connection);
    if (rc == 0) {
        *out = l;
        return 0;
    }
    kin_err_set(err, "cannot listen on %s port %u: %s%s", address, port, uv_strerror(rc),
                rc == UV_EADDRINUSE
                    ? "; another program uses it, perhaps another kin. Choose another port with --port N, 0 for any free port"
                    : "");
fail:
    kin_http_listener_close(l);
    return KIN_FAIL;
}

uint16_t kin_http_listener_port(const kin_http_listener *l) {
    kin_address address;
    int n = sizeof address.at;
    if (l->handle.type != UV_TCP || uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&address.at, &n) != 0) return 0;
    return kin_address_port(&address);
}
