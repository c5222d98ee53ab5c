#include "serve/model_scan.h"

#include <stdlib.h>

#define INTERVAL_NS 2000000000

struct kin_model_scan {
    kin_model_scan_options o;
    uv_work_t work;
    bool is_running;
    kin_time next;
    uint64_t mark; // of the folder at the last read
    // The pool's while it runs.
    bool has_listed;       // the folder has changed, and was read
    kin_model_file *files; // [n]
    int n;
};

kin_model_scan *kin_model_scan_open(const kin_model_scan_options *o) {
    kin_model_scan *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->o = *o;
    s->work.data = s;
    return s;
}

void kin_model_scan_close(kin_model_scan *s) {
    free(s);
}

static void list_files(uv_work_t *work) {
    kin_model_scan *s = work->data;
    kin_err err;
    uint64_t mark = kin_model_files_mark(s->o.dir);
    s->has_listed = false;
    s->files = NULL;
    s->n = 0;
    if (mark == s->mark || kin_model_files_find(&s->files, &s->n, s->o.dir, &err) != 0) return;
    s->mark = mark;
    s->has_listed = true;
}

static void on_listed(uv_work_t *work, int status) {
    kin_model_scan *s = work->data;
    s->is_running = false;
    if (status != 0) return;
    if (s->has_listed) s->o.listed(s->o.user, s->files, s->n);
    free(s->files);
}

void kin_model_scan_tick(kin_model_scan *s, kin_time now) {
    if (s->is_running || now < s->next) return;
    s->next = now + INTERVAL_NS;
    s->is_running = uv_queue_work(s->o.loop, &s->work, list_files, on_listed) == 0;
}
