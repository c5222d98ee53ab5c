#include "sys/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool kin_notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@')) return false;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@') address.sun_path[0] = '\0'; // a name without a file
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return false;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    ssize_t sent = sendto(fd, state, strlen(state), 0, (const struct sockaddr *)&address, size);
    close(fd);
    return sent == (ssize_t)strlen(state);
}
