// A loopback path that drops large packets, like a tunnel with a small MTU that TCP does not know about. Linux only.
//
// For tests only.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/filter.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "tests/place.h"

static inline bool has_port(int fd, uint16_t port, int (*name)(int fd, struct sockaddr *at, socklen_t *n)) {
    struct sockaddr_in6 at;
    socklen_t n = sizeof at;
    return name(fd, (struct sockaddr *)&at, &n) == 0 && ntohs(at.sin6_port) == port; // sin_port has the same offset
}

// Makes the path to that port (`to`) or from it (`from`) drop packets above `most` bytes, TCP's header included, before they
// are acknowledged. Affects this process's existing connections and, through its listening socket, those accepted later.
static inline void narrow_path(uint16_t port, unsigned most, bool to, bool from) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
    struct sock_fprog filter = {.len = 4, .filter = code};
    for (int fd = 3; fd < 256; fd++) {
        if ((to && has_port(fd, port, getsockname)) || (from && has_port(fd, port, getpeername)))
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
    }
}
#define narrow_path(...) FROM_TEST(narrow_path(__VA_ARGS__))
