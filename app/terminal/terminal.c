// Terminal output: sentences and progress on stderr, text on stdout.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/clock.h"
#include "base/sentence.h"
#include "base/units.h"
#include "pure/text/escape.h"

enum { MAX_LINE = 2048, MAX_SHOWN = 4 * MAX_LINE, MAX_STATUS = 100 };

static pthread_mutex_t progress_mutex = PTHREAD_MUTEX_INITIALIZER; // protects these two and stderr
static bool progress_shown;
static char status_shown[512]; // the part of the last status line that was printed as a sentence
static void (*_Atomic frame)(bool begins);
static atomic_bool text_open; // the last text on stdout, on the same terminal, did not end its line

// Starts a new line if text on stdout is in the middle of one.
static void begin_line(void) {
    if (atomic_exchange(&text_open, false) && isatty(STDERR_FILENO)) fputc('\n', stderr);
}

// Requires the mutex.
static void clear_progress(void) {
    if (progress_shown) fputs("\r\033[K", stderr);
    progress_shown = false;
}

// ---- sentences

static void print_line(const char *begin, const char *text) {
    char shown[MAX_SHOWN];
    void (*around)(bool begins) = atomic_load(&frame);
    pthread_mutex_lock(&progress_mutex);
    clear_progress();
    begin_line();
    if (around) around(true);
    fprintf(stderr, "%s: %s\n", begin, kin_escape(shown, sizeof shown, text, strlen(text)));
    if (around) around(false);
    pthread_mutex_unlock(&progress_mutex);
}

void kin_app_set_frame(void (*around)(bool begins)) {
    atomic_store(&frame, around);
}

void kin_app_log(const char *fmt, ...) {
    char line[MAX_LINE];
    va_list args;
    va_start(args, fmt);
    kin_sentence_vprint(line, sizeof line, fmt, args);
    va_end(args);
    print_line("kin", line);
}

int kin_app_fail(const kin_err *err) {
    kin_app_progress_clear();
    if (atomic_load(&kin_app_stop)) return KIN_EXIT_INTERRUPTED;
    print_line("kin", err->text);
    return KIN_EXIT_FAILED;
}

int kin_app_usage(const char *command, const kin_err *err) {
    char begin[64];
    snprintf(begin, sizeof begin, "kin %s", command);
    print_line(begin, err->text);
    fprintf(stderr, "Try 'kin help %s'.\n", command);
    return KIN_EXIT_USAGE;
}

// ---- progress

bool kin_app_accepts_escapes(FILE *stream) {
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && term && strcmp(term, "dumb") != 0;
}

// Requires the mutex. Shows nothing for short work; updates ten times a second for long work.
static void show_progress(const char *what, uint64_t done, uint64_t total) {
    static kin_time begun, shown;
    static const char *of;
    kin_time now = kin_clock_now();
    if (of != what) {
        of = what;
        begun = now;
    }
    if (done >= total) {
        clear_progress();
    } else if (kin_clock_ms(begun, now) > 400 && kin_clock_ms(shown, now) > 100) {
        shown = now;
        begin_line();
        progress_shown = true;
        fprintf(stderr, "\r\033[K%s: %d %%", what, (int)(100 * done / total));
        fflush(stderr);
    }
}

void kin_app_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    (void)user;
    if (total == 0 || !kin_app_accepts_escapes(stderr)) return;
    pthread_mutex_lock(&progress_mutex);
    show_progress(what, done, total);
    pthread_mutex_unlock(&progress_mutex);
}

// Returns the length of the part of a line that stays the same while one activity continues.
static size_t stem(const char *line) {
    size_t n = strcspn(line, ";");
    for (size_t i = 0; i + 2 < n; i++) {
        if (line[i] == ':' && line[i + 1] == ' ' && line[i + 2] >= '0' && line[i + 2] <= '9') return i;
    }
    return n;
}

static void show_status(const char *line) {
    char shown[MAX_STATUS + 1]; // cut between characters
    pthread_mutex_lock(&progress_mutex);
    clear_progress();
    begin_line();
    progress_shown = true;
    fputs(kin_escape(shown, sizeof shown, line, strlen(line)), stderr);
    fflush(stderr);
    pthread_mutex_unlock(&progress_mutex);
}

// True if the line says something else than the last one; figures do not count.
static bool is_new_status(const char *line, size_t n) {
    pthread_mutex_lock(&progress_mutex);
    bool is_new = strlen(status_shown) != n || memcmp(status_shown, line, n) != 0;
    memcpy(status_shown, line, n);
    status_shown[n] = '\0';
    pthread_mutex_unlock(&progress_mutex);
    return is_new;
}

void kin_app_status(const char *line) {
    size_t n = stem(line);
    if (kin_app_accepts_escapes(stderr)) {
        show_status(line);
        return;
    }
    if (n >= sizeof status_shown) n = sizeof status_shown - 1;
    if (is_new_status(line, n)) kin_app_log("%.*s", (int)n, line);
}

void kin_app_progress_clear(void) {
    pthread_mutex_lock(&progress_mutex);
    clear_progress();
    pthread_mutex_unlock(&progress_mutex);
}

// ---- stdout

// Writes a character as the terminal shows it. Newlines and tabs are unchanged.
static size_t put_shown(const char *text, size_t n) {
    char shown[KIN_ESCAPE_CHAR];
    size_t len = kin_escape_char(text, n, shown);
    if (text[0] == '\n' || text[0] == '\t')
        fputc(text[0], stdout);
    else
        fputs(shown, stdout);
    return len;
}

int kin_app_write(const char *text, size_t n, kin_err *err) {
    if (isatty(STDOUT_FILENO)) {
        kin_app_progress_clear();
        for (size_t i = 0; i < n;) i += put_shown(text + i, n - i);
        if (n > 0) atomic_store(&text_open, text[n - 1] != '\n');
    } else {
        fwrite(text, 1, n, stdout);
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : kin_err_set(err, "stdout: %s", strerror(errno));
}

void kin_app_open_stdio(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        // With the wrong access mode, so that reading from stdin and writing to stdout or stderr fail with a message.
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
    }
}

int kin_app_close_stdout(int status) {
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed) return status;
    if (status == KIN_EXIT_OK) kin_app_log("stdout: %s", strerror(errno ? errno : EIO));
    return status == KIN_EXIT_OK ? KIN_EXIT_FAILED : status;
}

void kin_app_print_streaming(const kin_shard_stats *stats) {
    const kin_stream_stats *st = &stats->weights.stream;
    char a[32], b[32], c[32];
    if (st->read_bytes == 0 || st->n_passes == 0) return;
    double busy_ms = (double)st->busy_ns / 1e6, wait_ms = (double)st->wait_ns / 1e6;
    fprintf(
        stderr,
        "kin: %s of weights resident, %s streamed per pass at %.2f GB/s%s; %.0f %% of the reading overlapped; %s of buffers\n",
        kin_size_format(st->resident_bytes, a, sizeof a), kin_size_format(st->read_bytes / st->n_passes, b, sizeof b),
        (double)(st->read_bytes + st->fetch_bytes) / busy_ms / 1e6, st->direct ? "" : " (no O_DIRECT here)",
        busy_ms > 0 ? 100 * (1 - wait_ms / busy_ms < 0 ? 0 : 1 - wait_ms / busy_ms) : 0,
        kin_size_format(st->ring_bytes, c, sizeof c));
    const kin_experts_stats *e = &stats->weights.experts;
    if (e->n_misses > 0)
        fprintf(stderr, "kin: %s of experts in memory (at most %s), %.1f %% of those that were needed; %s read\n",
                kin_size_format(e->held_bytes, a, sizeof a), kin_size_format(e->budget, b, sizeof b),
                100 * (double)e->n_hits / (double)(e->n_hits + e->n_misses), kin_size_format(e->read_bytes, c, sizeof c));
}

void kin_app_write_json(json_t *json, int digits) {
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits);
    json_dumpf(json, stdout, flags | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0));
    printf("\n");
    json_decref(json);
}

// ---- the console

static bool can_ask(void) {
    return isatty(STDIN_FILENO);
}

static bool ask_terminal(const char *question, char *line, size_t n) {
    fprintf(stderr, "%s", question);
    return fgets(line, (int)n, stdin);
}

// Not a terminal: it may be a journal that others can read.
static void show_new_code(const char *code) {
    if (!isatty(STDERR_FILENO)) {
        kin_app_log("created a new cluster; run 'kin code' to see its code, which 'kin join' on each other device "
                    "asks for");
        return;
    }
    fprintf(stderr,
            "kin: created a new cluster. Its code is\n\n      %s\n\n"
            "     Run 'kin join' on each other device and enter the code once. 'kin code' shows it again.\n\n",
            code);
}

const kin_console kin_app_console = {.stop = &kin_app_stop,
                                     .log = kin_app_log,
                                     .status = kin_app_status,
                                     .progress = kin_app_progress,
                                     .clear_progress = kin_app_progress_clear,
                                     .new_code = show_new_code,
                                     .can_ask = can_ask,
                                     .ask = ask_terminal};
