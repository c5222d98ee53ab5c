// Names of models, variants of repositories, and what is missing of a download: the pure part of kin pull.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/pull/byte_ranges.h"
#include "pure/pull/model_ref.h"
#include "pure/pull/rate_floor.h"
#include "pure/pull/variants.h"
#include "tests/place.h"

static kin_err err;

static void expect_ref_at(int line, const char *text, const char *whole, const char *base) {
    kin_model_ref ref;
    char got[KIN_REF_TEXT];
    int rc = kin_model_ref_parse(&ref, text, &err);
    if (rc != 0) fail_msg("line %d: %s: %d, %s", line, text, rc, err.text);
    assert_string_equal(kin_model_ref_format(&ref, got, sizeof got), whole);
    assert_string_equal(kin_model_ref_base(&ref, got, sizeof got), base);
}
#define expect_ref_at(...) FROM_TEST(expect_ref_at(__VA_ARGS__))
#define expect_ref(text, whole, base) expect_ref_at(__LINE__, text, whole, base)

static void names_of_all_forms_are_understood(void **state) {
    (void)state;
    expect_ref("hf:a/b", "hf:a/b", "hf:a/b");
    expect_ref("hf:a/b:Q4_K_M", "hf:a/b:Q4_K_M", "hf:a/b");
    expect_ref("hf:a/b/c/d.gguf", "hf:a/b/c/d.gguf", "hf:a/b");
    expect_ref("hf:a/b/with space.GGUF", "hf:a/b/with space.GGUF", "hf:a/b");
    expect_ref("hf.co/a/b:Q8_0", "hf:a/b:Q8_0", "hf:a/b");
    expect_ref("https://huggingface.co/a/b", "hf:a/b", "hf:a/b");
    expect_ref("https://huggingface.co/a/b/", "hf:a/b", "hf:a/b");
    expect_ref("https://huggingface.co/a/b/tree/main", "hf:a/b", "hf:a/b");
    expect_ref("https://huggingface.co/a/b/resolve/main/c.gguf?download=true", "hf:a/b/c.gguf", "hf:a/b");
    expect_ref("https://huggingface.co/a/b/blob/main/d/c.gguf", "hf:a/b/d/c.gguf", "hf:a/b");
    expect_ref("https://huggingface.co/a/b/resolve/v2/c.gguf", "https://huggingface.co/a/b/resolve/v2/c.gguf",
               "https://huggingface.co/a/b/resolve/v2/c.gguf");
    expect_ref("ollama:qwen3", "ollama:qwen3:latest", "ollama:qwen3");
    expect_ref("ollama:qwen3:8b", "ollama:qwen3:8b", "ollama:qwen3");
    expect_ref("ollama:me/own:v1", "ollama:me/own:v1", "ollama:me/own");
    expect_ref("http://desk:80/x/y.gguf?key=1", "http://desk:80/x/y.gguf?key=1", "http://desk:80/x/y.gguf?key=1");
}

static void other_words_are_no_names_and_malformed_names_are_refused(void **state) {
    static const char *const others[] = {"", "qwen3", "model.gguf", "a/b", "qwen3:8b", "./hf:a", "HF:a/b"};
    static const char *const malformed[] = {"hf:",
                                            "hf:a",
                                            "hf:a/",
                                            "hf:/b",
                                            "hf:a/b:",
                                            "hf:a/b/",
                                            "hf:a/b/c.bin",
                                            "hf:../b",
                                            "hf:a/..",
                                            "hf:a/b/../c.gguf",
                                            "hf:a/b/.c.gguf",
                                            "hf:a/b//c.gguf",
                                            "hf:a/b/c\n.gguf",
                                            "hf:a/b/c\xc2\x9b.gguf",
                                            "hf:a/b/c\xe2\x80\xae.gguf",
                                            "hf:a/b/c\xff.gguf",
                                            "https://me:secret@h/a.gguf",
                                            "https://me@h/a.gguf",
                                            "hf:a/b\\c:Q4",
                                            "ollama:",
                                            "ollama:a/b/c",
                                            "ollama:a:",
                                            "ollama:../b",
                                            "https://h",
                                            "https://h/a.zip",
                                            "https:///a.gguf",
                                            "https://h/../a.gguf",
                                            "https://h/a b.gguf",
                                            "hf:a/b:Q4/x"};
    kin_model_ref ref;
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (kin_model_ref_parse(&ref, others[i], &err) != KIN_ABSENT) fail_msg("'%s' is a name", others[i]);
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        if (kin_model_ref_parse(&ref, malformed[i], &err) != KIN_FAIL) fail_msg("'%s' is not refused", malformed[i]);
}

static void a_path_is_encoded_for_an_address(void **state) {
    char to[32];
    (void)state;
    assert_true(kin_url_encode(to, sizeof to, "a/b c%.gguf"));
    assert_string_equal(to, "a/b%20c%25.gguf");
    assert_false(kin_url_encode(to, 8, "12345678"));
}

static void quantizations_are_found_in_names_of_files(void **state) {
    static const char *const pairs[][2] = {{"Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"},
                                           {"qwen2.5-7b-instruct-q4_k_m.gguf", "Q4_K_M"},
                                           {"model.IQ2_XXS.gguf", "IQ2_XXS"},
                                           {"m-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
                                           {"Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0"},
                                           {"BF16/m-00001-of-00002.gguf", "BF16"},
                                           {"gpt-oss-20b-mxfp4.gguf", "MXFP4"},
                                           {"m-TQ1_0.gguf", "TQ1_0"},
                                           {"m.gguf", ""},
                                           {"m-Q4.gguf", ""},
                                           {"m-Q4_.gguf", ""},
                                           {"m-an-extremely-long-word-Q4_K_MQ4_K_MQ4_K_MQ4_K_MQ4_K_MQ4_K_M.gguf", ""}};
    char quant[KIN_QUANT_TEXT];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof pairs / sizeof *pairs; i++) {
        kin_quant_word_of(pairs[i][0], quant);
        assert_string_equal(quant, pairs[i][1]);
    }
    kin_quant_word_of(pairs[sizeof pairs / sizeof *pairs - 1][0], quant);
    assert_true(strlen(quant) < KIN_QUANT_TEXT);
}

static void add_file(kin_repo *repo, const char *path, uint64_t size) {
    kin_repo_file f = {.size = size};
    strcpy(f.path, path);
    assert_int_equal(kin_repo_add(repo, &f, &err), 0);
}
#define add_file(...) FROM_TEST(add_file(__VA_ARGS__))

static void files_are_grouped_into_variants(void **state) {
    kin_repo repo = {0};
    kin_variant *v;
    int n, index;
    (void)state;
    add_file(&repo, "m-Q8_0.gguf", 800);
    add_file(&repo, "Q6_K/m-Q6_K-00002-of-00002.gguf", 300);
    add_file(&repo, "Q6_K/m-Q6_K-00001-of-00002.gguf", 310);
    add_file(&repo, "m-Q5_0-00001-of-00003.gguf", 300); // incomplete
    add_file(&repo, "m-Q5_0-00003-of-00003.gguf", 300);
    add_file(&repo, "mmproj-m-F16.gguf", 9);
    add_file(&repo, "m.imatrix.gguf", 9);
    add_file(&repo, "README.md", 9);
    add_file(&repo, "m-UD-Q4_K_XL.gguf", 400);
    assert_int_equal(kin_repo_variants(&repo, &v, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_string_equal(v[0].quant, "UD-Q4_K_XL");
    assert_string_equal(v[1].quant, "Q6_K");
    assert_int_equal(v[1].n_parts, 2);
    assert_int_equal(v[1].bytes, 610);
    assert_string_equal(repo.files[v[1].first].path, "Q6_K/m-Q6_K-00001-of-00002.gguf");
    kin_model_ref ref;
    assert_int_equal(kin_model_ref_parse(&ref, "hf:a/b:q4_k_xl", &err), 0);
    assert_int_equal(kin_variant_find(&repo, v, n, &ref, &index, &err), 0);
    assert_int_equal(index, 0);
    assert_int_equal(kin_model_ref_parse(&ref, "hf:a/b/Q6_K/m-Q6_K-00002-of-00002.gguf", &err), 0);
    assert_int_equal(kin_variant_find(&repo, v, n, &ref, &index, &err), 0);
    assert_int_equal(index, 1);
    assert_int_equal(kin_model_ref_parse(&ref, "hf:a/b:Q5_0", &err), 0);
    assert_int_equal(kin_variant_find(&repo, v, n, &ref, &index, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "a/b has no Q5_0; it has UD-Q4_K_XL (400 B), Q6_K (610 B), Q8_0 (800 B)"));
    free(v);
    kin_repo_fini(&repo);
}

enum { N_VARIANTS = 4 };
#define GIB ((uint64_t)1 << 30)

static void the_choice_fits_the_memory(void **state) {
    const kin_variant v[N_VARIANTS] = {{.bytes = 6 * GIB, .quant = "Q2_K"},
                                       {.bytes = 8 * GIB, .quant = "Q3_K_M"},
                                       {.bytes = 10 * GIB, .quant = "Q4_K_M"},
                                       {.bytes = 18 * GIB, .quant = "Q8_0"}};
    const struct {
        uint64_t room;
        int index;
        const char *why;
    } rows[] = {
        {64 * GIB, 2, "Q4_K_M: 10.0 GiB, fits into the 64.0 GiB of memory here; Q8_0 (18.0 GiB) would fit too"},
        {12 * GIB, 2, "Q4_K_M: 10.0 GiB, fits into the 12.0 GiB of memory here"},
        {10 * GIB, 1,
         "Q3_K_M: 8.00 GiB, the largest that fits into the 10.0 GiB of memory here; Q4_K_M (10.0 GiB) would read 12 % from disk "
         "for every token"},
        {7 * GIB, 2,
         "Q4_K_M: 10.0 GiB, of which 42 % are read from disk for every token: there are 7.00 GiB of memory; the largest that "
         "would fit is Q2_K (6.00 GiB)"},
        {1 * GIB, 2,
         "Q4_K_M: 10.0 GiB, of which 100 % are read from disk for every token: there are 1.00 GiB of memory; the smallest is "
         "Q2_K (6.00 GiB)"},
    };
    char why[400];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(kin_variant_choose(v, N_VARIANTS, rows[i].room, 0, why, sizeof why), rows[i].index);
        assert_string_equal(why, rows[i].why);
    }
}

static void the_choice_counts_what_the_model_needs_beside_its_weights(void **state) {
    const kin_variant v[] = {{.bytes = 8 * GIB, .quant = "Q3_K_M"}, {.bytes = 10 * GIB, .quant = "Q4_K_M"}};
    char why[400];
    (void)state;
    assert_int_equal(kin_variant_usual(v, 2), 1);
    assert_int_equal(kin_variant_choose(v, 2, 12 * GIB, 2 * GIB, why, sizeof why), 1);
    assert_int_equal(kin_variant_choose(v, 2, 12 * GIB, 2 * GIB + 1, why, sizeof why), 0);
    assert_int_equal(kin_variant_choose(v, 2, 10 * GIB + 1, 1, why, sizeof why), 1); // less than the estimate
    assert_int_equal(kin_variant_choose(v, 2, 12 * GIB, 6 * GIB, why, sizeof why), 1);
    assert_string_equal(why,
                        "Q4_K_M: 10.0 GiB, of which 41 % are read from disk for every token: there are 12.0 GiB of memory; the "
                        "smallest is Q3_K_M (8.00 GiB)");
}

static void a_tree_of_hugging_face_is_read(void **state) {
    static const char tree[] =
        "[{\"type\":\"directory\",\"oid\":\"1\",\"size\":0,\"path\":\"a.gguf\"},"
        "{\"type\":\"file\",\"oid\":\"1\",\"size\":134,\"path\":\"a-Q4_0.gguf\",\"lfs\":{\"oid\":"
        "\"ABCDEF6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":5000000000,\"pointerSize\":134},"
        "\"xetHash\":\"x\"},"
        "{\"type\":\"file\",\"size\":7,\"path\":\"b-Q8_0.gguf\"},{\"type\":\"file\",\"size\":7,\"path\":\"../c.gguf\"},"
        "{\"type\":\"file\",\"size\":-7,\"path\":\"d.gguf\"},{\"type\":\"file\",\"size\":7,\"path\":\"x/../e.gguf\"},"
        "{\"type\":\"file\",\"size\":7,\"path\":\"\\u009b31mf.gguf\"},{\"type\":\"file\",\"size\":7,\"path\":\"\\u202eg.gguf\"},"
        "{\"type\":\"file\",\"size\":7,\"path\":\"h\\n.gguf\"},{\"type\":\"file\",\"size\":7,\"path\":\"i/\"},5]";
    kin_repo repo = {0};
    (void)state;
    assert_int_equal(kin_repo_add_tree(&repo, tree, strlen(tree), &err), 0);
    assert_int_equal(repo.n, 2);
    assert_int_equal(repo.files[0].size, 5000000000);
    assert_string_equal(repo.files[0].sha256, "abcdef6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    assert_string_equal(repo.files[1].sha256, "");
    kin_repo_fini(&repo);
    assert_int_equal(kin_repo_add_tree(&repo, "{}", 2, &err), KIN_FAIL);
    assert_int_equal(kin_repo_add_tree(&repo, "[", 1, &err), KIN_FAIL);
}

static void a_manifest_of_ollama_is_read(void **state) {
    static const char manifest[] = "{\"schemaVersion\":2,\"config\":{},\"layers\":[{\"mediaType\":\"application/"
                                   "vnd.ollama.image.license\",\"digest\":\"sha256:00\",\"size\":1},"
                                   "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":"
                                   "\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":123}]}";
    static const char *const bad[] = {
        "{}", "{\"layers\":5}",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:0\",\"size\":1}]}"};
    kin_repo repo = {0};
    (void)state;
    assert_int_equal(kin_repo_add_manifest(&repo, manifest, strlen(manifest), "a-latest.gguf", &err), 0);
    assert_int_equal(repo.n, 1);
    assert_int_equal(repo.files[0].size, 123);
    kin_repo_fini(&repo);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kin_repo_add_manifest(&repo, bad[i], strlen(bad[i]), "a.gguf", &err), KIN_FAIL);
    kin_repo_fini(&repo);
}

static void ranges_join_where_they_touch(void **state) {
    kin_byte_ranges set = {.n = 0}, read;
    char text[200];
    (void)state;
    assert_true(kin_byte_ranges_add(&set, 10, 20));
    assert_true(kin_byte_ranges_add(&set, 40, 50));
    assert_true(kin_byte_ranges_add(&set, 0, 5));
    assert_true(kin_byte_ranges_add(&set, 20, 30));
    assert_true(kin_byte_ranges_add(&set, 35, 40));
    assert_true(kin_byte_ranges_print(&set, text, sizeof text));
    assert_string_equal(text, "0-5 10-30 35-50");
    assert_true(kin_byte_ranges_add(&set, 30, 35));
    assert_int_equal(set.n, 2);
    assert_int_equal(kin_byte_ranges_sum(&set), 45);
    assert_false(kin_byte_ranges_add(&set, 4, 6));
    assert_false(kin_byte_ranges_add(&set, 49, 60));
    assert_true(kin_byte_ranges_print(&set, text, sizeof text));
    assert_true(kin_byte_ranges_parse(&read, text, 50));
    assert_memory_equal(read.at, set.at, 2 * sizeof *set.at);
    kin_byte_range r = kin_byte_ranges_pop(&set, 3);
    assert_true(r.begin == 0 && r.end == 3);
    r = kin_byte_ranges_pop(&set, 100);
    assert_true(r.begin == 3 && r.end == 5);
    r = kin_byte_ranges_pop(&set, 100);
    assert_true(r.begin == 10 && r.end == 50 && set.n == 0);
    r = kin_byte_ranges_pop(&set, 1);
    assert_true(r.begin == r.end);
    assert_true(kin_byte_ranges_print(&set, text, sizeof text));
    assert_string_equal(text, "none");
    assert_true(kin_byte_ranges_parse(&read, text, 0));
    static const char *const bad[] = {"",        "5",         "5-",       "5-4",  "5-5",  "0-51",
                                      "0-5 5-6", "10-20 0-5", "0-5  6-7", "0-5 ", "-1-5", "0-5x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (kin_byte_ranges_parse(&read, bad[i], 50)) fail_msg("'%s' is accepted", bad[i]);
}

static void a_full_set_takes_no_more_pieces(void **state) {
    kin_byte_ranges set = {.n = 0};
    (void)state;
    for (uint64_t i = 0; i < KIN_BYTE_RANGES_MAX; i++) assert_true(kin_byte_ranges_add(&set, 10 * i, 10 * i + 5));
    assert_false(kin_byte_ranges_add(&set, 100000, 100001));
    assert_true(kin_byte_ranges_add(&set, 5, 10)); // fills a gap
}

// ---- the floor of the rate

enum { WINDOW_MS = 60000, TICK_MS = 500 };

// Runs a download that gets `n` bytes in each tick. Returns the time at which it was given up, in ms; 0: it was not.
static uint64_t given_up_at(kin_rate_floor *f, uint64_t begin_ms, uint64_t end_ms, uint64_t n, bool counts) {
    static uint64_t so_far;
    uint64_t n_window;
    for (uint64_t now = begin_ms; now <= end_ms; now += TICK_MS, so_far += n)
        if (kin_rate_floor_is_missed(f, now, so_far, counts, &n_window)) return now;
    return 0;
}

static void a_byte_now_and_then_is_not_enough(void **state) {
    (void)state;
    kin_rate_floor f = {.window_ms = WINDOW_MS};
    assert_true(given_up_at(&f, 1000, 600000, 1, true) == 1000 + WINDOW_MS);
    uint64_t n_window = 0;
    kin_rate_floor g = {.window_ms = WINDOW_MS};
    assert_false(kin_rate_floor_is_missed(&g, 5, 100, true, &n_window));
    assert_true(kin_rate_floor_is_missed(&g, 5 + WINDOW_MS, 220, true, &n_window));
    assert_true(n_window == 120);
}

static void a_slow_modem_is_enough(void **state) {
    (void)state;
    kin_rate_floor f = {.window_ms = WINDOW_MS};
    assert_true(given_up_at(&f, 1000, 3600000, KIN_RATE_FLOOR_BYTES_S * TICK_MS / 1000, true) == 0);
    kin_rate_floor g = {.window_ms = WINDOW_MS};
    assert_true(given_up_at(&g, 1000, 3600000, KIN_RATE_FLOOR_BYTES_S * TICK_MS / 1000 - 1, true) == 1000 + WINDOW_MS);
}

static void time_that_the_server_asked_for_does_not_count(void **state) {
    (void)state;
    kin_rate_floor f = {.window_ms = WINDOW_MS};
    assert_true(given_up_at(&f, 0, WINDOW_MS / 2, 0, true) == 0);
    assert_true(given_up_at(&f, WINDOW_MS / 2, 10 * WINDOW_MS, 0, false) == 0);
    assert_true(given_up_at(&f, 10 * WINDOW_MS, 20 * WINDOW_MS, 0, true) == 10 * WINDOW_MS + WINDOW_MS / 2);
}

static void without_a_window_there_is_no_floor(void **state) {
    (void)state;
    kin_rate_floor f = {0};
    assert_true(given_up_at(&f, 0, 86400000, 0, true) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_all_forms_are_understood),
        cmocka_unit_test(other_words_are_no_names_and_malformed_names_are_refused),
        cmocka_unit_test(a_path_is_encoded_for_an_address),
        cmocka_unit_test(quantizations_are_found_in_names_of_files),
        cmocka_unit_test(files_are_grouped_into_variants),
        cmocka_unit_test(the_choice_fits_the_memory),
        cmocka_unit_test(the_choice_counts_what_the_model_needs_beside_its_weights),
        cmocka_unit_test(a_tree_of_hugging_face_is_read),
        cmocka_unit_test(a_manifest_of_ollama_is_read),
        cmocka_unit_test(ranges_join_where_they_touch),
        cmocka_unit_test(a_full_set_takes_no_more_pieces),
        cmocka_unit_test(a_byte_now_and_then_is_not_enough),
        cmocka_unit_test(a_slow_modem_is_enough),
        cmocka_unit_test(time_that_the_server_asked_for_does_not_count),
        cmocka_unit_test(without_a_window_there_is_no_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
