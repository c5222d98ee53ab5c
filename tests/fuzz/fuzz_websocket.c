// Feeds any bytes as those of a tab's WebSocket, in pieces whose size is the first byte. No message is longer than allowed,
// frames in messages decode without a crash, and no message follows the end of the connection.
#include <string.h>

#include "base/err.h"
#include "pure/proto/frame.h"
#include "pure/proto/message.h"
#include "serve/http/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MAX = 2000 };

static bool is_over;

static void on_send(void *user, const uint8_t *bytes, size_t n) {
    (void)user, (void)bytes;
    kin_assert(n > 0);
}

static void on_message(void *user, bool is_text, const uint8_t *bytes, size_t n) {
    static kin_proto_message m;
    kin_websocket **ws = user;
    kin_frame frame;
    kin_err err;
    kin_assert(!is_over && n <= MAX);
    if (is_text) kin_websocket_send(*ws, true, bytes, n);
    if (kin_frame_decode(bytes, n, &frame, &err) == KIN_FRAME_HEADER && frame.length == n - KIN_FRAME_HEADER)
        kin_proto_decode(frame.type, bytes + KIN_FRAME_HEADER, frame.length, &m, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const kin_websocket_callbacks callbacks = {on_send, on_message};
    kin_websocket *ws;
    if (size < 1) return 0;
    size_t step = bytes[0] ? bytes[0] : SIZE_MAX;
    is_over = false;
    if (kin_websocket_open(&ws, MAX, &callbacks, &ws, NULL) != 0) return 0;
    for (size_t at = 1; at < size && !is_over; at += step) {
        size_t n = step < size - at ? step : size - at;
        is_over = !kin_websocket_feed(ws, bytes + at, n);
        if (step > SIZE_MAX / 2) break;
    }
    kin_websocket_close(ws);
    return 0;
}
