// The embedded files of the web page: their presence and size, and constructs that they must not contain.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <string.h>

#include "serve/webui.h"

enum { MAX_PAGE = 250 << 10 }; // bytes of all files

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

static bool has(const kin_webui_file *f, const char *text) {
    return memmem(f->begin, (size_t)(f->end - f->begin), text, strlen(text)) != NULL;
}

static void every_file_of_the_folder_is_in_the_program(void **state) {
    (void)state;
    int n = 0, n_listed = 0;
    DIR *folder = opendir(KIN_SOURCE_DIR "/page");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        if (e->d_name[0] == '.') continue;
        if (!kin_webui_find(str(e->d_name))) fail_msg("page/%s is not in the table of serve/webui.c", e->d_name);
        n++;
    }
    closedir(folder);
    while (kin_webui_at(n_listed)) n_listed++;
    assert_int_equal(n, n_listed);
}

static void all_of_it_is_at_most_250_kb(void **state) {
    (void)state;
    size_t n = 0;
    for (int i = 0; kin_webui_at(i); i++) n += (size_t)(kin_webui_at(i)->end - kin_webui_at(i)->begin);
    assert_true(n > 1000 && n <= MAX_PAGE);
}

static void there_is_nothing_by_another_name(void **state) {
    (void)state;
    static const char *const names[] = {"", ".", "..", "/", "../serve/webui.c", "index", "index.html/", "INDEX.HTML"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (kin_webui_find(str(names[i]))) fail_msg("'%s'", names[i]);
    }
    assert_null(kin_webui_find((kin_str){"main.js\0", 8}));
}

// The response headers forbid inline markup and code; the page's scripts do not contain any way to create them from text.
static void no_script_makes_markup_or_code_of_text(void **state) {
    (void)state;
    static const char *const words[] = {
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",           "eval(",          "new Function(",
        "DOMParser", "srcdoc",    "setTimeout('",       "createContextualFragment", "javascript:void"};
    for (int i = 0; kin_webui_at(i); i++) {
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            if (has(kin_webui_at(i), words[k])) fail_msg("%s has %s", kin_webui_at(i)->name, words[k]);
        }
    }
    assert_false(has(kin_webui_find(str("index.html")), "onclick"));
    assert_false(has(kin_webui_find(str("index.html")), "style="));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_of_the_folder_is_in_the_program),
        cmocka_unit_test(all_of_it_is_at_most_250_kb),
        cmocka_unit_test(there_is_nothing_by_another_name),
        cmocka_unit_test(no_script_makes_markup_or_code_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
