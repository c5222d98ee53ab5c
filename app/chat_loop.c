#include "app/chat_loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/terminal/line_editor.h"
#include "app/terminal/word_wrap.h"
#include "base/clock.h"

typedef struct chat {
    const kin_chat_loop_options *o;
    kin_line_editor *editor;
    bool is_over;
} chat;

static volatile sig_atomic_t is_interrupted; // since the message was sent

static void on_interrupt(int sig) {
    (void)sig;
    is_interrupted = 1;
}

bool kin_chat_loop_goes_on(void) {
    return !is_interrupted && !atomic_load(&kin_app_stop);
}

// ---- an answer

typedef struct view {
    size_t n_text, n_reasoning; // bytes already shown
    bool is_dim;
    kin_word_wrap wrap;
    kin_time asked, first, last;
} view;

static const char reading[] = "reading the prompt";

static void put_dim(bool on) {
    if (kin_app_accepts_escapes(stdout)) fputs(on ? "\033[2m" : "\033[0m", stdout);
}

static void put_text(void *user, const char *text, size_t n) {
    kin_err err; // if the terminal is gone, SIGHUP ends the program
    (void)user;
    kin_app_write(text, n, &err);
}

static void end_words(view *v) {
    kin_word_wrap_end(&v->wrap, kin_line_editor_columns());
    v->wrap = (kin_word_wrap){.put = put_text};
}

static void set_dim(view *v, bool on) {
    if (v->is_dim == on) return;
    end_words(v);
    put_dim(on);
    if (!on) printf("\n\n");
    v->is_dim = on;
}

static void show_more(view *v, const kin_text_buffer *text, size_t *n_shown) {
    const char *more = text->at + *n_shown;
    size_t n = text->len - *n_shown;
    if (isatty(STDOUT_FILENO))
        kin_word_wrap_add(&v->wrap, more, n, kin_line_editor_columns());
    else
        put_text(NULL, more, n);
    *n_shown = text->len;
}

static void on_grown(void *user, const kin_chat_stream *s) {
    view *v = user;
    bool has_more = s->text.len > v->n_text || s->reasoning.len > v->n_reasoning;
    if (!has_more) {
        if (s->n_prompt > 0 && !v->first) kin_app_progress(NULL, reading, (uint64_t)s->n_done, (uint64_t)s->n_prompt);
        return;
    }
    v->last = kin_clock_now();
    if (!v->first) v->first = v->last;
    kin_app_progress_clear();
    if (s->reasoning.len > v->n_reasoning) {
        set_dim(v, true);
        show_more(v, &s->reasoning, &v->n_reasoning);
    }
    if (s->text.len > v->n_text) {
        set_dim(v, false);
        show_more(v, &s->text, &v->n_text);
    }
}

static void end_view(view *v, const kin_chat_stream *s) {
    const kin_text_buffer *last = s->text.len > 0 ? &s->text : &s->reasoning;
    kin_app_progress_clear();
    end_words(v);
    if (v->is_dim) put_dim(false);
    v->is_dim = false;
    if (last->len > 0 && last->at[last->len - 1] != '\n') printf("\n");
    fflush(stdout);
}

static void show_stats(const view *v, const kin_chat_stream *s) {
    double ms = s->generated_ms > 0 ? s->generated_ms : v->first ? kin_clock_ms(v->first, v->last) : 0;
    double prompt_ms = s->prompt_ms > 0 ? s->prompt_ms : v->first ? kin_clock_ms(v->asked, v->first) : 0;
    int n_read = s->n_prompt - s->n_cached;
    put_dim(true);
    if (s->n_generated > 1 && ms > 0) printf("%d tokens, %.1f tokens/s; ", s->n_generated, (s->n_generated - 1) * 1e3 / ms);
    if (s->n_prompt > 0) printf("prompt %d tokens and %d cached; ", n_read, s->n_cached);
    printf("%.2f s to the first token, %.2f s to generate", prompt_ms / 1e3, ms / 1e3);
    put_dim(false);
    printf("\n");
}

static void report_end(const chat *c, kin_http_client_end end, const kin_chat_stream *s, bool is_new, const kin_err *err) {
    const char *again = s->text.len == 0 && is_new ? "; press Up to edit the message" : "";
    if (atomic_load(&kin_app_stop)) return;
    if (end == KIN_HTTP_CLIENT_STOPPED)
        kin_app_log("stopped%s", again);
    else if (end == KIN_HTTP_CLIENT_FAILED)
        kin_app_log("%s. The conversation is unchanged%s", err->text, again);
    else if (s->is_cut && c->o->facts.n_ctx > 0)
        kin_app_log("the answer reached its token limit (-n) or the context of %d tokens; /clear starts a new conversation",
                    c->o->facts.n_ctx);
    else if (s->is_cut)
        kin_app_log("the answer reached its token limit");
}

// Sends a message and shows the answer. A partial answer stays in the conversation unless it is empty.
static void ask(chat *c, kin_str text) {
    kin_chat_stream answer = {0};
    view v = {.asked = kin_clock_now(), .wrap.put = put_text};
    kin_err err;
    json_t *asked = kin_conversation_ask(c->o->conversation, text);
    if (!asked) {
        kin_app_log("there is no message to answer");
        return;
    }
    kin_http_client_end end = kin_chat_client_ask(c->o->client, asked, &answer, on_grown, &v, &err);
    end_view(&v, &answer);
    report_end(c, end, &answer, text.at != NULL, &err);
    if (answer.text.len > 0 || end == KIN_HTTP_CLIENT_DONE)
        kin_conversation_answer(c->o->conversation, asked, kin_text_str(&answer.text));
    else
        json_decref(asked);
    if (c->o->stats && end == KIN_HTTP_CLIENT_DONE) show_stats(&v, &answer);
    printf("\n");
    fflush(stdout);
    kin_chat_stream_fini(&answer);
}

// ---- commands

static void set_system(chat *c, const char *rest) {
    kin_conversation_set_system(c->o->conversation, (kin_str){rest, strlen(rest)});
    kin_app_log("%s", rest[0] ? "the system prompt is set" : "the system prompt is removed");
}

static void regenerate(chat *c, const char *rest) {
    (void)rest;
    ask(c, (kin_str){NULL, 0});
}

static void save(chat *c, const char *rest) {
    kin_err err;
    if (kin_conversation_save(c->o->conversation, rest, &err) == 0)
        kin_app_log("saved %s, %zu messages", rest, json_array_size(c->o->conversation->messages));
    else
        kin_app_log("%s", err.text);
}

static void load(chat *c, const char *rest) {
    kin_err err;
    size_t n;
    if (kin_conversation_load(c->o->conversation, rest, &n, &err) == 0)
        kin_app_log("loaded %zu messages from %s", n, rest);
    else
        kin_app_log("%s", err.text);
}

static void clear(chat *c, const char *rest) {
    (void)rest;
    kin_conversation_clear(c->o->conversation);
    kin_app_log("started a new conversation");
}

static void quit(chat *c, const char *rest) {
    (void)rest;
    c->is_over = true;
}

static void help(chat *c, const char *rest);

static const struct {
    const char *name, *operand, *help;
    void (*run)(chat *c, const char *rest);
} commands[] = {
    {"system", "TEXT", "set the system prompt; without TEXT, remove it", set_system},
    {"regen", "", "answer the last message again", regenerate},
    {"save", "FILE", "save the conversation to a file (JSON)", save},
    {"load", "FILE", "continue the conversation in a file", load},
    {"clear", "", "start a new conversation", clear},
    {"help", "", "show this help", help},
    {"quit", "", "end the chat; also Ctrl-D", quit},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(chat *c, const char *rest) {
    (void)c, (void)rest;
    for (int i = 0; i < N_COMMANDS; i++) printf("  /%-6s %-5s %s\n", commands[i].name, commands[i].operand, commands[i].help);
    printf("End a line with \\, or put text between two \"\"\", to continue on the next line. Alt-Enter inserts a new line.\n"
           "Ctrl-C stops an answer. Up and Down: earlier messages. Put a space before a / to send it as a message.\n\n");
}

// Handles "/name rest". True if it is a command, or was meant to be one.
static bool handle_command(chat *c, kin_str text) {
    size_t n = 1;
    while (n < text.len && text.at[n] >= 'a' && text.at[n] <= 'z') n++;
    bool has_rest = n < text.len;
    if (text.len == 0 || text.at[0] != '/' || n == 1 || (has_rest && text.at[n] != ' ' && text.at[n] != '\n')) return false;
    char *rest = strndup(text.at + n + has_rest, text.len - n - has_rest);
    int i = 0;
    while (i < N_COMMANDS && (strlen(commands[i].name) != n - 1 || memcmp(commands[i].name, text.at + 1, n - 1) != 0)) i++;
    if (i == N_COMMANDS)
        kin_app_log("unknown command '%.*s'; /help lists all commands", (int)(n < 20 ? n : 20), text.at);
    else if (rest)
        commands[i].run(c, rest);
    free(rest);
    return true;
}

// ----

static bool is_blank(kin_str text) {
    for (size_t i = 0; i < text.len; i++) {
        if (!strchr(" \t\n", text.at[i])) return false;
    }
    return true;
}

static void talk(chat *c) {
    bool may_end = false;
    while (!c->is_over && !atomic_load(&kin_app_stop)) {
        kin_str text;
        is_interrupted = 0;
        kin_line_outcome outcome = kin_line_editor_read(c->editor, &text);
        c->is_over = outcome == KIN_LINE_END || (outcome == KIN_LINE_INTERRUPTED && may_end);
        may_end = outcome == KIN_LINE_INTERRUPTED;
        if (!c->is_over && may_end) kin_app_log("press Ctrl-C again, Ctrl-D or type /quit to end the chat");
        if (outcome == KIN_LINE_TEXT && !is_blank(text) && !handle_command(c, text)) ask(c, text);
    }
}

static void greet(const kin_chat_loop_options *o) {
    char ctx[64] = "";
    if (o->facts.n_ctx > 0) snprintf(ctx, sizeof ctx, ", %d tokens of context", o->facts.n_ctx);
    kin_app_log("%s%s; /help lists the commands", o->facts.model[0] ? o->facts.model : "unnamed model", ctx);
    if (o->facts.lacks_template) kin_app_log("this model has no chat template: its prompt is the concatenated messages");
}

int kin_chat_loop_run(const kin_chat_loop_options *o, kin_err *err) {
    chat c = {.o = o};
    greet(o);
    if (kin_line_editor_open(&c.editor, err) != 0) return KIN_FAIL;
    // SA_RESTART: stdio treats an interrupted write as an error. Waits still wake up, because they are in poll, which is never
    // restarted.
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, NULL);
    talk(&c);
    kin_line_editor_close(c.editor);
    return 0;
}
