#include "net/mailbox.h"

#include <stdlib.h>

typedef struct call {
    kin_mailbox_fn fn;
    void *arg;
} call;

struct kin_mailbox {
    uv_async_t wake;
    uv_mutex_t lock;   // protects the fields below; never held during a call
    uv_cond_t changed; // there is room, or it was closed
    call *calls;       // [n_max], a ring buffer
    int n_max, first, n;
    bool is_closed;
};

static bool pop_call(kin_mailbox *p, call *c) {
    uv_mutex_lock(&p->lock);
    bool any = p->n > 0;
    if (any) {
        *c = p->calls[p->first];
        p->first = (p->first + 1) % p->n_max;
        p->n--;
        uv_cond_signal(&p->changed);
    }
    uv_mutex_unlock(&p->lock);
    return any;
}

// Runs at most n_max calls, so that calls that add calls do not starve the loop's sockets.
static void run_calls(uv_async_t *wake) {
    kin_mailbox *p = wake->data;
    call c;
    for (int i = 0; i < p->n_max; i++) {
        if (!pop_call(p, &c)) return;
        c.fn(c.arg);
        if (uv_is_closing((uv_handle_t *)wake)) return; // the call closed this mailbox, which ran the remaining calls
    }
    uv_async_send(wake);
}

static int open_lock(kin_mailbox *p) {
    if (uv_mutex_init(&p->lock) != 0) return KIN_FAIL;
    if (uv_cond_init(&p->changed) == 0) return 0;
    uv_mutex_destroy(&p->lock);
    return KIN_FAIL;
}

int kin_mailbox_open(kin_mailbox **out, uv_loop_t *loop, int n_max, kin_err *err) {
    *out = NULL;
    kin_mailbox *p = calloc(1, sizeof *p);
    if (p) p->calls = calloc((size_t)n_max, sizeof *p->calls);
    if (!p || !p->calls || open_lock(p) != 0) {
        if (p) free(p->calls);
        free(p);
        return kin_err_set(err, "out of memory");
    }
    p->n_max = n_max;
    p->wake.data = p;
    int rc = uv_async_init(loop, &p->wake, run_calls);
    if (rc != 0) {
        kin_mailbox_free(p);
        return kin_err_set(err, "cannot create a wake-up handle for the event loop: %s", uv_strerror(rc));
    }
    *out = p;
    return 0;
}

void kin_mailbox_close(kin_mailbox *p) {
    if (!p || uv_is_closing((uv_handle_t *)&p->wake)) return;
    uv_mutex_lock(&p->lock);
    p->is_closed = true;
    uv_cond_broadcast(&p->changed);
    uv_mutex_unlock(&p->lock);
    uv_close((uv_handle_t *)&p->wake, NULL);
    call c;
    while (pop_call(p, &c)) c.fn(c.arg);
}

void kin_mailbox_free(kin_mailbox *p) {
    if (!p) return;
    uv_cond_destroy(&p->changed);
    uv_mutex_destroy(&p->lock);
    free(p->calls);
    free(p);
}

static bool leave_call(kin_mailbox *p, call c, bool waits) {
    uv_mutex_lock(&p->lock);
    while (waits && !p->is_closed && p->n == p->n_max) uv_cond_wait(&p->changed, &p->lock);
    bool taken = !p->is_closed && p->n < p->n_max;
    if (taken) {
        p->calls[(p->first + p->n) % p->n_max] = c;
        p->n++;
        uv_async_send(&p->wake); // before unlocking: afterwards the handle might be closed
    }
    uv_mutex_unlock(&p->lock);
    return taken;
}

bool kin_mailbox_call(kin_mailbox *p, kin_mailbox_fn fn, void *arg) {
    return leave_call(p, (call){fn, arg}, false);
}

bool kin_mailbox_call_when_room(kin_mailbox *p, kin_mailbox_fn fn, void *arg) {
    return leave_call(p, (call){fn, arg}, true);
}
