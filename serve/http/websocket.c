#include "serve/http/websocket.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

#include "base/sentence.h"

enum {
    MAX_REASON = 123,  // bytes, as the protocol requires
    MAX_FRAMES = 4096, // per message: each frame allocates memory, however short it is. Chromium's frames have 64 KiB or more
};

struct kin_websocket {
    wslay_event_context_ptr ctx;
    kin_websocket_callbacks callbacks;
    void *user;
    const uint8_t *in; // [n_in] fed, not consumed
    size_t n_in;
    int n_frames; // of the incoming message
};

bool kin_websocket_accept(char accept[KIN_WEBSOCKET_ACCEPT], kin_str key) {
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    uint8_t text[KIN_WEBSOCKET_KEY + sizeof guid - 1], hash[EVP_MAX_MD_SIZE];
    unsigned n_hash;
    if (!key.at || key.len != KIN_WEBSOCKET_KEY) return false;
    memcpy(text, key.at, key.len);
    memcpy(text + key.len, guid, sizeof guid - 1);
    if (EVP_Digest(text, sizeof text, hash, &n_hash, EVP_sha1(), NULL) != 1) return false;
    EVP_EncodeBlock((uint8_t *)accept, hash, (int)n_hash);
    return true;
}

// ---- wslay's callbacks

static ssize_t give_input(wslay_event_context_ptr ctx, uint8_t *to, size_t n, int flags, void *user) {
    kin_websocket *ws = user;
    (void)flags;
    if (ws->n_in == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (n > ws->n_in) n = ws->n_in;
    memcpy(to, ws->in, n);
    ws->in += n;
    ws->n_in -= n;
    return (ssize_t)n;
}

static ssize_t send_output(wslay_event_context_ptr ctx, const uint8_t *bytes, size_t n, int flags, void *user) {
    kin_websocket *ws = user;
    (void)ctx, (void)flags;
    ws->callbacks.send(ws->user, bytes, n);
    return (ssize_t)n;
}

static void handle_frame(wslay_event_context_ptr ctx, const struct wslay_event_on_frame_recv_start_arg *f, void *user) {
    kin_websocket *ws = user;
    (void)ctx;
    if (wslay_is_ctrl_frame(f->opcode)) return;
    ws->n_frames = f->opcode == WSLAY_CONTINUATION_FRAME ? ws->n_frames + 1 : 1;
}

static void handle_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m, void *user) {
    kin_websocket *ws = user;
    (void)ctx;
    if (m->opcode == WSLAY_TEXT_FRAME || m->opcode == WSLAY_BINARY_FRAME)
        ws->callbacks.message(ws->user, m->opcode == WSLAY_TEXT_FRAME, m->msg, m->msg_length);
}

// ---- open and close

int kin_websocket_open(kin_websocket **out, size_t max, const kin_websocket_callbacks *callbacks, void *user, kin_err *err) {
    static const struct wslay_event_callbacks of_wslay = {.recv_callback = give_input,
                                                          .send_callback = send_output,
                                                          .on_frame_recv_start_callback = handle_frame,
                                                          .on_msg_recv_callback = handle_message};
    kin_websocket *ws = *out = calloc(1, sizeof *ws);
    if (!ws) return kin_err_set(err, "out of memory");
    ws->callbacks = *callbacks;
    ws->user = user;
    if (wslay_event_context_server_init(&ws->ctx, &of_wslay, ws) != 0) {
        free(ws);
        *out = NULL;
        return kin_err_set(err, "out of memory");
    }
    kin_websocket_set_max(ws, max);
    return 0;
}

void kin_websocket_close(kin_websocket *ws) {
    if (!ws) return;
    wslay_event_context_free(ws->ctx);
    free(ws);
}

void kin_websocket_set_max(kin_websocket *ws, size_t max) {
    wslay_event_config_set_max_recv_msg_length(ws->ctx, max);
}

// ---- bytes

static bool flush(kin_websocket *ws) {
    return wslay_event_send(ws->ctx) == 0;
}

bool kin_websocket_feed(kin_websocket *ws, const uint8_t *bytes, size_t n) {
    ws->in = bytes;
    ws->n_in = n;
    bool is_right = wslay_event_recv(ws->ctx) == 0;
    ws->n_in = 0;
    return flush(ws) && is_right && ws->n_frames <= MAX_FRAMES && wslay_event_get_read_enabled(ws->ctx);
}

bool kin_websocket_send(kin_websocket *ws, bool is_text, const void *bytes, size_t n) {
    const struct wslay_event_msg m = {.opcode = is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = bytes, .msg_length = n};
    return wslay_event_queue_msg(ws->ctx, &m) == 0 && flush(ws);
}

void kin_websocket_end(kin_websocket *ws, int status, const char *reason) {
    char text[MAX_REASON + 1]; // whole characters, otherwise a browser reports a failure
    kin_sentence_print(text, sizeof text, "%s", reason);
    if (wslay_event_queue_close(ws->ctx, (uint16_t)status, (const uint8_t *)text, strlen(text)) == 0) flush(ws);
}
