#include "serve/apis/llama/text_tools.h"

#include <stdlib.h>

#include "serve/json_out.h"
#include "serve/request/fields.h"
#include "serve/request/request_table.h"

static int get_bool(const kin_fields *fields, const char *name, bool *out, kin_api_error *err) {
    const json_t *value;
    if (kin_fields_get(fields, name, KIN_FIELD_BOOL, &value, err) < 0) return KIN_FAIL;
    if (value) *out = json_is_true(value);
    return 0;
}

static int read_tokenize(kin_tokenize_request *out, kin_api_error *err) {
    kin_fields fields;
    const json_t *content;
    if (kin_fields_open(&fields, out->body, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&fields, "content", KIN_FIELD_STRING, &content, err) < 0) return KIN_FAIL;
    if (content) out->content = (kin_str){json_string_value(content), json_string_length(content)};
    if (get_bool(&fields, "add_special", &out->add_special, err) < 0) return KIN_FAIL;
    if (get_bool(&fields, "parse_special", &out->parse_special, err) < 0) return KIN_FAIL;
    return get_bool(&fields, "with_pieces", &out->with_pieces, err);
}

int kin_tokenize_parse(kin_tokenize_request *out, json_t *body, kin_api_error *err) {
    *out = (kin_tokenize_request){.body = body, .content = {"", 0}, .parse_special = true};
    if (read_tokenize(out, err) == 0) return 0;
    kin_tokenize_fini(out);
    return KIN_FAIL;
}

void kin_tokenize_fini(kin_tokenize_request *request) {
    json_decref(request->body);
    *request = (kin_tokenize_request){0};
}

static json_t *piece_json(kin_str piece) {
    json_t *text = json_stringn(piece.len ? piece.at : "", piece.len);
    if (text) return text;
    json_t *bytes = json_array();
    for (size_t i = 0; i < piece.len; i++) json_array_append_new(bytes, json_integer((unsigned char)piece.at[i]));
    return bytes;
}

json_t *kin_tokenize_answer(const int32_t *ids, const kin_str *pieces, int n) {
    json_t *tokens = json_array();
    for (int i = 0; i < n; i++) {
        json_t *id = json_integer(ids[i]);
        json_array_append_new(tokens, pieces ? json_pack("{s:o, s:o}", "id", id, "piece", piece_json(pieces[i])) : id);
    }
    return json_pack("{s:o}", "tokens", tokens);
}

static int read_ids(int32_t **ids, int *n, const json_t *body, kin_api_error *err) {
    kin_fields fields;
    const json_t *tokens;
    size_t i;
    json_t *one;
    int64_t id;
    if (kin_fields_open(&fields, body, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&fields, "tokens", KIN_FIELD_ARRAY, &tokens, err) < 0) return KIN_FAIL;
    if (json_array_size(tokens) == 0) return 0;
    if (json_array_size(tokens) > KIN_DETOKENIZE_MAX)
        return kin_fields_wrong(&fields, "tokens", err, 400, "more than %d tokens", KIN_DETOKENIZE_MAX);
    *ids = calloc(json_array_size(tokens), sizeof **ids);
    if (!*ids) return kin_api_error_memory(err);
    json_array_foreach(tokens, i, one) {
        if (kin_request_whole("tokens", one, 0, INT32_MAX, &id, err) < 0) return KIN_FAIL;
        (*ids)[(*n)++] = (int32_t)id;
    }
    return 0;
}

int kin_detokenize_parse(int32_t **ids, int *n, json_t *body, kin_api_error *err) {
    *ids = NULL;
    *n = 0;
    int rc = read_ids(ids, n, body, err);
    json_decref(body);
    if (rc == 0) return 0;
    free(*ids);
    *ids = NULL;
    *n = 0;
    return KIN_FAIL;
}

static json_t *text_answer(const char *key, kin_str text) {
    json_t *o = json_object();
    json_object_set_new(o, key, kin_json_text(text));
    return o;
}

json_t *kin_detokenize_answer(kin_str content) {
    return text_answer("content", content);
}

json_t *kin_apply_template_answer(kin_str prompt) {
    return text_answer("prompt", prompt);
}
