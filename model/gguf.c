#include "model/gguf.h"

#include <ggml.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sys/file.h"

typedef struct kin_gguf_file {
    char *path;
    uint64_t size;
    kin_file map;            // not open for bytes in memory
    kin_file_identity known; // as it was when opened, or later with the same content; guarded by `lock`
    atomic_flag lock;
} kin_gguf_file;

struct kin_gguf {
    kin_gguf_file *files; // [n_files]
    int n_files;
    kin_gguf_content content;     // metadata of the first file, tensors of all files
    kin_name_index tensor_names;  // of all files
    atomic_bool is_filled;        // kin itself writes to the files
    atomic_uint_least64_t sample; // hash of the tensors; every thread computes the same value. 0: not computed
};

// One file

static kin_gguf *new_with_file(const char *path, kin_err *err) {
    kin_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf) gguf->files = calloc(1, sizeof *gguf->files);
    if (gguf && gguf->files) {
        gguf->n_files = 1;
        gguf->files[0] = (kin_gguf_file){.path = strdup(path), .map = {.fd = -1, .guard = -1}};
        if (gguf->files[0].path) return gguf;
    }
    kin_err_set(err, "%s: out of memory", path);
    kin_gguf_close(gguf);
    return NULL;
}

static int parse(kin_gguf *gguf, const uint8_t *bytes, uint64_t size, kin_err *err) {
    gguf->files[0].size = size;
    if (kin_gguf_parse(&gguf->content, bytes, size, err) != 0) return kin_err_prefix(err, "%s", gguf->files[0].path);
    return 0;
}

// Opens one file of a model: with metadata and tensors, without the index of tensor names.
static kin_gguf *open_part(const char *path, kin_err *err) {
    kin_gguf *part = new_with_file(path, err);
    if (!part) return NULL;
    kin_gguf_file *file = &part->files[0];
    if (kin_file_open(&file->map, path, err) != 0) goto fail;
    kin_file_guard(&file->map);
    file->known = file->map.identity;
    if (parse(part, file->map.bytes, file->map.size, err) == 0) return part;

fail:
    kin_gguf_close(part);
    return NULL;
}

static int index_tensors(kin_gguf *gguf, kin_err *err) {
    const char *path = gguf->files[0].path;
    kin_name *names = calloc(gguf->content.n_tensors ? gguf->content.n_tensors : 1, sizeof *names);
    if (!names) return kin_err_set(err, "%s: out of memory for %zu tensors", path, gguf->content.n_tensors);
    for (size_t i = 0; i < gguf->content.n_tensors; i++) {
        names[i] = (kin_name){.at = gguf->content.tensors[i].name.at, .len = gguf->content.tensors[i].name.len, .i = i};
    }
    kin_name_index_init(&gguf->tensor_names, names, gguf->content.n_tensors);

    const kin_name *twice = kin_name_index_duplicate(&gguf->tensor_names);
    if (!twice) return 0;
    path = gguf->files[gguf->content.tensors[twice->i].i_file].path;
    return kin_err_set(err, "%s: tensor '%.*s' appears twice", path, KIN_STR_SHOWN(*twice));
}

// Split models: every part is a GGUF file of its own, named PREFIX-00001-of-00003.gguf, with the keys split.no (from 0),
// split.count and split.tensors.count (of all parts). Only the first part holds the model's metadata.

#define SPLIT_PARTS_MAX 99999 // five digits
#define SPLIT_SUFFIX_LEN (sizeof "-00001-of-00003.gguf" - 1)

typedef struct split {
    uint32_t no, count; // count 0 or 1: a whole model
    uint32_t n_tensors; // of the model; 0 if the file does not say
} split;

static int get_split(const kin_gguf *part, split *s, kin_err *err) {
    *s = (split){0};
    if (kin_gguf_get_u32(part, "split.count", &s->count, err) < 0 || kin_gguf_get_u32(part, "split.no", &s->no, err) < 0 ||
        kin_gguf_get_u32(part, "split.tensors.count", &s->n_tensors, err) < 0) {
        return KIN_FAIL;
    }
    if (s->count <= 1) return 0;
    if (s->count <= SPLIT_PARTS_MAX && s->no < s->count) return 0;
    return kin_err_set(err, "%s: invalid split: part %llu of %u", part->files[0].path, s->no + 1ull, s->count);
}

typedef struct split_suffix {
    char text[32];
} split_suffix;

// Returns the required end of a part's name.
static split_suffix suffix_of(const split *s) {
    split_suffix suffix;
    snprintf(suffix.text, sizeof suffix.text, "-%05u-of-%05u.gguf", s->no + 1, s->count);
    return suffix;
}

static bool ends_with(const char *path, const char *suffix) {
    size_t len = strlen(path), suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(path + len - suffix_len, suffix) == 0;
}

static int check_part(const kin_gguf *part, const split *wanted, kin_err *err) {
    split s;
    if (get_split(part, &s, err) != 0) return KIN_FAIL;
    const char *path = part->files[0].path;
    if (s.count <= 1) {
        return kin_err_set(err, "%s: a whole model, but part %u of %u is expected", path, wanted->no + 1, wanted->count);
    }
    if (s.count != wanted->count || s.no != wanted->no) {
        return kin_err_set(err, "%s: part %u of %u, but part %u of %u is expected", path, s.no + 1, s.count, wanted->no + 1,
                           wanted->count);
    }
    if (s.n_tensors != wanted->n_tensors) {
        return kin_err_set(err, "%s: part of another model (of %u tensors, not %u)", path, s.n_tensors, wanted->n_tensors);
    }
    return 0;
}

// Moves the file and the tensors of `part` to the end of `gguf`.
static int append_part(kin_gguf *gguf, kin_gguf *part, kin_err *err) {
    kin_gguf_file *files = realloc(gguf->files, (size_t)(gguf->n_files + 1) * sizeof *files);
    if (files) gguf->files = files;
    size_t n_tensors = gguf->content.n_tensors + part->content.n_tensors;
    kin_gguf_tensor *tensors = realloc(gguf->content.tensors, (n_tensors ? n_tensors : 1) * sizeof *tensors);
    if (tensors) gguf->content.tensors = tensors;
    if (!files || !tensors) return kin_err_set(err, "%s: out of memory for %zu tensors", part->files[0].path, n_tensors);

    for (size_t i = 0; i < part->content.n_tensors; i++) {
        tensors[gguf->content.n_tensors + i] = part->content.tensors[i];
        tensors[gguf->content.n_tensors + i].i_file = gguf->n_files;
    }
    gguf->content.n_tensors = n_tensors;
    files[gguf->n_files++] = part->files[0];
    part->n_files = 0;
    return 0;
}

// Prefixes the error with the path, unless it begins with it already.
static int fail_part(const char *path, const split *wanted, kin_err *err) {
    if (!err) return KIN_FAIL;
    const kin_err why = *err;
    size_t n = strlen(path);
    bool is_named = strncmp(why.text, path, n) == 0 && strncmp(why.text + n, ": ", 2) == 0;
    return kin_err_set(err, "%s: cannot open part %u of %u: %s", path, wanted->no + 1, wanted->count,
                       is_named ? why.text + n + 2 : why.text);
}

// Opens part wanted->no, which is beside the others, and adds it to *gguf, or makes it *gguf if it is the first.
static int add_part(kin_gguf **gguf, const char *path, const split *wanted, kin_err *err) {
    kin_gguf *part = open_part(path, err);
    if (!part) return fail_part(path, wanted, err);
    if (check_part(part, wanted, err) != 0) goto fail;
    if (!*gguf) {
        *gguf = part;
        return 0;
    }
    if (append_part(*gguf, part, err) != 0) goto fail;
    kin_gguf_close(part);
    return 0;

fail:
    kin_gguf_close(part);
    return KIN_FAIL;
}

static kin_gguf *open_split(const char *path, const split *opened, kin_err *err) {
    split_suffix suffix = suffix_of(opened);
    if (!ends_with(path, suffix.text)) {
        kin_err_set(err, "%s: part %u of %u of a model, but its name does not end in '%s'", path, opened->no + 1, opened->count,
                    suffix.text);
        return NULL;
    }
    kin_gguf *gguf = NULL;
    char *part_path = strdup(path);
    if (!part_path) {
        kin_err_set(err, "%s: out of memory", path);
        return NULL;
    }
    split wanted = *opened;
    for (wanted.no = 0; wanted.no < wanted.count; wanted.no++) {
        suffix = suffix_of(&wanted);
        memcpy(part_path + strlen(path) - SPLIT_SUFFIX_LEN, suffix.text, SPLIT_SUFFIX_LEN);
        if (add_part(&gguf, part_path, &wanted, err) != 0) goto fail;
    }
    if (wanted.n_tensors && gguf->content.n_tensors != wanted.n_tensors) {
        kin_err_set(err, "%s: the %u parts hold %zu tensors, but %u are expected", path, wanted.count, gguf->content.n_tensors,
                    wanted.n_tensors);
        goto fail;
    }
    free(part_path);
    return gguf;

fail:
    free(part_path);
    kin_gguf_close(gguf);
    return NULL;
}

// Opening

// Fails if a file was truncated while it was read: missing pages read as zeros.
static int expect_whole(const kin_gguf *gguf, kin_err *err) {
    for (int i = 0; i < gguf->n_files; i++) {
        if (kin_file_is_cut(&gguf->files[i].map))
            return kin_err_set(err, "%s: was truncated while it was read", gguf->files[i].path);
    }
    return 0;
}

int kin_gguf_open(kin_gguf **out, const char *path, kin_err *err) {
    *out = NULL;
    split s;
    kin_gguf *gguf = open_part(path, err);
    if (!gguf) return KIN_FAIL;
    if (get_split(gguf, &s, err) != 0) goto fail;
    if (s.count > 1) {
        kin_gguf_close(gguf);
        gguf = open_split(path, &s, err);
        if (!gguf) return KIN_FAIL;
    }
    if (index_tensors(gguf, err) != 0 || expect_whole(gguf, err) != 0) goto fail;
    *out = gguf;
    return 0;

fail:
    kin_gguf_close(gguf);
    return KIN_FAIL;
}

int kin_gguf_open_bytes(kin_gguf **out, const char *name, const uint8_t *bytes, size_t size, kin_err *err) {
    *out = NULL;
    split s;
    kin_gguf *gguf = new_with_file(name, err);
    if (!gguf) return KIN_FAIL;
    if (parse(gguf, bytes, size, err) != 0 || get_split(gguf, &s, err) != 0) goto fail;
    if (s.count > 1) {
        kin_err_set(err, "%s: part %u of %u of a model; a model in memory must be in one part", name, s.no + 1, s.count);
        goto fail;
    }
    if (index_tensors(gguf, err) != 0) goto fail;
    *out = gguf;
    return 0;

fail:
    kin_gguf_close(gguf);
    return KIN_FAIL;
}

void kin_gguf_close(kin_gguf *gguf) {
    if (!gguf) return;
    kin_name_index_fini(&gguf->tensor_names);
    kin_gguf_content_fini(&gguf->content);
    for (int i = 0; i < gguf->n_files; i++) {
        kin_file_close(&gguf->files[i].map);
        free(gguf->files[i].path);
    }
    free(gguf->files);
    free(gguf);
}

// Metadata by key

static int in_file(const kin_gguf *gguf, int result, kin_err *err) {
    return result == 0 ? 0 : kin_err_prefix(err, "%s", gguf->files[0].path);
}

int kin_gguf_get_u32(const kin_gguf *gguf, const char *key, uint32_t *value, kin_err *err) {
    const kin_gguf_meta *meta = kin_gguf_content_find(&gguf->content, key);
    return meta ? in_file(gguf, kin_gguf_value_u32(meta, value, err), err) : KIN_ABSENT;
}

int kin_gguf_get_f32(const kin_gguf *gguf, const char *key, float *value, kin_err *err) {
    const kin_gguf_meta *meta = kin_gguf_content_find(&gguf->content, key);
    return meta ? in_file(gguf, kin_gguf_value_f32(meta, value, err), err) : KIN_ABSENT;
}

int kin_gguf_get_bool(const kin_gguf *gguf, const char *key, bool *value, kin_err *err) {
    const kin_gguf_meta *meta = kin_gguf_content_find(&gguf->content, key);
    return meta ? in_file(gguf, kin_gguf_value_bool(meta, value, err), err) : KIN_ABSENT;
}

int kin_gguf_get_str(const kin_gguf *gguf, const char *key, kin_str *value, kin_err *err) {
    const kin_gguf_meta *meta = kin_gguf_content_find(&gguf->content, key);
    return meta ? in_file(gguf, kin_gguf_value_str(meta, value, err), err) : KIN_ABSENT;
}

int kin_gguf_get_array(const kin_gguf *gguf, const char *key, kin_gguf_array *array, kin_err *err) {
    const kin_gguf_meta *meta = kin_gguf_content_find(&gguf->content, key);
    return meta ? in_file(gguf, kin_gguf_value_array(meta, array, err), err) : KIN_ABSENT;
}

// Metadata in file order

size_t kin_gguf_n_meta(const kin_gguf *gguf) {
    return gguf->content.n_meta;
}

kin_str kin_gguf_meta_key(const kin_gguf *gguf, size_t i) {
    kin_assert(i < gguf->content.n_meta);
    return gguf->content.meta[i].key;
}

const char *kin_gguf_meta_text(const kin_gguf *gguf, size_t i, char *buf, size_t n) {
    kin_assert(i < gguf->content.n_meta && n > 0);
    return kin_gguf_value_text(&gguf->content.meta[i], buf, n);
}

// Tensors and files

size_t kin_gguf_n_tensors(const kin_gguf *gguf) {
    return gguf->content.n_tensors;
}

const kin_gguf_tensor *kin_gguf_tensor_at(const kin_gguf *gguf, size_t i) {
    kin_assert(i < gguf->content.n_tensors);
    return &gguf->content.tensors[i];
}

const kin_gguf_tensor *kin_gguf_find_tensor(const kin_gguf *gguf, const char *name) {
    const kin_name *found = kin_name_index_find(&gguf->tensor_names, name, strlen(name));
    return found ? &gguf->content.tensors[found->i] : NULL;
}

int kin_gguf_n_files(const kin_gguf *gguf) {
    return gguf->n_files;
}

bool kin_gguf_on_disk(const kin_gguf *gguf) {
    return gguf->files[0].map.fd >= 0;
}

const char *kin_gguf_file_path(const kin_gguf *gguf, int i_file) {
    kin_assert(i_file >= 0 && i_file < gguf->n_files);
    return gguf->files[i_file].path;
}

int kin_gguf_file_fd(const kin_gguf *gguf, int i_file) {
    return gguf->files[i_file].map.fd;
}

uint64_t kin_gguf_file_size(const kin_gguf *gguf, int i_file) {
    kin_assert(i_file >= 0 && i_file < gguf->n_files);
    return gguf->files[i_file].size;
}

const char *kin_gguf_type_name(int type) {
    return type >= 0 && type < GGML_TYPE_COUNT ? ggml_type_name((enum ggml_type)type) : NULL;
}

int kin_gguf_read(const kin_gguf *gguf, const kin_gguf_tensor *t, uint64_t at, void *to, size_t n, kin_err *err) {
    kin_assert(at + n <= t->n_bytes);
    const kin_gguf_file *file = &gguf->files[t->i_file];
    if (file->map.fd < 0) {
        memcpy(to, t->data + at, n);
        return 0;
    }
    return kin_file_read(&file->map, t->offset + at, to, n) == 0 ? 0 : kin_err_set(err, "%s: can no longer be read", file->path);
}

// Files that change

enum {
    SAMPLE_BYTES = 512, // of each tensor, at N_SAMPLES places
    N_SAMPLES = 3,
};

static int hash_sample(const kin_gguf *gguf, uint64_t *sample, kin_err *err) {
    uint64_t h = 1;
    for (size_t i = 0; i < gguf->content.n_tensors; i++) {
        const kin_gguf_tensor *t = &gguf->content.tensors[i];
        uint64_t n = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES;
        h = kin_hash64(t->name.at, t->name.len, h);
        h = kin_hash64(t->ne, sizeof t->ne, h + (uint64_t)t->type);
        for (int k = 0; k < N_SAMPLES; k++) {
            uint8_t bytes[SAMPLE_BYTES];
            uint64_t at = (t->n_bytes - n) / (N_SAMPLES - 1) * (uint64_t)k;
            if (kin_gguf_read(gguf, t, at, bytes, (size_t)n, err) != 0) return KIN_FAIL;
            h = kin_hash64(bytes, (size_t)n, h);
        }
    }
    *sample = h ? h : 1;
    return 0;
}

int kin_gguf_sample(kin_gguf *gguf, uint64_t *sample, kin_err *err) {
    *sample = atomic_load(&gguf->sample);
    if (*sample) return 0;
    if (hash_sample(gguf, sample, err) != 0) return KIN_FAIL;
    atomic_store(&gguf->sample, *sample);
    return 0;
}

uint64_t kin_gguf_version(const kin_gguf *gguf) {
    uint64_t version = 1;
    for (int i = 0; i < gguf->n_files; i++) {
        kin_file_identity identity = gguf->files[i].map.identity;
        identity.device = 0; // disks get other numbers at each boot
        version = kin_hash64(&identity, sizeof identity, version);
    }
    return version;
}

void kin_gguf_set_filled(kin_gguf *gguf) {
    gguf->is_filled = true;
}

static int fail_changed(const kin_gguf_file *file, kin_err *err) {
    return kin_err_set(err,
                       "%s: was overwritten or truncated while in use, so results would be wrong. Restore the whole "
                       "file ('kin serve' then reloads it; restart other commands). To replace a model, write to "
                       "another name and rename the file",
                       file->path);
}

static kin_file_identity known_of(kin_gguf_file *file) {
    while (atomic_flag_test_and_set(&file->lock)) continue; // copies only 56 bytes
    kin_file_identity known = file->known;
    atomic_flag_clear(&file->lock);
    return known;
}

static void set_known(kin_gguf_file *file, const kin_file_identity *known) {
    while (atomic_flag_test_and_set(&file->lock)) continue;
    file->known = *known;
    atomic_flag_clear(&file->lock);
}

// The file was renamed, linked, or given other permissions; or a program wrote to it and reset the modification time. The sample
// tells.
static int accept_touched(kin_gguf *gguf, kin_gguf_file *file, kin_err *err) {
    kin_file_identity now;
    uint64_t then = atomic_load(&gguf->sample), sample;
    if (kin_file_identify(file->map.fd, &now) != 0) return fail_changed(file, err);
    if (then && (hash_sample(gguf, &sample, NULL) != 0 || sample != then)) return fail_changed(file, err);
    set_known(file, &now);
    return kin_file_check(&file->map, &now) == KIN_FILE_CHANGED ? fail_changed(file, err) : 0;
}

static int check_file(kin_gguf *gguf, kin_gguf_file *file, kin_err *err) {
    if (gguf->is_filled) return kin_file_is_cut(&file->map) ? fail_changed(file, err) : 0;
    kin_file_identity known = known_of(file);
    switch (kin_file_check(&file->map, &known)) {
    case KIN_FILE_SAME: return 0;
    case KIN_FILE_TOUCHED: return accept_touched(gguf, file, err);
    case KIN_FILE_CHANGED: break;
    }
    return fail_changed(file, err);
}

int kin_gguf_check_files(kin_gguf *gguf, kin_err *err) {
    for (int i = 0; i < gguf->n_files && kin_gguf_on_disk(gguf); i++) {
        if (check_file(gguf, &gguf->files[i], err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_gguf_check_reads(const kin_gguf *gguf, kin_err *err) {
    for (int i = 0; i < gguf->n_files && kin_gguf_on_disk(gguf); i++) {
        const kin_gguf_file *file = &gguf->files[i];
        bool is_changed =
            gguf->is_filled ? kin_file_is_cut(&file->map) : kin_file_check(&file->map, &file->map.identity) == KIN_FILE_CHANGED;
        if (is_changed) return fail_changed(file, err);
    }
    return 0;
}

int kin_gguf_check_names(kin_gguf *gguf, kin_err *err) {
    for (int i = 0; i < gguf->n_files && kin_gguf_on_disk(gguf); i++) {
        kin_gguf_file *file = &gguf->files[i];
        kin_file_identity there, known = known_of(file);
        if (kin_file_identify_path(file->path, &there) == 0 && there.device == known.device && there.inode == known.inode)
            continue;
        return kin_err_set(err, "%s: was renamed or removed after it was opened; restart with the current file", file->path);
    }
    return kin_gguf_check_files(gguf, err);
}
