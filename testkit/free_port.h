// Returns a TCP port of loopback on which nothing listens. It is outside the range that the OS assigns to ephemeral sockets:
// otherwise another program's connection could take it before the test does, or while the test's listener is down.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FREE_PORT_FIRST = 10000, FREE_PORT_N = 10000 };

static inline uint16_t free_port(void) {
    static unsigned n_given;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int n = 0; n < FREE_PORT_N; n++) {
        unsigned i = ((unsigned)getpid() * 16 + n_given++) % FREE_PORT_N; // processes start at different ports
        at.sin_port = htons((uint16_t)(FREE_PORT_FIRST + i));
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fd >= 0);
        bool is_free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
        close(fd);
        if (is_free) return ntohs(at.sin_port);
    }
    fail_msg("no port is free");
    return 0;
}
