// kin cache: lists and removes what earlier runs left on the disk: prepacked and fetched weights, and pages of the KV cache.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "base/units.h"
#include "cluster/session.h"
#include "engine/cache_dir.h"
#include "model/manifest.h"
#include "pure/text/escape.h"
#include "sys/whole_file.h"

enum { N_CACHE_OPTIONS = 4 };

static void fill_cache_table(const char **dir, bool *conversations, kin_option table[N_CACHE_OPTIONS]) {
    const kin_option own[N_CACHE_OPTIONS] = {
        {KIN_OPTION_STRING, "cache", 0, dir, "DIR", "cache directory (default: ~/.cache/kin)", 0, 0},
        {KIN_OPTION_FLAG, "conversations", 0, conversations, NULL, "with rm: remove only the on-disk KV cache of conversations",
         0, 0},
        {KIN_OPTION_FLAG, "texts", 0, conversations, NULL, NULL, 0, 0}, // its older name
        {0},
    };
    memcpy(table, own, sizeof own);
}

// Returns the name of a fetched model from its manifest; empty if that is damaged.
static void name_model(const kin_cache_entry *entry, char *shown, size_t n) {
    char path[sizeof entry->path + 16];
    uint8_t *bytes;
    size_t n_bytes;
    kin_manifest m;
    shown[0] = '\0';
    snprintf(path, sizeof path, "%s/manifest", entry->path);
    if (kin_whole_file_read(path, KIN_MANIFEST_BYTES_MAX, &bytes, &n_bytes, NULL) != 0) return;
    if (kin_manifest_parse(&m, bytes, n_bytes, NULL, NULL) == 0) {
        kin_escape(shown, n, m.files[0].name, strlen(m.files[0].name));
        kin_manifest_fini(&m);
    }
    free(bytes);
}

static const char *kind_of(const kin_cache_entry *entry) {
    static const char *const kinds[] = {"prepacked", "fetched ", "KV cache"};
    return kinds[entry->kind];
}

static void print_one(const kin_cache_entry *entry) {
    const char *name = kin_cache_entry_name(entry);
    char size[32], when[32], shown[1024], model[1024] = "";
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime(&entry->used));
    if (entry->kind == KIN_CACHE_MODEL) name_model(entry, model, sizeof model);
    printf("%-38s  %10s  used %s  %s%s\n", kin_escape(shown, sizeof shown, name, strlen(name)),
           kin_size_format(entry->bytes, size, sizeof size), when, kind_of(entry), model);
}

// wanted: the beginning of a name, or "all"; NULL: KV cache pages.
static bool is_wanted(const kin_cache_entry *entry, const char *wanted) {
    if (!wanted) return entry->kind == KIN_CACHE_KV;
    return strcmp(wanted, "all") == 0 || strncmp(kin_cache_entry_name(entry), wanted, strlen(wanted)) == 0;
}

// Removes every wanted entry; continues after a failure.
static int remove_wanted(const kin_cache_entry *entries, size_t n, const char *dir, const char *wanted, kin_err *err) {
    size_t n_wanted = 0;
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = kin_cache_entry_name(&entries[i]);
        char shown[1024];
        kin_err why;
        if (!is_wanted(&entries[i], wanted)) continue;
        n_wanted++;
        if (kin_cache_dir_remove(&entries[i], &why) == 0)
            printf("removed %s\n", kin_escape(shown, sizeof shown, name, strlen(name)));
        else
            rc = kin_err_set(err, "%s", why.text);
    }
    if (n_wanted == 0 && !wanted) kin_app_log("there is no on-disk KV cache in %s", dir);
    if (n_wanted > 0 || !wanted || strcmp(wanted, "all") == 0) return rc;
    return kin_err_set(err, "%s contains no '%s'; run 'kin cache ls' for a list", dir, wanted);
}

static int use_cache(const char *dir, bool removes, const char *wanted, kin_err *err) {
    kin_cache_entry *entries;
    size_t n = kin_cache_dir_list(dir, &entries);
    int rc = removes ? remove_wanted(entries, n, dir, wanted, err) : 0;
    for (size_t i = n; i > 0 && !removes; i--) print_one(&entries[i - 1]); // most recently used first
    free(entries);
    if (n == 0 && rc == 0 && (!removes || wanted)) kin_app_log("%s is empty", dir);
    return rc;
}

static int command_cache(int argc, char **argv) {
    const char *dir = NULL, *rest = NULL;
    char buf[1024];
    kin_option table[N_CACHE_OPTIONS];
    bool conversations = false;
    kin_err err;
    fill_cache_table(&dir, &conversations, table);
    const char *verb = argc > 0 ? argv[0] : "";
    bool remove = strcmp(verb, "rm") == 0;
    if (!remove && strcmp(verb, "ls") != 0) {
        kin_err_set(&err, "expected one of: ls, rm NAME, rm --conversations, rm all");
        return kin_app_usage("cache", &err);
    }
    if (kin_options_parse((kin_option_tables){table}, argc - 1, argv + 1, remove ? &rest : NULL, &err) != 0)
        return kin_app_usage("cache", &err);
    if (conversations && (!remove || rest)) {
        kin_err_set(&err, "--conversations is an option of rm, without a name");
        return kin_app_usage("cache", &err);
    }
    if (remove && !conversations && (!rest || !rest[0])) {
        kin_err_set(&err, "rm needs a name from ls (a prefix is enough), --conversations or all");
        return kin_app_usage("cache", &err);
    }
    if (!dir) dir = kin_session_default_cache(buf, sizeof buf);
    if (!dir) {
        kin_err_set(&err, "there is no home directory for the cache; set --cache");
        return kin_app_fail(&err);
    }
    return use_cache(dir, remove, rest, &err) == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_cache_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    const char *dir = NULL;
    bool conversations;
    kin_option table[N_CACHE_OPTIONS];
    fill_cache_table(&dir, &conversations, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_cache = {
    .name = "cache",
    .args = "ls | rm NAME | rm --conversations | rm all",
    .summary = "list or remove cached data: prepacked weights, fetched weights and the on-disk KV cache",
    .help =
        "The first run of a model packs its weights into the layout that is fastest on this CPU and stores them in a file;\n"
        "later runs map it. It can be removed at any time: the next run packs again. Devices also store the weights they fetch.\n"
        "kin serve, kin join, and kin run and kin chat with --cluster store the KV cache of earlier prompts on disk, encrypted, "
        "to\n"
        "continue them later. If a device has returned wrong results, remove this cache on each device: rm --conversations.\n"
        "rm all removes everything.",
    .run = command_cache,
    .options = with_cache_options,
    .operands = "ls rm all",
};
