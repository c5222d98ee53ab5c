// The doctor's findings for machines given as trees of files (control groups, GPUs, firewalls), and for bad folders, keys and
// ports.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/doctor/doctor_machine.h"
#include "cluster/doctor/doctor_network.h"
#include "sys/whole_file.h"
#include "tests/place.h"

static char root[64];
static kin_doctor_report report;

static void put(const char *path, const char *text) {
    char full[512], folder[512];
    kin_err err;
    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = '\0';
    if (kin_folder_make(folder, &err) != 0 || kin_whole_file_write(full, text, strlen(text), &err) != 0) fail_msg("%s", err.text);
}
#define put(...) FROM_TEST(put(__VA_ARGS__))

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/kin-test-doctor-XXXXXX");
    assert_non_null(mkdtemp(root));
    put("/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    put("/proc/self/cgroup", "0::/user/kin\n");
    report.n = 0;
    return 0;
}

static int remove_root(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static kin_doctor_options options(void) {
    return (kin_doctor_options){.root = root, .http_port = 1};
}

// Asserts that the last finding has this level, and contains this text and command.
static void expect(kin_finding_level level, const char *text, const char *command) {
    assert_true(report.n > 0);
    const kin_finding *f = &report.at[report.n - 1];
    if (f->level != level || !strstr(f->text, text) || !strstr(f->command, command))
        fail_msg("%d: %s -> %s", (int)f->level, f->text, f->command);
    if (!command[0]) assert_string_equal(f->command, "");
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

static void a_limit_of_memory_is_a_note_with_the_group_that_has_it(void **state) {
    (void)state;
    kin_doctor_options o = options();
    kin_doctor_memory(&report, &o);
    assert_int_equal(report.n, 1);
    put("/sys/fs/cgroup/user/kin/memory.max", "max\n");
    put("/sys/fs/cgroup/user/memory.max", "314572800\n");
    put("/sys/fs/cgroup/user/memory.current", "0\n");
    kin_doctor_memory(&report, &o);
    expect(KIN_FINDING_NOTE, "limits it to 300 MiB", "echo max | sudo tee ");
    expect(KIN_FINDING_NOTE, "", "/sys/fs/cgroup/user/memory.max");
    put("/.dockerenv", "");
    kin_doctor_memory(&report, &o);
    expect(KIN_FINDING_NOTE, "limits it", "docker update --memory");
}

static void memory_that_is_nearly_gone_is_a_note(void **state) {
    (void)state;
    kin_doctor_options o = options();
    put("/sys/fs/cgroup/user/kin/memory.max", "104857600\n");
    put("/sys/fs/cgroup/user/kin/memory.current", "0\n");
    kin_doctor_memory(&report, &o);
    report.n = 1;
    expect(KIN_FINDING_NOTE, "are free: weights will be streamed from disk", "ps aux");
}

static void a_quota_of_processors_is_a_note(void **state) {
    (void)state;
    kin_doctor_options o = options();
    put("/sys/fs/cgroup/user/kin/cpu.max", "50000 100000\n");
    kin_doctor_processor(&report, &o);
    expect(KIN_FINDING_NOTE, "limits kin to 0.5 of ", "/sys/fs/cgroup/user/kin/cpu.max");
}

static void a_gpu_without_a_backend_is_a_note(void **state) {
    (void)state;
    kin_doctor_options o = options();
    setenv("GGML_VK_VISIBLE_DEVICES", "", 1); // ggml sees no GPU, whatever this machine has
    kin_doctor_gpu(&report, &o);
    if (report.n != 1 || !strstr(report.at[0].text, "no GPU")) skip();
    put("/sys/class/drm/renderD128/device/vendor", "0x1002\n");
    kin_doctor_gpu(&report, &o);
    expect(KIN_FINDING_NOTE, "a GPU of AMD", "tools/setup --gpu");
    put("/dev/nvidiactl", "");
    kin_doctor_gpu(&report, &o);
    expect(KIN_FINDING_NOTE, "a GPU of NVIDIA", "tools/setup --gpu");
}

static void a_firewall_is_a_note_with_its_own_command(void **state) {
    (void)state;
    kin_doctor_options o = options();
    put("/etc/ufw/ufw.conf", "# ENABLED=yes\nENABLED=no\n");
    kin_doctor_firewall(&report, &o);
    expect(KIN_FINDING_OK, "neither ufw nor firewalld", "");
    put("/run/firewalld/x", "");
    kin_doctor_firewall(&report, &o);
    expect(KIN_FINDING_NOTE, "firewalld is on", "firewall-cmd --add-port=7577/tcp --add-port=7578/udp");
    put("/etc/ufw/ufw.conf", "# x\nENABLED=yes\n");
    o.port = 4000;
    kin_doctor_firewall(&report, &o);
    expect(KIN_FINDING_NOTE, "TCP port 4000", "ufw allow 4000/tcp && sudo ufw allow 7578/udp");
}

static void a_port_that_is_taken_is_a_note(void **state) {
    (void)state;
    kin_doctor_options o = options();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    o.http_port = ntohs(at.sin_port);
    kin_doctor_ports(&report, &o);
    expect(KIN_FINDING_NOTE, "Address already in use", "kin serve --port");
    close(fd);
}

static void a_cache_that_cannot_be_written_is_a_problem(void **state) {
    (void)state;
    char file[100], folder[100];
    kin_doctor_options o = options();
    put("/file", "");
    snprintf(file, sizeof file, "%s/file/cache", root);
    o.cache_dir = file;
    kin_doctor_disk(&report, &o);
    expect(KIN_FINDING_PROBLEM, "cannot create the cache", "--cache DIR");
    o.cache_dir = NULL;
    kin_doctor_disk(&report, &o);
    expect(KIN_FINDING_NOTE, "no home", "--cache DIR");
    snprintf(folder, sizeof folder, "%s/closed", root);
    assert_int_equal(mkdir(folder, 0500), 0);
    o.cache_dir = folder;
    if (access(folder, W_OK) == 0) return; // root can write anywhere
    kin_doctor_disk(&report, &o);
    expect(KIN_FINDING_PROBLEM, "cannot write to the cache", "chown");
}

static void a_key_that_is_damaged_is_a_problem_and_none_a_note(void **state) {
    (void)state;
    char file[100];
    kin_doctor_options o = options();
    snprintf(file, sizeof file, "%s/key", root);
    o.net.key_file = file;
    kin_doctor_cluster(&report, &o);
    expect(KIN_FINDING_NOTE, "in no cluster yet", "kin join");
    put("/key", "nonsense\n");
    kin_doctor_cluster(&report, &o);
    expect(KIN_FINDING_PROBLEM, "key", "--ask-code");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_limit_of_memory_is_a_note_with_the_group_that_has_it, make_root, remove_root),
        cmocka_unit_test_setup_teardown(memory_that_is_nearly_gone_is_a_note, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_quota_of_processors_is_a_note, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_gpu_without_a_backend_is_a_note, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_firewall_is_a_note_with_its_own_command, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_port_that_is_taken_is_a_note, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_cache_that_cannot_be_written_is_a_problem, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_key_that_is_damaged_is_a_problem_and_none_a_note, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
