#include "pull/model_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pull/part_file.h"
#include "sys/file_times.h"
#include "sys/whole_file.h"

enum { MAX_RECORD = 8192, MAX_RECORDS = 4096, SUFFIX_BYTES = 16 };
static const char suffix[] = ".source";

// ---- places

// "OWNER/REPO" -> "OWNER--REPO", "desk:8080" -> "desk_8080"
static void flatten(char *to, size_t size, const char *text) {
    size_t n = 0;
    for (; *text && n + 3 < size; text++) {
        if (*text == '/') {
            to[n++] = '-';
            to[n++] = '-';
        } else {
            to[n++] = *text == ':' || *text == '@' ? '_' : *text;
        }
    }
    to[n] = '\0';
}

int kin_model_store_place(const char *dir, const kin_model_ref *ref, const char *file, char path[KIN_STORE_PATH], kin_err *err) {
    static const char *const kinds[] = {"hf", "ollama", "web"};
    char folder[2 * KIN_REF_REPO];
    const char *repo = ref->registry == KIN_REGISTRY_OLLAMA && strncmp(ref->repo, "library/", 8) == 0 ? ref->repo + 8 : ref->repo;
    flatten(folder, sizeof folder, repo);
    int n = snprintf(path, KIN_STORE_PATH, "%s/%s--%s/%s", dir, kinds[ref->registry], folder, kin_path_file(file));
    bool fits = n > 0 && n + SUFFIX_BYTES < KIN_STORE_PATH && strlen(kin_path_file(file)) + SUFFIX_BYTES < 255;
    return fits ? 0 : kin_err_set(err, "the path %.100s... is too long", path);
}

static void record_path(const char *path, char out[KIN_STORE_PATH + SUFFIX_BYTES]) {
    snprintf(out, KIN_STORE_PATH + SUFFIX_BYTES, "%s%s", path, suffix);
}

// ---- records

int kin_model_store_write(const kin_model_record *r, kin_err *err) {
    char text[MAX_RECORD], path[KIN_STORE_PATH + SUFFIX_BYTES];
    int n = snprintf(text, sizeof text,
                     "kin-model 1\nsource %s\nbase %s\nfile %s\nquant %s\nsha256 %s\netag %s\nsize %" PRIu64
                     "\npart %d\nparts %d\nfetched %" PRId64 "\nbeside %" PRIu64 "\n",
                     r->source, r->base, r->file, r->quant, r->sha256, r->etag, r->size, r->part, r->n_parts, r->fetched_s,
                     r->beside);
    if (n < 0 || (size_t)n >= sizeof text) return kin_err_set(err, "%s: the record is too long", r->path);
    record_path(r->path, path);
    return kin_whole_file_write(path, text, (size_t)n, err);
}

// Reads one line "KEY VALUE" into the record.
static void read_field(kin_model_record *r, const char *key, const char *value) {
    const struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {{"source", r->source, sizeof r->source}, {"base", r->base, sizeof r->base},
                 {"file", r->file, sizeof r->file},       {"quant", r->quant, sizeof r->quant},
                 {"sha256", r->sha256, sizeof r->sha256}, {"etag", r->etag, sizeof r->etag}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].key, key) == 0) snprintf(texts[i].to, texts[i].size, "%s", value);
    if (strcmp(key, "size") == 0) r->size = strtoull(value, NULL, 10);
    if (strcmp(key, "beside") == 0) r->beside = strtoull(value, NULL, 10);
    if (strcmp(key, "part") == 0) r->part = atoi(value);
    if (strcmp(key, "parts") == 0) r->n_parts = atoi(value);
    if (strcmp(key, "fetched") == 0) r->fetched_s = strtoll(value, NULL, 10);
}

bool kin_model_store_read(const char *path, kin_model_record *r) {
    char name[KIN_STORE_PATH + SUFFIX_BYTES];
    uint8_t *bytes;
    size_t n;
    struct stat st;
    record_path(path, name);
    *r = (kin_model_record){0};
    if (kin_whole_file_read(name, MAX_RECORD, &bytes, &n, NULL) != 0) return false;
    bool is_record = strncmp((char *)bytes, "kin-model 1\n", 12) == 0;
    for (char *line = (char *)bytes, *end; is_record && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = '\0';
        read_field(r, line, space + 1);
    }
    free(bytes);
    snprintf(r->path, sizeof r->path, "%s", path);
    if (stat(name, &st) == 0) r->used_s = (int64_t)kin_file_written_time(&st).tv_sec;
    return is_record && r->source[0] && r->n_parts >= 1 && r->part >= 1 && r->part <= r->n_parts;
}

// Writes the path of a part of the model whose first part has this path.
static void part_path(const kin_model_record *r, int part, char path[KIN_STORE_PATH]) {
    snprintf(path, KIN_STORE_PATH, "%s", r->path);
    size_t n = strlen(path), n_tail = strlen("00001-of-00002.gguf");
    if (r->n_parts == 1 || n < n_tail) return;
    char number[16];
    snprintf(number, sizeof number, "%05d", part);
    memcpy(path + n - n_tail, number, 5);
}

// Sums the sizes of all parts. False if one is not there.
static bool is_complete(kin_model_record *r) {
    r->bytes = 0;
    for (int i = 1; i <= r->n_parts; i++) {
        char path[KIN_STORE_PATH];
        struct stat st;
        part_path(r, i, path);
        if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
        r->bytes += (uint64_t)st.st_size;
    }
    return true;
}

// ---- the folder

typedef struct list {
    kin_model_record *at; // [cap]
    int n, cap;
} list;

static int add(list *l, const kin_model_record *r, kin_err *err) {
    if (l->n == MAX_RECORDS) return kin_err_set(err, "more than %d models", MAX_RECORDS);
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 8;
        kin_model_record *larger = realloc(l->at, (size_t)cap * sizeof *larger);
        if (!larger) return kin_err_set(err, "out of memory");
        l->at = larger;
        l->cap = cap;
    }
    l->at[l->n++] = *r;
    return 0;
}

static int add_folder(list *l, const char *folder, kin_err *err) {
    DIR *d = opendir(folder);
    int rc = 0;
    if (!d) return 0; // a file, or a folder of another user
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        size_t n = strlen(e->d_name), n_suffix = sizeof suffix - 1;
        char path[KIN_STORE_PATH];
        kin_model_record r;
        if (n <= n_suffix || strcmp(e->d_name + n - n_suffix, suffix) != 0) continue;
        int len = snprintf(path, sizeof path, "%s/%.*s", folder, (int)(n - n_suffix), e->d_name);
        if (len < 0 || (size_t)len >= sizeof path || !kin_model_store_read(path, &r) || r.part != 1 || !is_complete(&r)) continue;
        rc = add(l, &r, err);
    }
    closedir(d);
    return rc;
}

static int compare(const void *a, const void *b) {
    const kin_model_record *x = a, *y = b;
    int order = strcmp(x->source, y->source);
    return order ? order : strcmp(x->path, y->path);
}

int kin_model_store_list(const char *dir, kin_model_record **records, int *n, kin_err *err) {
    DIR *d = opendir(dir);
    list l = {0};
    int rc = 0;
    *records = NULL;
    *n = 0;
    if (!d) return errno == ENOENT ? 0 : kin_err_set(err, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        char folder[KIN_STORE_PATH];
        int len = snprintf(folder, sizeof folder, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && len > 0 && (size_t)len < sizeof folder) rc = add_folder(&l, folder, err);
    }
    closedir(d);
    if (rc != 0) {
        free(l.at);
        return rc;
    }
    if (l.n > 1) qsort(l.at, (size_t)l.n, sizeof *l.at, compare);
    *records = l.at;
    *n = l.n;
    return 0;
}

// ---- names

typedef bool (*match_fn)(const kin_model_record *r, const void *wanted);

// Copies the matching record that was fetched last.
static int find(const char *dir, match_fn matches, const void *wanted, kin_model_record *record) {
    kin_model_record *all;
    int n, best = -1;
    if (kin_model_store_list(dir, &all, &n, NULL) != 0) return KIN_ABSENT;
    for (int i = 0; i < n; i++) {
        if (matches(&all[i], wanted) && (best < 0 || all[i].fetched_s >= all[best].fetched_s)) best = i;
    }
    if (best >= 0) *record = all[best];
    free(all);
    return best >= 0 ? 0 : KIN_ABSENT;
}

static bool matches_ref(const kin_model_record *r, const void *wanted) {
    const kin_model_ref *ref = wanted;
    char base[KIN_REF_TEXT], whole[KIN_REF_TEXT];
    if (strcmp(r->base, kin_model_ref_base(ref, base, sizeof base)) != 0) return false;
    if (ref->registry != KIN_REGISTRY_HF) return strcmp(r->source, kin_model_ref_format(ref, whole, sizeof whole)) == 0;
    if (!ref->pick[0]) return true;
    if (ref->is_file) return strcmp(r->file, ref->pick) == 0;
    const char *quant = strncmp(r->quant, "UD-", 3) == 0 && strncasecmp(ref->pick, "UD-", 3) != 0 ? r->quant + 3 : r->quant;
    return strcasecmp(quant, ref->pick) == 0;
}

int kin_model_store_find(const char *dir, const kin_model_ref *ref, kin_model_record *record) {
    return find(dir, matches_ref, ref, record);
}

static bool matches_name(const kin_model_record *r, const void *wanted) {
    const char *name = wanted, *file = kin_path_file(r->path);
    size_t n = strlen(file) - strlen(".gguf"), n_name = strlen(name);
    if (strcmp(r->source, name) == 0 || strcmp(r->path, name) == 0 || strcmp(file, name) == 0) return true;
    if (r->n_parts > 1) n -= strlen("-00001-of-00002");
    return n_name == n && strncmp(file, name, n) == 0;
}

int kin_model_store_find_file(const char *dir, const char *name, kin_model_record *record) {
    return find(dir, matches_name, name, record);
}

void kin_model_store_mark_used(const kin_model_record *r) {
    char name[KIN_STORE_PATH + SUFFIX_BYTES];
    record_path(r->path, name);
    utimensat(AT_FDCWD, name, NULL, 0);
}

int kin_model_store_remove(const kin_model_record *r, kin_err *err) {
    char folder[KIN_STORE_PATH];
    for (int i = 1; i <= r->n_parts; i++) {
        char path[KIN_STORE_PATH], name[KIN_STORE_PATH + SUFFIX_BYTES];
        part_path(r, i, path);
        record_path(path, name);
        if (unlink(path) != 0 && errno != ENOENT) return kin_err_set(err, "%s: %s", path, strerror(errno));
        unlink(name);
    }
    snprintf(folder, sizeof folder, "%.*s", (int)(kin_path_file(r->path) - r->path), r->path);
    rmdir(folder); // fails if there are other models in it
    return 0;
}
