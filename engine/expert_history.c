#include "engine/expert_history.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/weights/options.h"
#include "pure/plan/expert_counts.h"
#include "sys/whole_file.h"

typedef struct history_path {
    char text[1024 + sizeof KIN_PACKED_EXPERTS_SUFFIX];
} history_path;

static history_path name_file(const kin_packed *packed) {
    history_path path;
    snprintf(path.text, sizeof path.text, "%s" KIN_PACKED_EXPERTS_SUFFIX, kin_packed_path(packed));
    return path;
}

// The caller frees c->counts, also after a failure. They are zeros at first.
static int begin(kin_expert_counts *c, const kin_packed *packed, int n_layer, int n_expert, kin_err *err) {
    *c = (kin_expert_counts){kin_packed_get_key(packed).model, n_layer, n_expert, NULL};
    c->counts = calloc((size_t)n_layer * (size_t)n_expert, sizeof *c->counts);
    return c->counts ? 0 : kin_err_set(err, "out of memory");
}

static int read_file(kin_expert_counts *c, const char *path, kin_err *err) {
    uint8_t *bytes;
    size_t n;
    int rc = kin_whole_file_read(path, kin_expert_counts_bytes(c->n_layer, c->n_expert), &bytes, &n, err);
    if (rc != 0) return rc;
    rc = kin_expert_counts_decode(c, bytes, n, err);
    free(bytes);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", path);
}

static int write_file(const kin_expert_counts *c, const char *path, kin_err *err) {
    const size_t n = kin_expert_counts_bytes(c->n_layer, c->n_expert);
    uint8_t *bytes = malloc(n);
    if (!bytes) return kin_err_set(err, "out of memory");
    kin_expert_counts_encode(c, bytes);
    int rc = kin_whole_file_write(path, bytes, n, err);
    free(bytes);
    return rc;
}

int kin_expert_history_load(kin_experts *experts, const kin_packed *packed, int n_layer, int n_expert, kin_err *err) {
    kin_expert_counts c;
    int rc = begin(&c, packed, n_layer, n_expert, err);
    if (rc == 0) rc = read_file(&c, name_file(packed).text, err);
    if (rc == 0) kin_experts_set_counts(experts, c.counts);
    free(c.counts);
    return rc;
}

int kin_expert_history_save(kin_experts *experts, const kin_packed *packed, int n_layer, int n_expert, kin_err *err) {
    kin_expert_counts c;
    kin_err ignored; // what cannot be read is replaced
    int rc = begin(&c, packed, n_layer, n_expert, err);
    if (rc == 0) {
        (void)read_file(&c, name_file(packed).text, &ignored);
        kin_experts_get_counts(experts, c.counts);
        rc = write_file(&c, name_file(packed).text, err);
    }
    free(c.counts);
    return rc;
}

// ---- predicting hits

static bool ends_with(const char *name, const char *suffix) {
    const size_t n = strlen(name), n_suffix = strlen(suffix);
    return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0;
}

// Reads the first file of the model in `dir` that can be used. The model's content is sampled only if there is any file of
// counts.
static int find_counts(const char *dir, const kin_model *model, kin_expert_counts *c, kin_err *err) {
    int rc = KIN_ABSENT;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && rc != 0 && (e = readdir(d));) {
        char path[1024];
        if (!ends_with(e->d_name, KIN_PACKED_SUFFIX KIN_PACKED_EXPERTS_SUFFIX)) continue;
        if (c->model == 0 && kin_weights_model_identity(model, &c->model, err) != 0) break;
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path) rc = read_file(c, path, err);
    }
    if (d) closedir(d);
    return rc == 0 ? 0 : KIN_ABSENT;
}

int kin_expert_history_hits(const char *dir, const kin_model *model, const double *in_memory, double *hits, int n, kin_err *err) {
    kin_expert_counts c = {.n_layer = model->hp.n_layer, .n_expert = model->hp.n_expert};
    if (!dir || c.n_expert == 0) return KIN_ABSENT;
    c.counts = calloc((size_t)c.n_layer * (size_t)c.n_expert, sizeof *c.counts);
    if (!c.counts) return kin_err_set(err, "out of memory");
    int rc = find_counts(dir, model, &c, err);
    if (rc == 0) rc = kin_expert_counts_hits(&c, in_memory, hits, n, err);
    free(c.counts);
    return rc;
}
