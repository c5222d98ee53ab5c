#include "pull/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/units.h"
#include "pull/known_models.h"
#include "pull/registry.h"
#include "pull/web.h"
#include "sys/whole_file.h"

// ---- names

// Reads a name of any form. *known has the short name's meaning, or an empty name.
static int read_name(const kin_pull_options *o, const char *name, kin_model_ref *ref, kin_known_model *known, kin_err *err) {
    known->name[0] = '\0';
    int rc = kin_model_ref_parse(ref, name, err);
    if (rc != KIN_ABSENT) return rc;
    rc = kin_known_models_find(o->known_file, name, known, err);
    if (rc != 0) return rc;
    rc = kin_model_ref_parse(ref, known->source, err);
    return rc == KIN_ABSENT ? kin_err_set(err, "'%s' means '%s', which is no source of a model", name, known->source) : rc;
}

int kin_pull_find(const kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err) {
    kin_model_ref ref;
    kin_known_model known;
    int rc = read_name(o, name, &ref, &known, err);
    if (rc == KIN_FAIL) return rc;
    return rc == 0 ? kin_model_store_find(o->models_dir, &ref, record) : kin_model_store_find_file(o->models_dir, name, record);
}

bool kin_pull_is_name(const kin_pull_options *o, const char *text) {
    kin_model_record record;
    kin_model_ref ref;
    kin_known_model known;
    kin_err err;
    if (read_name(o, text, &ref, &known, &err) != KIN_ABSENT) return true; // a malformed name is one too
    return kin_model_store_find_file(o->models_dir, text, &record) == 0;
}

// ---- a model's files

typedef struct pulling {
    const kin_pull_options *o;
    const kin_model_ref *ref;
    const kin_listing *listing;
    const kin_repo_file *file;
    kin_model_record record;       // of this file
    uint64_t done_before, n_bytes; // of the other files; of all
} pulling;

static void report_status(const kin_pull_options *o, const char *sentence) {
    if (o->log) o->log(o->user, sentence);
}

static void on_progress(void *user, const kin_download_progress *progress) {
    const pulling *p = user;
    kin_download_progress all = *progress;
    all.done += p->done_before;
    all.total = p->n_bytes;
    if (p->o->progress) p->o->progress(p->o->user, kin_path_file(p->record.path), p->file->sha256, &all);
}

// True if the file is there with the content that the registry has.
static bool is_there(void *user) {
    const pulling *p = user;
    kin_model_record have;
    struct stat st;
    if (stat(p->record.path, &st) != 0 || (uint64_t)st.st_size != p->file->size || !kin_model_store_read(p->record.path, &have))
        return false;
    if (p->file->sha256[0]) return strcmp(have.sha256, p->file->sha256) == 0;
    return have.size == p->file->size && strcmp(have.etag, p->listing->etag) == 0;
}

static int on_finished(void *user, kin_err *err) {
    pulling *p = user;
    p->record.fetched_s = (int64_t)time(NULL);
    return kin_model_store_write(&p->record, err);
}

static int make_folder_above(const char *path, kin_err *err) {
    char folder[KIN_STORE_PATH];
    snprintf(folder, sizeof folder, "%.*s", (int)(kin_path_file(path) - path - 1), path);
    return kin_folder_make(folder, err);
}

static int pull_file(pulling *p, int part, int n_parts, kin_err *err) {
    kin_model_record *r = &p->record;
    char url[KIN_REF_TEXT + 3 * KIN_REF_PICK];
    r->part = part;
    r->n_parts = n_parts;
    r->size = p->file->size;
    snprintf(r->file, sizeof r->file, "%s", p->file->path);
    snprintf(r->sha256, sizeof r->sha256, "%s", p->file->sha256);
    snprintf(r->etag, sizeof r->etag, "%s", p->listing->etag);
    if (kin_model_store_place(p->o->models_dir, p->ref, p->file->path, r->path, err) != 0) return KIN_FAIL;
    if (is_there(p)) return 0;
    if (p->file->size < 4) return kin_err_set(err, "%s is empty", p->file->path);
    if (kin_registry_address(p->listing, p->ref, p->file, url, sizeof url, err) != 0 || make_folder_above(r->path, err) != 0)
        return KIN_FAIL;
    const kin_download_options d = {.url = url,
                                    .token = p->listing->token,
                                    .path = r->path,
                                    .size = p->file->size,
                                    .sha256 = p->file->sha256,
                                    .etag = p->listing->etag,
                                    .accepts_ranges = p->listing->accepts_ranges,
                                    .n_connections = p->o->n_connections,
                                    .patience_s = p->o->patience_s,
                                    .stop = p->o->stop,
                                    .is_there = is_there,
                                    .finished = on_finished,
                                    .progress = on_progress,
                                    .user = p};
    return kin_download(&d, err);
}

// Writes the whole name: the quantization, if that is how one asks for it, otherwise the file.
static void name_record(pulling *p, const kin_variant *v) {
    kin_model_ref whole = *p->ref;
    if (whole.registry == KIN_REGISTRY_HF) {
        whole.is_file = p->ref->is_file || !v->quant[0];
        snprintf(whole.pick, sizeof whole.pick, "%s", whole.is_file ? p->file->path : v->quant);
    }
    kin_model_ref_format(&whole, p->record.source, sizeof p->record.source);
    kin_model_ref_base(&whole, p->record.base, sizeof p->record.base);
    snprintf(p->record.quant, sizeof p->record.quant, "%s", v->quant);
}

static int pull_variant(pulling *p, const kin_variant *v, kin_model_record *record, kin_err *err) {
    p->n_bytes = v->bytes;
    p->file = &p->listing->repo.files[v->first];
    name_record(p, v);
    for (int i = v->n_parts - 1; i >= 0; i--) { // the first part last: its record makes the model complete
        p->file = &p->listing->repo.files[v->first + i];
        if (pull_file(p, i + 1, v->n_parts, err) != 0) return KIN_FAIL;
        p->done_before += p->file->size;
    }
    return kin_model_store_read(p->record.path, record) ? 0 : kin_err_set(err, "%s was removed in the meantime", p->record.path);
}

enum { FIRST_HEAD = 1 << 20, MAX_HEAD = 64 << 20 };

// Reads enough of the beginning of a model's file to compute the memory that it needs beside its weights. Returns 0 if that is
// not known.
static uint64_t read_needs(const kin_pull_options *o, const kin_listing *l, const kin_model_ref *ref, const kin_repo_file *file) {
    char url[KIN_REF_TEXT + 3 * KIN_REF_PICK], *head;
    kin_err err;
    if (kin_registry_address(l, ref, file, url, sizeof url, &err) != 0) return 0;
    const kin_web_request request = {.url = url, .token = l->token, .stop = o->stop};
    for (uint64_t n = FIRST_HEAD, reach, beside; n <= MAX_HEAD; n = reach) {
        size_t len;
        if (n > file->size) n = file->size;
        if (kin_web_head(&request, n, &head, &len, &err) != 0) return 0;
        int rc = o->needs((const uint8_t *)head, len, file->size, &reach, &beside);
        free(head);
        if (rc == 0) return beside;
        if (rc == KIN_FAIL || len < n || reach <= n) return 0;
    }
    return 0;
}

// The same for all quantizations of a model. It was recorded with a model of the repository that is here.
static uint64_t find_needs(const kin_pull_options *o, const kin_listing *l, const kin_model_ref *ref, const kin_variant *usual) {
    kin_model_record have;
    if (!o->needs) return 0;
    if (kin_model_store_find(o->models_dir, ref, &have) == 0 && have.beside > 0) return have.beside;
    return read_needs(o, l, ref, &l->repo.files[usual->first]);
}

// *beside: what the model needs beside its weights; 0: not known.
static int choose(const kin_pull_options *o, const kin_model_ref *ref, const kin_listing *l, const kin_variant *variants, int n,
                  int *index, uint64_t *beside, kin_err *err) {
    char why[400], line[700];
    *index = 0;
    *beside = 0;
    if (ref->registry != KIN_REGISTRY_HF) return 0;
    if (ref->pick[0]) return kin_variant_find(&l->repo, variants, n, ref, index, err);
    if (n == 1) return 0;
    *beside = find_needs(o, l, ref, &variants[kin_variant_usual(variants, n)]);
    *index = kin_variant_choose(variants, n, o->room, *beside, why, sizeof why);
    snprintf(line, sizeof line, "%s: %s", ref->repo, why);
    report_status(o, line);
    return 0;
}

static int pull_ref(const kin_pull_options *o, const kin_model_ref *ref, kin_model_record *record, kin_err *err) {
    kin_listing l = {0};
    kin_variant *variants = NULL;
    pulling p = {.o = o, .ref = ref, .listing = &l};
    int n, index;
    int rc = kin_registry_list(o, ref, &l, err);
    if (rc == 0 && (rc = kin_repo_variants(&l.repo, &variants, &n, err)) != 0) kin_err_prefix(err, "%s", ref->repo);
    if (rc == 0) rc = choose(o, ref, &l, variants, n, &index, &p.record.beside, err);
    if (rc == 0) rc = pull_variant(&p, &variants[index], record, err);
    free(variants);
    kin_listing_fini(&l);
    return rc;
}

int kin_pull(const kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err) {
    kin_model_ref ref;
    kin_known_model known;
    char line[700], text[KIN_REF_TEXT];
    if (!o->models_dir) return kin_err_set(err, "there is no home directory for models; set KIN_MODELS to a folder");
    int rc = read_name(o, name, &ref, &known, err);
    if (rc == KIN_FAIL) return rc;
    if (rc == KIN_ABSENT && kin_model_store_find_file(o->models_dir, name, record) == 0) return 0;
    if (rc == KIN_ABSENT)
        return kin_err_set(err,
                           "there is no model '%.100s'; a name is hf:OWNER/REPO, ollama:NAME, https://HOST/FILE.gguf, or one of "
                           "'kin pull --names'",
                           name);
    if (!o->refreshes && kin_model_store_find(o->models_dir, &ref, record) == 0) {
        kin_model_store_mark_used(record);
        return 0;
    }
    kin_model_ref_format(&ref, text, sizeof text);
    if (o->offline) return kin_err_set(err, "%s is not here, and --offline forbids to fetch it", text);
    if (known.name[0]) {
        snprintf(line, sizeof line, "%s is %s", name, known.source);
        report_status(o, line);
    }
    return pull_ref(o, &ref, record, err);
}
