// Parses any bytes as a name of a model, as listings of registries, and as the state of a download. Names come from clients of
// kin serve, listings from servers.
#include <stdlib.h>
#include <string.h>

#include "pure/pull/byte_ranges.h"
#include "pure/pull/model_ref.h"
#include "pure/pull/variants.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// Checks that a part of a path cannot lead out of the folder of models.
static void check_path(const char *path) {
    kin_assert(path[0] != '/' && path[0] != '.' && !strstr(path, "/.") && !strstr(path, "//"));
}

static void fuzz_name(const char *text) {
    kin_model_ref ref, again;
    kin_err err = {""};
    char whole[KIN_REF_TEXT], twice[KIN_REF_TEXT];
    if (kin_model_ref_parse(&ref, text, &err) != 0) return;
    if (ref.registry != KIN_REGISTRY_WEB) check_path(ref.repo);
    if (ref.is_file) check_path(ref.pick);
    kin_model_ref_format(&ref, whole, sizeof whole);
    kin_assert(kin_model_ref_parse(&again, whole, &err) == 0);
    kin_assert(strcmp(whole, kin_model_ref_format(&again, twice, sizeof twice)) == 0);
}

static void fuzz_variants(kin_repo *repo) {
    kin_variant *variants;
    kin_err err = {""};
    int n;
    char why[300];
    for (int i = 0; i < repo->n; i++) check_path(repo->files[i].path);
    if (kin_repo_variants(repo, &variants, &n, &err) != 0) {
        kin_assert(err.text[0] != '\0');
        return;
    }
    for (uint64_t room = 1 << 20; room < (uint64_t)1 << 50; room *= 32) {
        int chosen = kin_variant_choose(variants, n, room, room / 64, why, sizeof why);
        kin_assert(chosen >= 0 && chosen < n && variants[chosen].first + variants[chosen].n_parts <= repo->n);
    }
    free(variants);
}

static void fuzz_ranges(const char *text) {
    kin_byte_ranges set;
    char printed[3000];
    if (!kin_byte_ranges_parse(&set, text, (uint64_t)1 << 40) || !kin_byte_ranges_print(&set, printed, sizeof printed)) return;
    uint64_t sum = kin_byte_ranges_sum(&set), taken = 0;
    for (kin_byte_range r; (r = kin_byte_ranges_pop(&set, (uint64_t)1 << 36)).end > r.begin;) taken += r.end - r.begin;
    kin_assert(sum == taken);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kin_repo repo = {0};
    char *text = malloc(size + 1);
    kin_assert(text);
    if (size > 0) memcpy(text, bytes, size);
    text[size] = '\0';
    fuzz_name(text);
    fuzz_ranges(text);
    kin_repo_add_tree(&repo, text, size, NULL);
    kin_repo_add_manifest(&repo, text, size, "name-tag.gguf", NULL);
    fuzz_variants(&repo);
    kin_repo_fini(&repo);
    free(text);
    return 0;
}
