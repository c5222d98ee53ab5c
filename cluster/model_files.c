#include "cluster/model_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/str.h"
#include "model/arch.h"
#include "pure/text/escape.h"
#include "sys/file_times.h"

static const char suffix[] = ".gguf";

const char *kin_model_main_type(const kin_gguf *gguf, uint64_t *n_bytes) {
    uint64_t bytes[64] = {0};
    int best = 0;
    *n_bytes = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        *n_bytes += t->n_bytes;
        if (t->type < 64) bytes[t->type] += t->n_bytes;
    }
    for (int type = 1; type < 64; type++) best = bytes[type] > bytes[best] ? type : best;
    return kin_gguf_type_name(best);
}

// ---- names

// Compares without case.
static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), n_end = strlen(end);
    return n > n_end && strcasecmp(text + n - n_end, end) == 0;
}

// Returns the part number of NAME-00002-of-00003.gguf; 0: not a part. *n_name: bytes before it.
static int part_of(const char *file, size_t *n_name) {
    int part = 0, n_parts = 0, n = 0;
    *n_name = strlen(file) - (sizeof suffix - 1);
    if (*n_name <= 15) return 0;
    const char *at = file + *n_name - 15;
    if (sscanf(at, "-%5d-of-%5d%n", &part, &n_parts, &n) != 2 || n != 15 || part < 1) return 0;
    *n_name -= 15;
    return part;
}

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Makes "Qwen3-0.6B-Q8_0" of "/models/Qwen3-0.6B-Q8_0.gguf"
static void name_by_path(kin_model_file *f) {
    const char *file = file_of(f->path);
    size_t n = strlen(file);
    if (ends_in(file, suffix)) part_of(file, &n);
    kin_escape(f->name, sizeof f->name, file, n);
}

// Sorts by name; files in the folder itself come before those in subfolders.
static int compare(const void *a, const void *b) {
    const kin_model_file *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0) order = x->is_deeper - y->is_deeper;
    return order ? order : strcmp(x->path, y->path);
}

// Adds the folder to the names of files with the same name; the first of them keeps the plain name.
static void rename_duplicates(kin_model_file *files, int n) {
    for (int i = n - 1; i > 0; i--) {
        char folder[sizeof files->path], shown[101], name[151];
        if (strcmp(files[i].name, files[i - 1].name) != 0) continue;
        snprintf(folder, sizeof folder, "%s", files[i].path);
        folder[file_of(folder) - folder - 1] = 0;
        kin_escape(name, sizeof name, files[i].name, strlen(files[i].name));
        kin_escape(shown, sizeof shown, file_of(folder), strlen(file_of(folder)));
        snprintf(files[i].name, sizeof files[i].name, "%s/%s", shown, name);
    }
    qsort(files, (size_t)n, sizeof *files, compare);
}

// ---- files

static void describe(kin_model_file *f, const kin_model *m) {
    kin_str kind = {"", 0};
    kin_gguf_get_str(m->gguf, "tokenizer.ggml.model", &kind, NULL);
    f->is_usable = true;
    f->family = m->hp.arch->name;
    f->type = kin_model_main_type(m->gguf, &f->n_bytes);
    f->n_params = kin_model_n_params(m);
    f->n_ctx_train = m->hp.n_ctx_train;
    f->n_vocab = m->hp.n_vocab;
    f->n_embd = m->hp.n_embd;
    f->n_layer = m->hp.n_layer;
    f->is_bpe = (kind.len == 4 && memcmp(kind.at, "gpt2", 4) == 0) || (kind.len == 6 && memcmp(kind.at, "gemma4", 6) == 0);
}

void kin_model_file_read(kin_model_file *f, const char *path) {
    struct stat st;
    kin_model m = {0};
    *f = (kin_model_file){0};
    if (strlen(path) >= sizeof f->path) {
        kin_err_set(&f->why, "the path is too long");
        return;
    }
    snprintf(f->path, sizeof f->path, "%s", path);
    name_by_path(f);
    if (stat(path, &st) == 0) f->modified_s = (int64_t)st.st_mtime;
    if (kin_model_open(&m, path, &f->why) != 0) return;
    describe(f, &m);
    kin_model_close(&m);
}

// ---- files that are being written

static const kin_time LOOK_AGAIN_NS = UINT64_C(1000000000), TRY_AGAIN_NS = UINT64_C(60000000000);

// Returns the version of a file; 0: it is missing, cannot be opened, or has changed since the last time.
static uint64_t check_file(kin_model_wait *w, const char *path, kin_file_identity *seen) {
    kin_file_identity now;
    kin_model m;
    kin_err why;
    if (kin_file_identify_path(path, &now) != 0) {
        kin_err_set(&w->missing, "%s: %s", path, strerror(errno));
        return 0;
    }
    bool is_settled = memcmp(&now, seen, sizeof now) == 0;
    *seen = now;
    if (!is_settled) return 0;
    if (path == w->other) return kin_hash64(seen, sizeof *seen, 1);
    if (kin_model_open(&m, path, &why) != 0) {
        if (path == w->draft) w->missing = why; // an incomplete main model is known to be
        return 0;
    }
    uint64_t version = kin_gguf_version(m.gguf);
    kin_model_close(&m);
    return version;
}

// Returns the version of all files together; 0: one of them is not complete.
static uint64_t check_all(kin_model_wait *w) {
    const char *const paths[] = {w->path, w->draft, w->other};
    uint64_t versions[3] = {0};
    bool are_complete = true;
    w->missing.text[0] = '\0';
    for (int i = 0; i < 3; i++) {
        if (!paths[i]) continue;
        versions[i] = check_file(w, paths[i], &w->seen[i]);
        are_complete = are_complete && versions[i] != 0;
    }
    return are_complete ? kin_hash64(versions, sizeof versions, 0) : 0;
}

bool kin_model_wait_is_over(kin_model_wait *w, kin_time now) {
    if (now < w->next) return false;
    w->next = now + LOOK_AGAIN_NS;
    uint64_t before = w->version;
    w->version = check_all(w);
    if (!w->version || w->version != before) return false;
    if (w->version == w->given && now < w->given_at + TRY_AGAIN_NS) return false;
    w->given = w->version;
    w->given_at = now;
    return true;
}

// ---- folders

typedef struct list {
    kin_model_file *at; // [cap]
    int n, cap;
} list;

// Called for each file of a folder.
typedef int (*visit_fn)(void *user, const char *path, const struct stat *st, bool is_deeper, kin_err *err);

static int add(void *user, const char *path, const struct stat *st, bool is_deeper, kin_err *err) {
    list *l = user;
    size_t n_name;
    (void)st;
    if (part_of(file_of(path), &n_name) > 1) return 0;
    if (l->n == KIN_MODEL_FILES_MAX) return kin_err_set(err, "more than %d model files", KIN_MODEL_FILES_MAX);
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        kin_model_file *larger = realloc(l->at, (size_t)cap * sizeof *larger);
        if (!larger) return kin_err_set(err, "out of memory");
        l->at = larger;
        l->cap = cap;
    }
    kin_model_file_read(&l->at[l->n], path);
    l->at[l->n++].is_deeper = is_deeper;
    return 0;
}

// deeper: visits subfolders, too, but not theirs.
static int visit_folder(const char *dir, bool deeper, visit_fn visit, void *user, kin_err *err) {
    DIR *d = opendir(dir);
    int rc = 0;
    if (!d) return deeper ? kin_err_set(err, "%s: %s", dir, strerror(errno)) : 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        char path[1024];
        struct stat st;
        int n = snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.' || n < 0 || (size_t)n >= sizeof path || stat(path, &st) != 0) continue;
        if (S_ISREG(st.st_mode) && ends_in(e->d_name, suffix))
            rc = visit(user, path, &st, !deeper, err);
        else if (S_ISDIR(st.st_mode) && deeper)
            rc = visit_folder(path, false, visit, user, err);
    }
    closedir(d);
    return rc;
}

// Independent of the order in which the folder lists the files.
static int add_mark(void *user, const char *path, const struct stat *st, bool is_deeper, kin_err *err) {
    struct timespec written = kin_file_written_time(st);
    const int64_t numbers[] = {st->st_size, written.tv_sec, written.tv_nsec, is_deeper};
    (void)err;
    *(uint64_t *)user += kin_hash64(path, strlen(path), kin_hash64(numbers, sizeof numbers, 0));
    return 0;
}

uint64_t kin_model_files_mark(const char *dir) {
    uint64_t mark = 0;
    kin_err err;
    visit_folder(dir, true, add_mark, &mark, &err);
    return mark;
}

int kin_model_files_find(kin_model_file **files, int *n, const char *dir, kin_err *err) {
    list l = {0};
    *files = NULL;
    *n = 0;
    if (visit_folder(dir, true, add, &l, err) != 0) {
        free(l.at);
        return KIN_FAIL;
    }
    if (l.n > 1) {
        qsort(l.at, (size_t)l.n, sizeof *l.at, compare);
        rename_duplicates(l.at, l.n);
    }
    *files = l.at;
    *n = l.n;
    return 0;
}
