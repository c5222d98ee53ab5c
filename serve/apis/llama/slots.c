#include "serve/apis/llama/slots.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/json_out.h"
#include "serve/refuse.h"
#include "serve/request/request.h"
#include "sys/whole_file.h"

enum {
    MAX_BODY = 16 << 10, // bytes
    MAX_NAME = 240,      // bytes: a file being written has a longer name
    MAX_PATH = 4096,
    TOKEN_TEXT = 12, // maximum bytes of a token in a file
    FRAME_TEXT = 256,
    FORMAT = 1
};

typedef struct action {
    kin_exchange_data data;
    kin_http_exchange *x; // NULL: the client is gone
    kin_slots_shared shared;
    int id;
    kin_time begun;
    uv_work_t work;
    char name[MAX_NAME + 1], path[MAX_PATH];
    int32_t *tokens; // [n]
    int n;
    size_t n_file; // bytes
    kin_job *job;  // the job that restores
    int rc;
    kin_api_error error;
} action;

// ---- the answers

static void end(action *a) {
    --*a->shared.n_open;
    free(a->tokens);
    free(a);
}

static void answer(action *a, json_t *json) {
    kin_text_buffer body = {0};
    kin_json_put(json, &body);
    if (a->x) kin_http_reply(a->x, 200, "application/json; charset=utf-8", body.at ? body.at : "", body.len);
    kin_text_fini(&body);
    end(a);
}

static void refuse(action *a) {
    if (a->x) kin_refuse(a->x, NULL, &a->error);
    end(a);
}

static double took_ms(const action *a) {
    return kin_clock_ms(a->begun, kin_clock_now());
}

static void gone(void *self) {
    action *a = self;
    a->x = NULL;
    if (a->job) kin_service_cancel(a->shared.service, a->job);
}

// The log gets the path; clients need not know it.
static int cannot(action *a, const char *what, const kin_err *why) {
    kin_log(KIN_LOG_WARN, "slot file: %s", why->text);
    return kin_api_error_set(&a->error, 500, NULL, "the file %s cannot be %s; see the server's log", a->name, what);
}

// ---- save: reads the tokens of the tag's last sequence, then writes a file

static void write_file(uv_work_t *work) {
    action *a = work->data;
    kin_text_buffer text = {0};
    kin_err err;
    json_t *ids = json_array();
    for (int i = 0; i < a->n; i++) json_array_append_new(ids, json_integer(a->tokens[i]));
    kin_json_put(json_pack("{s:i, s:i, s:o}", "kin_slot", FORMAT, "n_vocab", a->shared.n_vocab, "tokens", ids), &text);
    a->n_file = text.len;
    if (text.failed)
        a->rc = kin_api_error_memory(&a->error);
    else if (kin_whole_file_write(a->path, text.at, text.len, &err) != 0)
        a->rc = cannot(a, "written", &err);
    kin_text_fini(&text);
}

static void file_is_written(uv_work_t *work, int status) {
    action *a = work->data;
    if (status != 0) a->rc = kin_api_error_set(&a->error, 503, NULL, "the server is shutting down");
    if (a->rc != 0)
        refuse(a);
    else
        answer(a, json_pack("{s:i, s:s, s:i, s:I, s:{s:f}}", "id_slot", a->id, "filename", a->name, "n_saved", a->n, "n_written",
                            (json_int_t)a->n_file, "timings", "save_ms", took_ms(a)));
}

static void store_sequence(action *a, kin_job_event *event) {
    a->tokens = event->tokens;
    a->n = event->n_done;
    if (a->n > 0) {
        uv_queue_work(a->shared.loop, &a->work, write_file, file_is_written);
        return;
    }
    kin_api_error_set(&a->error, 400, NULL, "slot %d has no finished sequence in the cache: there is nothing to save", a->id);
    refuse(a);
}

// ---- restore: reads a file, then submits a job that generates nothing

static int read_tokens(action *a, const json_t *file) {
    const json_t *ids = json_object_get(file, "tokens");
    size_t n = json_array_size(ids);
    if (json_integer_value(json_object_get(file, "kin_slot")) != FORMAT || n == 0)
        return kin_api_error_set(&a->error, 400, "filename", "%s is not a slot file", a->name);
    if (json_integer_value(json_object_get(file, "n_vocab")) != a->shared.n_vocab)
        return kin_api_error_set(&a->error, 400, "filename", "%s was saved by a model with another vocabulary", a->name);
    if (n > (size_t)a->shared.n_ctx)
        return kin_api_error_set(&a->error, 400, "filename", "%s has %zu tokens, but the context is %d", a->name, n,
                                 a->shared.n_ctx);
    a->tokens = malloc(n * sizeof *a->tokens);
    if (!a->tokens) return kin_api_error_memory(&a->error);
    for (a->n = 0; a->n < (int)n; a->n++) {
        const json_t *id = json_array_get(ids, (size_t)a->n);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= a->shared.n_vocab)
            return kin_api_error_set(&a->error, 400, "filename", "%s is damaged: its token %d is out of range", a->name, a->n);
        a->tokens[a->n] = (int32_t)json_integer_value(id);
    }
    return 0;
}

static void read_file(uv_work_t *work) {
    action *a = work->data;
    uint8_t *bytes;
    kin_err err;
    size_t most = FRAME_TEXT + (size_t)a->shared.n_ctx * TOKEN_TEXT;
    int rc = kin_whole_file_read(a->path, most, &bytes, &a->n_file, &err);
    if (rc != 0) {
        a->rc = rc == KIN_ABSENT ? kin_api_error_set(&a->error, 404, "filename", "slot file %s not found", a->name)
                                 : cannot(a, "read", &err);
        return;
    }
    json_t *file = json_loadb((const char *)bytes, a->n_file, 0, NULL);
    a->rc = read_tokens(a, file);
    json_decref(file);
    free(bytes);
}

static int restore(action *a) {
    kin_job_options o = {.prompt = a->tokens, .n_prompt = a->n, .n_probs = -1, .tag = a->id, .restores = true, .user = a};
    kin_err err;
    if (!kin_service_has_room(a->shared.service, 1))
        return kin_api_error_set(&a->error, 429, NULL, "the queue is full: try again in a moment");
    a->tokens = NULL;
    if (kin_job_new(&a->job, &o, &err) != 0) return kin_api_error_memory(&a->error);
    kin_service_submit(a->shared.service, a->job);
    return 0;
}

static void file_is_read(uv_work_t *work, int status) {
    action *a = work->data;
    if (status != 0) a->rc = kin_api_error_set(&a->error, 503, NULL, "the server is shutting down");
    if (!a->x || a->rc != 0 || restore(a) != 0) refuse(a);
}

static void handle_end(action *a, kin_job_event *event) {
    a->job = NULL;
    kin_job_free(event->job);
    if (event->how == KIN_JOB_LENGTH) {
        answer(a, json_pack("{s:i, s:s, s:i, s:I, s:{s:f}}", "id_slot", a->id, "filename", a->name, "n_restored", a->n, "n_read",
                            (json_int_t)a->n_file, "timings", "restore_ms", took_ms(a)));
        return;
    }
    kin_api_error_set(&a->error, 503, NULL, "%s", event->how == KIN_JOB_FAILED ? event->why.text : "the request was cancelled");
    refuse(a);
}

// ---- requests

// Returns the number in "/slots/12"; -1: not a number.
static int id_of(kin_str path) {
    static const char folder[] = "/slots/";
    size_t i = sizeof folder - 1;
    int id = path.len > i ? 0 : -1;
    for (; i < path.len && id >= 0; i++) {
        int digit = path.at[i] - '0';
        id = digit < 0 || digit > 9 || id > (INT_MAX - digit) / 10 ? -1 : 10 * id + digit;
    }
    return id;
}

// Reads a plain file name in the folder: requests reach no other file.
static int read_name(action *a, kin_http_exchange *x) {
    kin_str text = kin_http_body(x);
    if (text.len > MAX_BODY) // it is parsed on the loop's thread
        return kin_api_error_set(&a->error, 413, NULL, "the body is larger than 16 KiB");
    json_t *body = kin_request_parse(text, &a->error);
    const json_t *given = json_object_get(body, "filename");
    const char *name = json_string_value(given);
    bool is_plain = name && strlen(name) == json_string_length(given); // no NUL inside
    is_plain = is_plain && name[0] && name[0] != '.' && strlen(name) <= MAX_NAME && !strpbrk(name, "/\\:");
    int rc = !body ? KIN_FAIL : 0;
    for (const char *c = name; is_plain && *c; c++) is_plain = (unsigned char)*c >= ' ' && *c != 0x7f;
    if (rc == 0 && !is_plain)
        rc = kin_api_error_set(&a->error, 400, "filename", "filename must be a plain name without a directory");
    if (rc == 0) snprintf(a->name, sizeof a->name, "%s", name);
    if (rc == 0 && snprintf(a->path, sizeof a->path, "%s/%s", a->shared.save_path, name) >= (int)sizeof a->path)
        rc = kin_api_error_set(&a->error, 400, "filename", "its path is too long");
    json_decref(body);
    return rc;
}

static int start(action *a, kin_http_exchange *x, kin_str what) {
    bool saves = kin_str_eq(what, "save"), erases = kin_str_eq(what, "erase");
    if (!erases && !a->shared.save_path)
        return kin_api_error_set(&a->error, 501, NULL, "slots cannot be saved: start the server with --slot-save-path FOLDER");
    if (!erases && read_name(a, x) != 0) return KIN_FAIL;
    if (!saves && !erases) {
        uv_queue_work(a->shared.loop, &a->work, read_file, file_is_read);
        return 0;
    }
    int rc = saves ? kin_service_read_sequence(a->shared.service, a->id, a) : kin_service_erase(a->shared.service, a->id, a);
    return rc == 0 ? 0 : kin_api_error_memory(&a->error);
}

void kin_slots_begin(const kin_slots_shared *shared, kin_http_exchange *x) {
    kin_str what = kin_http_query(x, "action");
    int id = id_of(kin_http_path(x));
    action *a = NULL;
    if (id < 0)
        kin_http_reply_error(x, 400, "the slot must be a number: /slots/0?action=erase");
    else if (!kin_str_eq(what, "erase") && !kin_str_eq(what, "save") && !kin_str_eq(what, "restore"))
        kin_http_reply_error(x, 400, "action must be erase, save or restore");
    else if (!(a = calloc(1, sizeof *a)))
        kin_http_reply_error(x, 500, "out of memory");
    if (!a) return;
    *a = (action){.data = {gone, a}, .x = x, .shared = *shared, .id = id, .begun = kin_clock_now(), .work.data = a};
    ++*shared->n_open;
    kin_http_set_data(x, &a->data);
    if (start(a, x, what) != 0) refuse(a);
}

void kin_slots_handle(kin_job_event *event) {
    action *a = event->user;
    if (event->kind == KIN_SEQUENCES_ERASED)
        answer(a, json_pack("{s:i, s:i}", "id_slot", a->id, "n_erased", event->n_done));
    else if (event->kind == KIN_SEQUENCE_READ)
        store_sequence(a, event);
    else if (event->kind == KIN_JOB_ENDED)
        handle_end(a, event);
}
