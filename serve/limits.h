// What clients may cost an HTTP server: sizes, times, counts.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct kin_http_limits {
    size_t max_header; // bytes of a request line and its header: 64 KiB; more is 431, or 414 for the path
    size_t max_body;   // bytes: KIN_HTTP_MAX_BODY, which is also the most; more is 413
    size_t max_memory; // bytes of all requests at once, of what their JSON becomes when it is parsed, too: 256 MiB, or an eighth
                       // of what the process may use if that is less; more is 503, and 413 if one alone needs more
    int max_connections; // 16384; one more ends the one that has been idle longest, or is refused
    uint32_t header_ms;  // 15000: a request must be whole within that, and another second for each 16 KiB of it; else 408
    uint32_t idle_ms;    // 75000: a connection is kept that long after a request; one that never had any, header_ms
    uint32_t stall_ms;   // 30000: a client that takes no byte of a response for that long is cut off
    size_t max_pending;  // bytes of a stream that the client has not taken: 4 MiB; another piece then ends the connection
} kin_http_limits;

#define KIN_HTTP_MAX_BODY (((size_t)64 << 20) - 1) // 64 MiB with the NUL behind it

// What the requests of a server hold.
typedef struct kin_http_memory {
    size_t used, max;             // bytes
    int n_holds;                  // that are not released
    void (*released)(void *user); // the last of them was; NULL: nobody waits for it
    void *user;
} kin_http_memory;

// The part of it that a body has which was taken from its exchange. All zero: none.
typedef struct kin_http_hold {
    kin_http_memory *memory;
    size_t bytes;
} kin_http_hold;
