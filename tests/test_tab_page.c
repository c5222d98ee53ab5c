// The embedded files of the page /join: their presence and size, and constructs that they must not contain.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "serve/tabs/tab_page.h"

enum { MAX_SCRIPTS = 40 << 10, MAX_GPU_SCRIPTS = 28 << 10, MAX_ENGINE = 1200 << 10 }; // bytes of all files of each kind

static const kin_webui_file *find(const char *name) {
    const kin_webui_file *f = NULL;
    for (int i = 0; (f = kin_tab_page_at(i)) && strcmp(f->name, name) != 0;) i++;
    return f;
}

static void every_file_of_the_folder_is_in_the_program(void **state) {
    (void)state;
    DIR *folder = opendir(KIN_SOURCE_DIR "/web/page");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        char name[300];
        snprintf(name, sizeof name, "page/%s", e->d_name);
        if (e->d_name[0] != '.' && !find(name)) fail_msg("%s is not in the table of serve/tabs/tab_page.c", name);
    }
    closedir(folder);
    assert_non_null(find("engine.js"));
    assert_non_null(find("engine_thread.js"));
    assert_int_equal(find("engine_relaxed.wasm") != NULL, kin_tab_page_has_engine());
}

static void it_is_small_enough_for_a_phone(void **state) {
    (void)state;
    size_t n_engine = 0, n_scripts = 0, n_gpu = 0; // n_gpu: scripts fetched only with WebGPU
    const kin_webui_file *f;
    for (int i = 0; (f = kin_tab_page_at(i)); i++) {
        size_t *n = f->is_gzip ? &n_engine : strncmp(f->name, "gpu_", 4) == 0 ? &n_gpu : &n_scripts;
        *n += (size_t)(f->end - f->begin);
    }
    assert_true(n_scripts > 1000 && n_scripts <= MAX_SCRIPTS);
    assert_in_range(n_gpu, 1000, MAX_GPU_SCRIPTS);
    assert_true(n_engine <= MAX_ENGINE);
}

static void no_script_makes_markup_or_code_of_text(void **state) {
    (void)state;
    static const char *const words[] = {"innerHTML",     "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                                        "new Function(", " style="};
    const kin_webui_file *f;
    for (int i = 0; (f = kin_tab_page_at(i)); i++)
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (!f->is_gzip && memmem(f->begin, (size_t)(f->end - f->begin), words[w], strlen(words[w])))
                fail_msg("%s has %s", f->name, words[w]);
}

static void modules_are_compressed(void **state) {
    (void)state;
    const kin_webui_file *f = find("engine_relaxed.wasm");
    if (!f) skip();
    assert_true(f->is_gzip && f->end - f->begin > 2);
    assert_memory_equal(f->begin, "\x1f\x8b", 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_of_the_folder_is_in_the_program),
        cmocka_unit_test(it_is_small_enough_for_a_phone),
        cmocka_unit_test(no_script_makes_markup_or_code_of_text),
        cmocka_unit_test(modules_are_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
