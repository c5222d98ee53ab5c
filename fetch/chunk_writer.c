#include "fetch/chunk_writer.h"

#include <stdlib.h>

enum { AT_ONCE = 2 }; // threads of the pool; others need it, too

typedef struct buffer {
    struct buffer *next;
    uv_work_t work;
    kin_chunk_writer *writer;
    int sender;
    kin_chunk_part chunk;
    kin_store_result result;
    kin_err err;
} buffer;

struct kin_chunk_writer {
    uv_loop_t *loop;
    kin_chunk_store *chunks;
    kin_chunk_writer_kept kept;
    void *user;
    buffer *first; // in order of arrival; n_working of them are in the pool
    int n_working;
    bool is_closed;
};

int kin_chunk_writer_open(kin_chunk_writer **out, uv_loop_t *loop, kin_chunk_store *chunks, kin_chunk_writer_kept kept,
                          void *user, kin_err *err) {
    kin_chunk_writer *k = *out = calloc(1, sizeof *k);
    if (!k) return kin_err_set(err, "out of memory");
    *k = (kin_chunk_writer){.loop = loop, .chunks = kin_chunk_store_hold(chunks), .kept = kept, .user = user};
    return 0;
}

static void remove_buffer(kin_chunk_writer *k, buffer *p) {
    buffer **at = &k->first;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    free(p->chunk.bytes);
    free(p);
}

static bool is_with_pool(const buffer *p) {
    return p->work.data;
}

static void free_writer(kin_chunk_writer *k) {
    kin_chunk_store_release(k->chunks);
    free(k);
}

void kin_chunk_writer_close(kin_chunk_writer *k) {
    if (!k) return;
    k->is_closed = true;
    for (buffer *p = k->first, *next; p; p = next) {
        next = p->next;
        if (!is_with_pool(p)) remove_buffer(k, p);
    }
    if (k->n_working == 0) free_writer(k);
}

static void begin_next(kin_chunk_writer *k);

static void write_chunk(uv_work_t *work) {
    buffer *p = work->data;
    const kin_chunk_part *c = &p->chunk;
    p->result = kin_store_put(kin_chunk_store_store(p->writer->chunks), c->i_chunk, c->bytes, c->n_here, &p->err);
}

static void on_put(uv_work_t *work, int status) {
    (void)status; // work is never cancelled here
    buffer *p = work->data;
    kin_chunk_writer *k = p->writer;
    int sender = p->sender;
    kin_chunk_part chunk = p->chunk;
    chunk.bytes = NULL;
    kin_store_result result = p->result;
    kin_err err = p->err;
    remove_buffer(k, p);
    if (--k->n_working == 0 && k->is_closed)
        free_writer(k);
    else if (!k->is_closed) {
        begin_next(k);
        k->kept(k->user, sender, &chunk, result, result == KIN_STORE_OK ? "" : err.text);
    }
}

static void begin_next(kin_chunk_writer *k) {
    for (buffer *p = k->first; p && k->n_working < AT_ONCE; p = p->next) {
        if (is_with_pool(p)) continue;
        p->work.data = p;
        k->n_working++;
        uv_queue_work(k->loop, &p->work, write_chunk, on_put);
    }
}

int kin_chunk_writer_put(kin_chunk_writer *k, int sender, const kin_chunk_part *whole, kin_err *err) {
    buffer *p = calloc(1, sizeof *p), **at = &k->first;
    if (!p) {
        free(whole->bytes);
        return kin_err_set(err, "out of memory");
    }
    p->writer = k;
    p->sender = sender;
    p->chunk = *whole;
    while (*at) at = &(*at)->next;
    *at = p;
    begin_next(k);
    return 0;
}

bool kin_chunk_writer_has_from(const kin_chunk_writer *k, int sender) {
    for (const buffer *p = k->first; p; p = p->next) {
        if (p->sender == sender) return true;
    }
    return false;
}
