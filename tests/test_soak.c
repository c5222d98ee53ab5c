// A ring of real processes on loopback under random faults: while the head lives, each text is correct and complete, and
// afterwards the ring works again. Nothing hangs, and no process ends unasked; with sanitizers, no process reports a leak or a
// race.
//
//     test_soak [FAULTS [SEED]]
//
// The environment's SOAK_FAULTS and SOAK_SEED do the same; the default is a few faults. A seed always gives the same faults.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/key.h"
#include "net/link.h"
#include "testkit/free_port.h"
#include "testkit/process.h"
#include "testkit/proxy.h"
#include "tests/place.h"

enum {
    N_DEVICES = 2,
    N_TOKENS = 60, // per text; a grammar excludes line breaks
    TEXT_BYTES = 4096,
    REQUEST_MS = 150000, // far more than any request takes, even with sanitizers on a busy machine
};

static int n_faults = 3;
static uint64_t seed = 2;

static const char kin[] = KIN_BINARY_DIR "/kin", profile[] = KIN_SOURCE_DIR "/tests/machine.json";
static const char *const names[] = {"anna", "ben"}, *const prompts[] = {"Once upon a time", "One day, a little girl"};

typedef struct soak {
    kin_rng rng;
    char dir[64], grammar[96];
    kin_key key;
    kin_process head, devices[N_DEVICES];
    kin_proxy *proxies[N_DEVICES]; // between each device and the head
    uint16_t port, ports[N_DEVICES];
    long log_begin[N_DEVICES]; // the offset in the device's log of its last start
    char want[2][TEXT_BYTES];
    int text_ms;           // duration of the last correct text
    char line[TEXT_BYTES]; // the line of the head's output read so far
    size_t n_line;
} soak;

static int pick(soak *s, int n) {
    return (int)(kin_rng_u64(&s->rng) % (uint64_t)n);
}

static void nap(int ms) {
    usleep((useconds_t)ms * 1000);
}

// ---- the processes

static void show_log(const char *path) {
    char text[8192];
    FILE *f = fopen(path, "r");
    if (!f) return;
    fseek(f, 0, SEEK_END);
    long n = ftell(f), from = n > (long)sizeof text ? n - (long)sizeof text : 0;
    fseek(f, from, SEEK_SET);
    size_t got = fread(text, 1, sizeof text, f);
    fclose(f);
    print_message("---- the end of %s\n%.*s\n", path, (int)got, text);
}

static void show_logs(const soak *s) {
    show_log(s->head.log);
    for (int i = 0; i < N_DEVICES; i++) show_log(s->devices[i].log);
}

#define FAIL(s, ...)                                                                                                             \
    do {                                                                                                                         \
        show_logs(s);                                                                                                            \
        fail_msg(__VA_ARGS__);                                                                                                   \
    } while (0)

// Returns the environment of this process without kin's variables, and with another home.
static char **make_environment(const char *home) {
    extern char **environ;
    static char *envp[512], home_text[256];
    int n = 0;
    snprintf(home_text, sizeof home_text, "HOME=%s", home);
    for (char **e = environ; *e && n < 500; e++) {
        bool is_kins = strncmp(*e, "KIN_", 4) == 0 || strncmp(*e, "HOME=", 5) == 0 || strncmp(*e, "XDG_", 4) == 0;
        if (!is_kins) envp[n++] = *e;
    }
    envp[n++] = home_text;
    envp[n] = NULL;
    return envp;
}

// Returns the path of a process's key; its identity is in the same folder.
static const char *key_path(const soak *s, const char *name, char path[128]) {
    snprintf(path, 128, "%s/%s/key", s->dir, name);
    return path;
}

static void start(soak *s, kin_process *p, const char *name, const char *const *arguments, bool has_pipes) {
    char home[128], *argv[32];
    int n = 0;
    kin_err err;
    snprintf(home, sizeof home, "%s/%s", s->dir, name);
    mkdir(home, 0700);
    snprintf(p->log, sizeof p->log, "%s/%s.log", s->dir, name);
    argv[n++] = (char *)kin;
    for (; *arguments; arguments++) argv[n++] = (char *)*arguments;
    argv[n] = NULL;
    if (kin_process_start(p, argv, make_environment(home), has_pipes, &err) != 0) fail_msg("%s", err.text);
}

static void start_head(soak *s) {
    char port[16], n[16], key[128];
    snprintf(port, sizeof port, "%u", (unsigned)s->port);
    snprintf(n, sizeof n, "%d", N_TOKENS);
    const char *const arguments[] = {
        "run",    "--cluster", "--lines",   "--hidden",  "--devices", "2",          "--name",
        "desk",   "--listen",  "127.0.0.1", "--port",    port,        "--key-file", key_path(s, "desk", key),
        "--plan", "even",      "--rounds",  "2",         "--temp",    "0",          "-n",
        n,        "-t",        "1",         "--grammar", s->grammar,  NULL};
    s->n_line = 0;
    start(s, &s->head, "desk", arguments, true);
    fcntl(s->head.out, F_SETFL, O_NONBLOCK);
}
#define start_head(...) FROM_TEST(start_head(__VA_ARGS__))

static long size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

static void start_device(soak *s, int i) {
    char at[32], port[16], key[128];
    snprintf(at, sizeof at, "127.0.0.1:%u", (unsigned)kin_proxy_port(s->proxies[i]));
    snprintf(port, sizeof port, "%u", (unsigned)s->ports[i]);
    const char *const arguments[] = {"join",      at,       "--name",     names[i],     "--listen",
                                     "127.0.0.1", "--port", port,         "--key-file", key_path(s, names[i], key),
                                     "--profile", profile,  "--no-cache", "-t",         "1",
                                     NULL};
    char log[128];
    snprintf(log, sizeof log, "%s/%s.log", s->dir, names[i]);
    s->log_begin[i] = size_of(log);
    start(s, &s->devices[i], names[i], arguments, false);
}
#define start_device(...) FROM_TEST(start_device(__VA_ARGS__))

// Fails if a process has ended that was not told to.
static void expect_alive(soak *s) {
    char end[32];
    for (int i = -1; i < N_DEVICES; i++) {
        kin_process *p = i < 0 ? &s->head : &s->devices[i];
        if (p->pid && kin_process_has_ended(p)) FAIL(s, "%s has ended: %s", p->log, kin_process_end(p, end, sizeof end));
    }
}

static void expect_end(soak *s, kin_process *p, int status) {
    char end[32];
    if (!kin_process_wait(p, REQUEST_MS)) FAIL(s, "%s does not end", p->log);
    if (!WIFEXITED(p->status) || WEXITSTATUS(p->status) != status)
        FAIL(s, "%s: %s, not %d", p->log, kin_process_end(p, end, sizeof end), status);
}
#define expect_end(...) FROM_TEST(expect_end(__VA_ARGS__))

static void expect_no_report(soak *s, const char *path) {
    static const char *const words[] = {"Sanitizer", "runtime error:", "assert", "Assertion"};
    char text[1024];
    FILE *f = fopen(path, "r");
    if (!f) return;
    while (fgets(text, sizeof text, f)) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            if (strstr(text, words[i])) FAIL(s, "%s: %s", path, text);
        }
    }
    fclose(f);
}
#define expect_no_report(...) FROM_TEST(expect_no_report(__VA_ARGS__))

// ---- requests

// Reads the available output. Returns true when s->line holds a complete line, without its newline.
static bool read_line(soak *s) {
    char c;
    while (s->head.out >= 0 && read(s->head.out, &c, 1) == 1) {
        if (c == '\n') {
            s->line[s->n_line] = '\0';
            s->n_line = 0;
            return true;
        }
        if (s->n_line + 1 < sizeof s->line) s->line[s->n_line++] = c;
    }
    return false;
}

static void send_prompt(soak *s, int which) {
    char text[64];
    int n = snprintf(text, sizeof text, "%s\n", prompts[which]);
    if (write(s->head.in, text, (size_t)n) != n) FAIL(s, "the head takes no prompt");
}

// Waits for the end of a request and expects the correct text.
static void finish(soak *s, int which) {
    kin_time begun = kin_clock_now();
    while (!read_line(s)) {
        if (kin_clock_ms(begun, kin_clock_now()) > REQUEST_MS) FAIL(s, "the request hangs");
        expect_alive(s);
        poll(&(struct pollfd){.fd = s->head.out, .events = POLLIN}, 1, 20);
    }
    if (strcmp(s->line, s->want[which]) != 0) FAIL(s, "the text is '%s', not '%s'", s->line, s->want[which]);
    s->text_ms = (int)kin_clock_ms(begun, kin_clock_now());
}

static void request(soak *s) {
    int which = pick(s, 2);
    send_prompt(s, which);
    finish(s, which);
}
#define request(...) FROM_TEST(request(__VA_ARGS__))

// ---- strangers

static int connect_to(uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    close(fd);
    return -1;
}

static void send_noise(soak *s, uint16_t port) {
    uint8_t noise[512];
    int fd = connect_to(port);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)kin_rng_u64(&s->rng);
    if (fd < 0) return;
    if (send(fd, noise, (size_t)(1 + pick(s, sizeof noise)), MSG_NOSIGNAL) < 0) print_message("nobody took the noise\n");
    close(fd);
}

// A peer that has the key and sends malformed messages.
typedef struct babbler {
    soak *s;
    uv_loop_t loop;
    bool is_over;
} babbler;

static void babble(void *user, kin_link *link) {
    babbler *b = user;
    uint8_t payload[256];
    for (int i = 0; i < 8; i++) {
        size_t n = (size_t)pick(b->s, sizeof payload);
        for (size_t k = 0; k < n; k++) payload[k] = (uint8_t)kin_rng_u64(&b->s->rng);
        int type = pick(b->s, 4) ? KIN_FRAME_OPEN : 1 + pick(b->s, 24);
        if (n <= kin_frame_cap((kin_frame_type)type))
            kin_link_send(link, (kin_frame_type)type, 1 + (uint32_t)pick(b->s, 1000), 1, &(kin_frame_part){payload, n});
    }
}

static void hear_nothing(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    (void)user, (void)link, (void)frame, (void)payload;
}

static void be_over(void *user, kin_link *link, const char *reason) {
    (void)link, (void)reason;
    ((babbler *)user)->is_over = true;
}

static void send_nonsense(soak *s, uint16_t port) {
    static const kin_link_callbacks callbacks = {.opened = babble, .frame = hear_nothing, .closed = be_over};
    babbler b = {.s = s};
    kin_tls_ctx *tls;
    kin_link *link;
    kin_err err;
    if (kin_tls_ctx_open(&tls, s->key.bytes, &err) != 0) fail_msg("%s", err.text);
    uv_loop_init(&b.loop);
    kin_link_options o = kin_link_options_default(tls);
    b.is_over = kin_link_connect(&link, &b.loop, "127.0.0.1", port, &o, &callbacks, &b, &err) != 0;
    uv_run(&b.loop, UV_RUN_DEFAULT); // until the other side closes the connection
    assert_true(b.is_over);
    assert_int_equal(uv_loop_close(&b.loop), 0);
    kin_tls_ctx_close(tls);
}

// ---- damage

static char files[256][256];
static int n_files;

static int note_file(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)at;
    if (kind == FTW_F && n_files < 256) snprintf(files[n_files++], sizeof files[0], "%s", path);
    return 0;
}

static void damage_file(soak *s, const char *path) {
    struct stat st;
    uint8_t noise[64];
    int kind = pick(s, 3), fd = open(path, O_RDWR);
    if (fd < 0 || fstat(fd, &st) != 0) fail_msg("%s cannot be damaged", path);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)kin_rng_u64(&s->rng);
    off_t at = st.st_size ? (off_t)(kin_rng_u64(&s->rng) % (uint64_t)st.st_size) : 0;
    bool failed = kind == 0 ? ftruncate(fd, at) != 0 : kind == 1 ? pwrite(fd, noise, sizeof noise, at) < 0 : unlink(path) != 0;
    if (failed) fail_msg("%s cannot be damaged", path);
    close(fd);
    print_message(" (%s of %s)", kind == 0 ? "the end" : kind == 1 ? "64 bytes" : "all", strrchr(path, '/') + 1);
}

static void damage_cache(soak *s, int i) {
    char folder[256];
    snprintf(folder, sizeof folder, "%s/%s/.cache/kin", s->dir, names[i]);
    n_files = 0;
    nftw(folder, note_file, 8, FTW_PHYS);
    if (n_files > 0) damage_file(s, files[pick(s, n_files)]);
}

// ---- faults of device i while a request runs; they may leave it broken, and heal repairs it

typedef void fault_fn(soak *s, int i);

static void be_killed(soak *s, int i) {
    kin_process_kill(&s->devices[i]);
}

static void hang(soak *s, int i) {
    kin_process_signal(&s->devices[i], SIGSTOP);
}

static void stutter(soak *s, int i) {
    for (int k = 0; k < 5; k++) {
        kin_process_signal(&s->devices[i], SIGSTOP);
        nap(50 + pick(s, 150));
        kin_process_signal(&s->devices[i], SIGCONT);
        nap(20);
    }
}

// Waits for the first log line, because a process may not have installed its signal handlers before it.
static void leave(soak *s, int i) {
    kin_time begun = kin_clock_now();
    while (size_of(s->devices[i].log) == s->log_begin[i]) {
        if (kin_clock_ms(begun, kin_clock_now()) > REQUEST_MS) FAIL(s, "%s says nothing", names[i]);
        nap(10);
    }
    kin_process_signal(&s->devices[i], pick(s, 2) ? SIGTERM : SIGINT);
    expect_end(s, &s->devices[i], 0);
}

static void cut(soak *s, int i) {
    kin_proxy_cut(s->proxies[i]);
}

static void stall(soak *s, int i) {
    kin_proxy_stall(s->proxies[i], true);
}

static void corrupt(soak *s, int i) {
    kin_proxy_corrupt(s->proxies[i]);
}

static void hear_noise(soak *s, int i) {
    send_noise(s, pick(s, 2) ? s->port : s->ports[i]);
}

static void hear_nonsense(soak *s, int i) {
    send_nonsense(s, pick(s, 2) ? s->port : s->ports[i]);
}

static void lose_files(soak *s, int i) {
    leave(s, i);
    damage_cache(s, i);
}

static void lose_head(soak *s, int i) {
    (void)i;
    kin_process_kill(&s->head);
}

static const struct {
    const char *name;
    fault_fn *fn;
} faults[] = {{"killed", be_killed},
              {"hangs", hang},
              {"stutters", stutter},
              {"leaves", leave},
              {"cut", cut},
              {"stalled", stall},
              {"corrupted", corrupt},
              {"noise", hear_noise},
              {"nonsense", hear_nonsense},
              {"damaged", lose_files},
              {"loses its head", lose_head}};
enum { N_KINDS = sizeof faults / sizeof *faults };

static void heal(soak *s, int i) {
    kin_process_signal(&s->devices[i], SIGCONT);
    kin_proxy_stall(s->proxies[i], false);
    if (!s->devices[i].pid) start_device(s, i);
    if (!s->head.pid) start_head(s);
}

static void suffer(soak *s, int number) {
    // Each kind occurs once before any is repeated.
    static int order[N_KINDS];
    for (int k = 0; k < N_KINDS && number % N_KINDS == 0; k++) order[k] = k;
    for (int k = N_KINDS - 1; k > 0 && number % N_KINDS == 0; k--) {
        int other = pick(s, k + 1), kept = order[k];
        order[k] = order[other];
        order[other] = kept;
    }
    int kind = order[number % N_KINDS], i = pick(s, N_DEVICES), which = pick(s, 2);
    kin_time begun = kin_clock_now();
    print_message("fault %d: %s %s", number + 1, names[i], faults[kind].name);
    send_prompt(s, which);
    nap(pick(s, 10 + s->text_ms * 5 / 4)); // before, during or soon after the text
    faults[kind].fn(s, i);
    if (s->head.pid) finish(s, which);
    print_message(": %s after %.1f s", s->head.pid ? "right" : "gone", kin_clock_ms(begun, kin_clock_now()) / 1e3);
    nap(pick(s, 1500));
    if (s->head.pid && pick(s, 2)) request(s);
    heal(s, i);
    request(s);
    print_message(", right again after %.1f s\n", kin_clock_ms(begun, kin_clock_now()) / 1e3);
}
#define suffer(...) FROM_TEST(suffer(__VA_ARGS__))

// ---- the test

// Runs kin on one machine. Returns its output in `text`.
static void run_alone(soak *s, const char *name, const char *const *arguments, char *text, size_t n) {
    kin_process p = {0};
    size_t got = 0;
    ssize_t k;
    start(s, &p, name, arguments, true);
    int out = dup(p.out);
    while (got + 1 < n && (k = read(out, text + got, n - 1 - got)) > 0) got += (size_t)k;
    text[got] = '\0';
    close(out);
    expect_end(s, &p, 0);
    if (got > 0 && text[got - 1] == '\n') text[got - 1] = '\0';
}

static void prepare(soak *s) {
    kin_err err;
    char path[128];
    kin_rng_seed(&s->rng, seed);
    snprintf(s->dir, sizeof s->dir, "/tmp/kin-test-soak-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    s->key = (kin_key){{7, 7, 7}};
    for (int i = -1; i < N_DEVICES; i++)
        assert_int_equal(kin_key_save(&s->key, key_path(s, i < 0 ? "desk" : names[i], path), &err), 0);
    snprintf(s->grammar, sizeof s->grammar, "%s/line.gbnf", s->dir);
    FILE *f = fopen(s->grammar, "w");
    assert_non_null(f);
    fputs("root ::= [^\\n]*\n", f);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        char n[16];
        snprintf(n, sizeof n, "%d", N_TOKENS);
        const char *const writes[] = {"run", "--temp", "0", "-n", n, "-t", "1", "--grammar", s->grammar, "-p", prompts[i], NULL};
        run_alone(s, "alone", writes, s->want[i], sizeof s->want[i]);
        assert_null(strchr(s->want[i], '\n'));
    }
}
#define prepare(...) FROM_TEST(prepare(__VA_ARGS__))

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void random_faults_end_in_the_right_text(void **state) {
    (void)state;
    static soak s;
    kin_err err;
    char path[128];
    print_message("%d faults of seed %llu\n", n_faults, (unsigned long long)seed);
    prepare(&s);
    s.port = free_port();
    for (int i = 0; i < N_DEVICES; i++) {
        s.ports[i] = free_port();
        assert_int_equal(kin_proxy_open(&s.proxies[i], s.port, &err), 0);
        start_device(&s, i);
    }
    start_head(&s);
    request(&s);
    for (int i = 0; i < n_faults; i++) suffer(&s, i);

    kin_process_signal(&s.head, SIGTERM);
    expect_end(&s, &s.head, 130);
    for (int i = 0; i < N_DEVICES; i++) {
        kin_process_signal(&s.devices[i], SIGTERM);
        expect_end(&s, &s.devices[i], 0);
        kin_proxy_close(s.proxies[i]);
        expect_no_report(&s, s.devices[i].log);
    }
    expect_no_report(&s, s.head.log);
    snprintf(path, sizeof path, "%s", s.dir);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_faults_end_in_the_right_text)};
    const char *faults_wanted = getenv("SOAK_FAULTS"), *seed_wanted = getenv("SOAK_SEED");
    signal(SIGPIPE, SIG_IGN); // the pipe to a head that has ended
    if (faults_wanted) n_faults = atoi(faults_wanted);
    if (seed_wanted) seed = strtoull(seed_wanted, NULL, 10);
    if (argc > 1) n_faults = atoi(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
