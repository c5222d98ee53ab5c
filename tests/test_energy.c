// Energy (sys/energy.h): reads counters from a folder that looks like the kernel's, and uses the model of power without them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/energy.h"

typedef struct zone {
    const char *folder, *name, *energy;
} zone;

static const zone zones[] = {{"intel-rapl:0", "package-0", "999000000"},
                             {"intel-rapl:0:0", "core", "7"},
                             {"intel-rapl:0:1", "dram", "5000000"},
                             {"intel-rapl:1", "psys", "3"},
                             {"intel-rapl:2", "package-1", "10"}};

static void write_file(const char *folder, const char *zone, const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", folder, zone, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_zones(char folder[32]) {
    snprintf(folder, 32, "/tmp/kin-energy-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
        write_file(folder, zones[i].folder, "name", zones[i].name);
        write_file(folder, zones[i].folder, "energy_uj", zones[i].energy);
        write_file(folder, zones[i].folder, "max_energy_range_uj", "1000000000");
    }
}

static void remove_zones(const char *folder) {
    static const char *const files[] = {"name", "energy_uj", "max_energy_range_uj", ""};
    char path[600];
    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
        for (int k = 0; k < 4; k++) {
            snprintf(path, sizeof path, "%s/%s/%s", folder, zones[i].folder, files[k]);
            remove(path);
        }
    }
    assert_int_equal(rmdir(folder), 0);
}

// 2 J of the first package, whose counter began anew, 1.5 J of its memory, 0.25 J of the second package.
static void packages_and_their_memory_are_added_and_counters_may_begin_anew(void **state) {
    (void)state;
    char folder[32];
    kin_energy a, b;
    bool is_measured;
    make_zones(folder);
    kin_energy_read(&a, folder);
    assert_int_equal(a.n_zones, 3);
    write_file(folder, "intel-rapl:0", "energy_uj", "1000000");
    write_file(folder, "intel-rapl:0:0", "energy_uj", "700000000");
    write_file(folder, "intel-rapl:0:1", "energy_uj", "6500000");
    write_file(folder, "intel-rapl:1", "energy_uj", "700000000");
    write_file(folder, "intel-rapl:2", "energy_uj", "250010");
    kin_energy_read(&b, folder);
    double joules = kin_energy_between(&a, &b, &is_measured);
    assert_true(is_measured);
    assert_float_equal(joules, 2 + 1.5 + 0.25, 1e-9);
    write_file(folder, "intel-rapl:2", "energy_uj", "none");
    kin_energy_read(&b, folder);
    kin_energy_between(&a, &b, &is_measured);
    assert_false(is_measured);
    remove_zones(folder);
}

static void without_counters_the_model_counts_time_processors_and_reading(void **state) {
    (void)state;
    kin_energy a = {.wall_s = 100, .busy_s = 3, .read_bytes = 1000},
               b = {.wall_s = 110, .busy_s = 7, .read_bytes = 1000 + 500000000};
    bool is_measured = true;
    assert_float_equal(kin_energy_between(&a, &b, &is_measured), 40 + 60 + 4, 1e-9);
    assert_false(is_measured);
}

static void a_moment_has_the_time_of_this_process(void **state) {
    (void)state;
    kin_energy a, b;
    volatile double x = 0;
    kin_energy_read(&a, "/nonexistent");
    do {
        for (int i = 0; i < 1000000; i++) x = x + i;
        kin_energy_read(&b, "/nonexistent");
    } while (b.busy_s - a.busy_s < 0.02);
    assert_int_equal(b.n_zones, 0);
    assert_true(b.wall_s > a.wall_s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_and_their_memory_are_added_and_counters_may_begin_anew),
        cmocka_unit_test(without_counters_the_model_counts_time_processors_and_reading),
        cmocka_unit_test(a_moment_has_the_time_of_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
