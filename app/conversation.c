#include "app/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/json_out.h"
#include "sys/whole_file.h"

enum { MAX_FILE = 64 << 20, PATH_BYTES = 4096 };

int kin_conversation_open(kin_conversation *c, kin_err *err) {
    c->messages = json_array();
    return c->messages ? 0 : kin_err_set(err, "out of memory");
}

void kin_conversation_close(kin_conversation *c) {
    json_decref(c->messages);
    c->messages = NULL;
}

static json_t *message_of(const char *role, kin_str text) {
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content", kin_json_text(text));
    return message;
}

static bool is_by(const json_t *message, const char *role) {
    const char *by = json_string_value(json_object_get(message, "role"));
    return by && strcmp(by, role) == 0;
}

void kin_conversation_set_system(kin_conversation *c, kin_str text) {
    if (is_by(json_array_get(c->messages, 0), "system")) json_array_remove(c->messages, 0);
    if (text.len > 0) json_array_insert_new(c->messages, 0, message_of("system", text));
}

void kin_conversation_clear(kin_conversation *c) {
    json_t *system = json_array_get(c->messages, 0);
    bool keeps = is_by(system, "system");
    while (json_array_size(c->messages) > keeps) json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

json_t *kin_conversation_ask(const kin_conversation *c, kin_str text) {
    json_t *asked = json_copy(c->messages);
    if (text.at) {
        json_array_append_new(asked, message_of("user", text));
        return asked;
    }
    size_t n = json_array_size(asked);
    while (n > 0 && !is_by(json_array_get(asked, n - 1), "user")) json_array_remove(asked, --n);
    if (n > 0) return asked;
    json_decref(asked);
    return NULL;
}

void kin_conversation_answer(kin_conversation *c, json_t *asked, kin_str text) {
    json_array_append_new(asked, message_of("assistant", text));
    json_decref(c->messages);
    c->messages = asked;
}

// ---- files

static int find_path(char path[PATH_BYTES], const char *typed, kin_err *err) {
    const char *home = getenv("HOME");
    bool is_below = strncmp(typed, "~/", 2) == 0 && home;
    if (!typed[0]) return kin_err_set(err, "a file name is missing");
    int n = snprintf(path, PATH_BYTES, "%s%s", is_below ? home : "", is_below ? typed + 1 : typed);
    return n < PATH_BYTES ? 0 : kin_err_set(err, "%.50s...: the path is too long", typed);
}

static bool is_message(const json_t *m) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const json_t *content = json_object_get(m, "content");
    if (!json_is_string(content) && !json_is_array(content) && !json_object_get(m, "tool_calls")) return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (is_by(m, roles[i])) return true;
    }
    return false;
}

static int check_messages(const json_t *messages, const char *path, kin_err *err) {
    size_t i;
    json_t *m;
    if (!json_is_array(messages)) return kin_err_set(err, "%s: contains no array \"messages\"", path);
    json_array_foreach(messages, i, m) {
        if (!is_message(m)) return kin_err_set(err, "%s: message %zu has an unknown role or no content", path, i + 1);
    }
    return 0;
}

// Reads the messages of a file. KIN_ABSENT: there is no file.
static int read_messages(json_t **out, const char *path, kin_err *err) {
    uint8_t *bytes;
    size_t n;
    json_error_t where;
    *out = NULL;
    int rc = kin_whole_file_read(path, MAX_FILE, &bytes, &n, err);
    if (rc != 0) return rc;
    json_t *all = json_loadb((const char *)bytes, n, 0, &where);
    free(bytes);
    if (!all) return kin_err_set(err, "%s: line %d: %s", path, where.line, where.text);
    json_t *messages = json_is_array(all) ? all : json_object_get(all, "messages");
    rc = check_messages(messages, path, err);
    if (rc == 0) *out = json_incref(messages);
    json_decref(all);
    return rc;
}

int kin_conversation_save(const kin_conversation *c, const char *typed, kin_err *err) {
    char path[PATH_BYTES];
    json_t *old;
    kin_err why;
    if (find_path(path, typed, err) != 0) return KIN_FAIL;
    int rc = read_messages(&old, path, &why);
    json_decref(old);
    if (rc == KIN_FAIL) return kin_err_set(err, "%.300s exists but is not a conversation file; choose another name", path);
    json_t *all = json_object();
    json_object_set(all, "messages", c->messages);
    char *text = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    rc = text ? kin_whole_file_write(path, text, strlen(text), err) : kin_err_set(err, "out of memory");
    free(text);
    return rc;
}

int kin_conversation_load(kin_conversation *c, const char *typed, size_t *n, kin_err *err) {
    char path[PATH_BYTES];
    json_t *messages;
    if (find_path(path, typed, err) != 0) return KIN_FAIL;
    int rc = read_messages(&messages, path, err);
    if (rc == KIN_ABSENT) return kin_err_set(err, "%.300s: no such file", path);
    if (rc != 0) return KIN_FAIL;
    *n = json_array_size(messages);
    json_decref(c->messages);
    c->messages = messages;
    return 0;
}
