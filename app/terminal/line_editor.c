#include "app/terminal/line_editor.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "app/app.h"
#include "app/terminal/key_reader.h"
#include "app/terminal/text_layout.h"
#include "pure/text/text_buffer.h"

enum { MAX_HISTORY = 500, MAX_TEXT = 16 << 20 };

struct kin_line_editor {
    kin_key_reader keys;
    kin_text_buffer text; // the message being typed
    size_t at;            // byte offset of the cursor
    char *history[MAX_HISTORY];
    int n_history, i_history; // i_history == n_history: the typed message
    char *draft;              // the typed message while the history is shown
    bool is_plain;            // the terminal has no escape sequences: it edits its own lines
    pthread_mutex_t mutex;    // protects the fields below, because other threads print sentences
    bool is_shown;
    int shown_row; // of the cursor, counted from the first row shown
};

static struct termios original, typing, waiting; // original settings; while a message is typed; while an answer is shown
static volatile sig_atomic_t has_resized;
static kin_line_editor *the_editor;

// ---- the terminal

static void on_resize(int sig) {
    (void)sig;
    has_resized = 1;
}

// After SIGCONT: the shell has changed the terminal's settings.
static void on_continue(int sig) {
    (void)sig;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &waiting);
    has_resized = 1;
}

static void set_modes(void) {
    typing = original;
    typing.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
    typing.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    typing.c_cc[VMIN] = 1;
    typing.c_cc[VTIME] = 0;
    waiting = typing; // Ctrl-C sends a signal
    typing.c_lflag &= ~(tcflag_t)ISIG;
}

static struct winsize size_now(void) {
    struct winsize w = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0) w = (struct winsize){.ws_row = 24, .ws_col = 80};
    if (w.ws_col < 8) w.ws_col = 8;
    if (w.ws_row < 3) w.ws_row = 3;
    return w;
}

int kin_line_editor_columns(void) {
    return size_now().ws_col;
}

// ---- display. Requires the mutex

// Writes a space before it clears: tmux treats clearing from the very first cell as clearing the screen, saves the old content in
// its history, and shows it again when the terminal grows.
static void erase(kin_line_editor *e) {
    if (!e->is_shown) return;
    if (e->shown_row > 0) printf("\033[%dA", e->shown_row);
    printf("\r \033[J\r");
    e->is_shown = false;
}

// Shows as many rows as fit, around the cursor.
static void show(kin_line_editor *e) {
    struct winsize w = size_now();
    kin_str text = kin_text_str(&e->text);
    kin_text_place cursor = kin_text_place_of(text, e->at, w.ws_col), last = kin_text_place_of(text, text.len, w.ws_col);
    int begin = cursor.row - (w.ws_row - 2), end = last.row + 1;
    if (begin < 0) begin = 0;
    if (end > begin + w.ws_row - 1) end = begin + w.ws_row - 1;
    printf("%s", begin == 0 ? "\033[1m>\033[0m " : "");
    kin_text_write_rows(stdout, text, begin, end, w.ws_col);
    if (end - 1 > cursor.row) printf("\033[%dA", end - 1 - cursor.row);
    printf("\r");
    if (cursor.column > 0) printf("\033[%dC", cursor.column);
    e->is_shown = true;
    e->shown_row = cursor.row - begin;
    fflush(stdout);
}

static void redraw(kin_line_editor *e) {
    pthread_mutex_lock(&e->mutex);
    erase(e);
    show(e);
    pthread_mutex_unlock(&e->mutex);
}

// The terminal has rewrapped its rows: the cursor moved to its position in the new layout.
static void resized(kin_line_editor *e) {
    struct winsize w = size_now();
    int row = kin_text_place_of(kin_text_str(&e->text), e->at, w.ws_col).row;
    pthread_mutex_lock(&e->mutex);
    has_resized = 0;
    e->shown_row = row < w.ws_row - 1 ? row : w.ws_row - 1;
    erase(e);
    show(e);
    pthread_mutex_unlock(&e->mutex);
}

// Called before and after a sentence of another thread.
static void frame(bool begins) {
    static bool was_shown;
    kin_line_editor *e = the_editor;
    if (begins) {
        pthread_mutex_lock(&e->mutex);
        was_shown = e->is_shown;
        erase(e);
        fflush(stdout);
        return;
    }
    if (was_shown) show(e);
    pthread_mutex_unlock(&e->mutex);
}

// ---- the text

static void set_text(kin_line_editor *e, const char *text) {
    e->text.len = 0;
    kin_text_put(&e->text, text, strlen(text));
    e->at = e->text.len;
}

static void insert(kin_line_editor *e, const char *bytes, size_t n) {
    size_t behind = e->text.len - e->at;
    if (e->text.len + n > MAX_TEXT) return;
    kin_text_put(&e->text, bytes, n); // makes room
    if (e->text.failed) return;
    memmove(e->text.at + e->at + n, e->text.at + e->at, behind);
    memcpy(e->text.at + e->at, bytes, n);
    e->at += n;
}

static void cut(kin_line_editor *e, size_t begin, size_t end) {
    if (end <= begin) return;
    memmove(e->text.at + begin, e->text.at + end, e->text.len - end);
    e->text.len -= end - begin;
    e->at = begin;
}

static size_t line_begin(const kin_line_editor *e) {
    size_t at = e->at;
    while (at > 0 && e->text.at[at - 1] != '\n') at--;
    return at;
}

static size_t line_end(const kin_line_editor *e) {
    size_t at = e->at;
    while (at < e->text.len && e->text.at[at] != '\n') at++;
    return at;
}

static bool is_blank(const kin_line_editor *e, size_t at) {
    return strchr(" \t\n", e->text.at[at]) != NULL;
}

static size_t word_before(const kin_line_editor *e) {
    size_t at = e->at;
    while (at > 0 && is_blank(e, at - 1)) at--;
    while (at > 0 && !is_blank(e, at - 1)) at--;
    return at;
}

static size_t word_after(const kin_line_editor *e) {
    size_t at = e->at;
    while (at < e->text.len && is_blank(e, at)) at++;
    while (at < e->text.len && !is_blank(e, at)) at++;
    return at;
}

// ---- history

static void browse(kin_line_editor *e, int by) {
    int i = e->i_history + by;
    if (i < 0 || i > e->n_history) return;
    if (e->i_history == e->n_history) {
        free(e->draft);
        e->draft = strndup(e->text.at ? e->text.at : "", e->text.len);
    }
    e->i_history = i;
    set_text(e, i < e->n_history ? e->history[i] : e->draft ? e->draft : "");
}

static void remember(kin_line_editor *e) {
    char *text = strndup(e->text.at ? e->text.at : "", e->text.len);
    if (!text || !text[0] || (e->n_history > 0 && strcmp(e->history[e->n_history - 1], text) == 0)) {
        free(text);
        return;
    }
    if (e->n_history == MAX_HISTORY) {
        free(e->history[0]);
        memmove(e->history, e->history + 1, (MAX_HISTORY - 1) * sizeof *e->history);
        e->n_history--;
    }
    e->history[e->n_history++] = text;
}

// Moves a row up or down; beyond the first and last row, through the history.
static void move_row(kin_line_editor *e, int by) {
    int columns = kin_line_editor_columns();
    kin_str text = kin_text_str(&e->text);
    kin_text_place p = kin_text_place_of(text, e->at, columns), last = kin_text_place_of(text, text.len, columns);
    if (p.row + by < 0 || p.row + by > last.row)
        browse(e, by);
    else
        e->at = kin_text_at(text, (kin_text_place){p.row + by, p.column}, columns);
}

// ---- end of a message

static const char marks[] = "\"\"\"";

static bool has_marks(const kin_line_editor *e) {
    return e->text.len >= 3 && memcmp(e->text.at, marks, 3) == 0;
}

// Handles Enter. True if the message is complete; otherwise inserts a newline.
static bool is_whole(kin_line_editor *e) {
    size_t n = e->text.len;
    bool is_open = has_marks(e) && (n < 6 || memcmp(e->text.at + n - 3, marks, 3) != 0);
    e->at = n;
    if (!is_open && (n == 0 || e->text.at[n - 1] != '\\')) return true;
    if (!is_open) cut(e, n - 1, n);
    insert(e, "\n", 1);
    return false;
}

static kin_str message(const kin_line_editor *e) {
    kin_str text = kin_text_str(&e->text);
    if (!has_marks(e)) return text;
    text = (kin_str){text.at + 3, text.len - 6};
    if (text.len > 0 && text.at[0] == '\n') text = (kin_str){text.at + 1, text.len - 1};
    if (text.len > 0 && text.at[text.len - 1] == '\n') text.len--;
    return text;
}

// ---- keys

static void edit(kin_line_editor *e, kin_key_press key) {
    kin_str text = kin_text_str(&e->text);
    switch (key.kind) {
    case KIN_PRESS_TEXT: insert(e, key.text, key.n); break;
    case KIN_PRESS_NEWLINE: insert(e, "\n", 1); break;
    case KIN_PRESS_LEFT: e->at = kin_text_before(text, e->at); break;
    case KIN_PRESS_RIGHT: e->at = kin_text_after(text, e->at); break;
    case KIN_PRESS_WORD_LEFT: e->at = word_before(e); break;
    case KIN_PRESS_WORD_RIGHT: e->at = word_after(e); break;
    case KIN_PRESS_HOME: e->at = line_begin(e); break;
    case KIN_PRESS_LINE_END: e->at = line_end(e); break;
    case KIN_PRESS_UP: move_row(e, -1); break;
    case KIN_PRESS_DOWN: move_row(e, 1); break;
    case KIN_PRESS_BACKSPACE: cut(e, kin_text_before(text, e->at), e->at); break;
    case KIN_PRESS_DELETE: cut(e, e->at, kin_text_after(text, e->at)); break;
    case KIN_PRESS_CUT_BEFORE: cut(e, line_begin(e), e->at); break;
    case KIN_PRESS_CUT_AFTER: cut(e, e->at, line_end(e)); break;
    case KIN_PRESS_CUT_WORD: cut(e, word_before(e), e->at); break;
    default: break;
    }
}

static void suspend(kin_line_editor *e) {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &original);
    raise(SIGTSTP); // returns when the shell continues the program
    tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
    pthread_mutex_lock(&e->mutex);
    e->is_shown = false;
    pthread_mutex_unlock(&e->mutex);
}

static void clear_screen(kin_line_editor *e) {
    pthread_mutex_lock(&e->mutex);
    printf("\033[H\033[2J");
    e->is_shown = false;
    pthread_mutex_unlock(&e->mutex);
}

// Handles one key. False: the message is complete, and *outcome says how.
static bool handle_key(kin_line_editor *e, kin_key_press key, kin_line_outcome *outcome) {
    switch (key.kind) {
    case KIN_PRESS_ENTER: *outcome = KIN_LINE_TEXT; return !is_whole(e);
    case KIN_PRESS_INTERRUPT: *outcome = KIN_LINE_INTERRUPTED; return false;
    case KIN_PRESS_EOF: *outcome = KIN_LINE_END; return e->text.len > 0;
    case KIN_PRESS_GONE: *outcome = KIN_LINE_END; return false;
    case KIN_PRESS_SUSPEND: suspend(e); break;
    case KIN_PRESS_CLEAR: clear_screen(e); break;
    case KIN_PRESS_NONE: break;
    default: edit(e, key);
    }
    return true;
}

static kin_line_outcome read_keys(kin_line_editor *e) {
    kin_line_outcome outcome = KIN_LINE_END;
    bool goes_on = true;
    while (goes_on && !atomic_load(&kin_app_stop)) {
        if (has_resized) {
            tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
            resized(e);
        }
        kin_key_press key = kin_key_reader_next(&e->keys);
        goes_on = handle_key(e, key, &outcome);
        if (key.kind != KIN_PRESS_NONE && goes_on && !kin_key_reader_has_more(&e->keys)) redraw(e);
    }
    return goes_on ? KIN_LINE_END : outcome;
}

// Reads whole lines from the terminal, after Enter.
static kin_line_outcome read_plain(kin_line_editor *e) {
    char bytes[4096];
    const char *prompt = "> ";
    for (;;) {
        fputs(prompt, stdout);
        fflush(stdout);
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        ssize_t n = poll(&p, 1, -1); // a signal interrupts poll, but not read
        if (n >= 0) n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR && !atomic_load(&kin_app_stop)) return KIN_LINE_INTERRUPTED;
        if (n <= 0) return e->text.len > 0 ? KIN_LINE_TEXT : KIN_LINE_END;
        bool is_line = bytes[n - 1] == '\n';
        e->at = e->text.len;
        insert(e, bytes, (size_t)(n - is_line));
        if (is_line && is_whole(e)) return KIN_LINE_TEXT;
        prompt = is_line ? ". " : "";
    }
}

kin_line_outcome kin_line_editor_read(kin_line_editor *e, kin_str *text) {
    e->text.len = e->at = 0;
    if (e->is_plain) {
        kin_line_outcome outcome = read_plain(e);
        if (outcome != KIN_LINE_TEXT) printf("\n");
        *text = message(e);
        return outcome;
    }
    e->i_history = e->n_history;
    has_resized = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
    redraw(e);
    kin_line_outcome outcome = read_keys(e);
    e->at = e->text.len;
    redraw(e);
    pthread_mutex_lock(&e->mutex);
    printf("%s\r\n", outcome == KIN_LINE_INTERRUPTED ? "^C" : "");
    e->is_shown = false;
    fflush(stdout);
    pthread_mutex_unlock(&e->mutex);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &waiting);
    if (outcome == KIN_LINE_TEXT) remember(e);
    // Ctrl-C was typed right after the message, while it was still read as a key.
    if (outcome == KIN_LINE_TEXT && kin_key_reader_pop_interrupt(&e->keys)) raise(SIGINT);
    *text = message(e);
    return outcome;
}

// ----

int kin_line_editor_open(kin_line_editor **out, kin_err *err) {
    *out = NULL;
    kin_line_editor *e = calloc(1, sizeof *e);
    if (!e) return kin_err_set(err, "out of memory");
    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &original) != 0) {
        free(e);
        return kin_err_set(err, "stdin is not a terminal");
    }
    pthread_mutex_init(&e->mutex, NULL);
    *out = e;
    e->is_plain = !kin_app_accepts_escapes(stdout);
    if (e->is_plain) return 0;
    set_modes();
    sigaction(SIGWINCH, &(struct sigaction){.sa_handler = on_resize, .sa_flags = SA_RESTART}, NULL);
    sigaction(SIGCONT, &(struct sigaction){.sa_handler = on_continue, .sa_flags = SA_RESTART}, NULL);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &waiting);
    printf("\033[?2004h"); // enables bracketed paste
    fflush(stdout);
    the_editor = e;
    kin_app_set_frame(frame);
    return 0;
}

static void leave_terminal(void) {
    kin_app_set_frame(NULL);
    signal(SIGCONT, SIG_DFL);
    signal(SIGWINCH, SIG_DFL);
    printf("\033[?2004l");
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &original);
}

void kin_line_editor_close(kin_line_editor *e) {
    if (!e) return;
    if (!e->is_plain) leave_terminal();
    for (int i = 0; i < e->n_history; i++) free(e->history[i]);
    free(e->draft);
    kin_text_fini(&e->text);
    kin_key_reader_fini(&e->keys);
    pthread_mutex_destroy(&e->mutex);
    free(e);
}
