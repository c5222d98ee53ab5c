#include "testkit/json_value.h"

#include <string.h>

static kin_value *dict_of(kin_values *values, const json_t *object, bool has_tokens) {
    kin_value *dict = kin_value_dict(values);
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)object, key, item) {
        size_t len = strlen(key);
        bool token = has_tokens && json_is_string(item) && len > 6 && strcmp(key + len - 6, "_token") == 0;
        kin_value *value = token
                               ? kin_value_string(values, json_string_value(item), json_string_length(item), KIN_ORIGIN_TEMPLATE)
                               : json_value(values, item);
        kin_value_put(values, dict, key, len, value);
    }
    return dict;
}

static kin_value *list_of(kin_values *values, const json_t *array) {
    kin_value *list = kin_value_list(values);
    for (size_t i = 0; i < json_array_size(array); i++)
        kin_value_append(values, list, json_value(values, json_array_get(array, i)));
    return list;
}

kin_value *json_value(kin_values *values, const json_t *json) {
    switch (json_typeof(json)) {
    case JSON_OBJECT: return dict_of(values, json, false);
    case JSON_ARRAY: return list_of(values, json);
    case JSON_STRING: return kin_value_string(values, json_string_value(json), json_string_length(json), KIN_ORIGIN_INPUT);
    case JSON_INTEGER: return kin_value_int(values, json_integer_value(json));
    case JSON_REAL: return kin_value_float(values, json_real_value(json));
    case JSON_TRUE: return kin_value_bool(values, true);
    case JSON_FALSE: return kin_value_bool(values, false);
    default: return kin_value_none(values);
    }
}

kin_value *json_variables(kin_values *values, const json_t *object) {
    return dict_of(values, object, true);
}
