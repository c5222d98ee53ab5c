// Limits on what clients may cost an HTTP server: sizes, times, counts.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct kin_http_limits {
    size_t max_header;   // bytes of the request line and header: 64 KiB; beyond: 431, or 414 for the path
    size_t max_body;     // bytes: KIN_HTTP_MAX_BODY, which is also the maximum; beyond: 413
    size_t max_memory;   // bytes of all requests together, including their parsed JSON: 256 MiB, or an eighth of the process's
                         // memory limit if that is less; beyond: 503, or 413 if one request alone needs more
    int max_connections; // 16384; one more ends the connection that has been idle longest, or is refused
    uint32_t header_ms;  // 15000: time for a whole request to arrive, plus one second for each 16 KiB of it; beyond: 408
    uint32_t idle_ms;    // 75000: time that an idle connection is kept after a request; before the first request, header_ms
    uint32_t stall_ms;   // 30000: a client that accepts no byte of a response for this time is cut off
    size_t max_pending;  // unsent bytes of a stream: 4 MiB; one more piece ends the connection
} kin_http_limits;

#define KIN_HTTP_MAX_BODY (((size_t)64 << 20) - 1) // 64 MiB with the terminating NUL

// Memory held by the requests of a server.
typedef struct kin_http_memory {
    size_t used, max;             // bytes; a thirty-second of max is for small requests
    int n_holds;                  // not yet released
    void (*released)(void *user); // called when the last hold is released; NULL: not needed
    void *user;
} kin_http_memory;

// The share of a body that was taken out of its exchange. All zero: none.
typedef struct kin_http_hold {
    kin_http_memory *memory;
    size_t bytes;
} kin_http_hold;
