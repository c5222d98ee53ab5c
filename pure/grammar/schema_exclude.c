// Determines whether alternatives of a oneOf exclude each other: by type, by values, by bounds, or by a property that one
// requires and the other forbids or gives other values.
#include <stdlib.h>

#include "pure/grammar/schema_combine.h"

enum { MAX_DEPTH = 3, MAX_STEPS = 2000 }; // nested properties; comparisons for one pair of alternatives

static bool excludes(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other, int depth, int *n_steps);

// True if no value of the enum or const of `of` is valid for both.
static bool values_exclude(const kin_json *json, const kin_schema_list *of, const kin_schema_facts *facts,
                           const kin_schema_list *other, const kin_schema_facts *other_facts) {
    bool is_const, fits, fits_other;
    const kin_json_value *values = kin_schema_values(json, of, &is_const);
    for (const kin_json_value *v = is_const ? values : kin_json_first(json, values); v;
         v = is_const ? NULL : kin_json_next(json, v)) {
        if (kin_schema_value_fits(json, of, facts, v, &fits, NULL) != 0) return false;
        if (kin_schema_value_fits(json, other, other_facts, v, &fits_other, NULL) != 0) return false;
        if (fits && fits_other) return false;
    }
    return true;
}

static bool property_excludes(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other, kin_str name,
                              int depth, int *n_steps) {
    kin_schema_list ours, theirs, rest;
    uint32_t entry;
    unsigned flag;
    bool others_allowed, is_ours = false;
    if (kin_schema_property(json, other, name, &theirs, NULL) != 0 || kin_schema_property(json, written, name, &ours, NULL) != 0)
        return false;
    if (kin_schema_list_expand(&theirs, json, NULL) != 0 || kin_schema_list_expand(&ours, json, NULL) != 0) return false;
    if (kin_schema_requires(json, written, name)) return theirs.impossible || excludes(json, &ours, &theirs, depth + 1, n_steps);
    if (!kin_schema_requires(json, other, name) || kin_schema_open_choice(json, written, &entry, &flag)) return false;
    if (kin_schema_others(json, written, &others_allowed, &rest, NULL) != 0) return false;
    for (uint32_t i = 0; i < written->n; i++) {
        const kin_json_value *properties = kin_schema_word(json, written, i, "properties");
        is_ours |= properties && kin_json_get(json, properties, name.at, name.len);
    }
    return !is_ours && !others_allowed; // it is never written
}

static bool objects_exclude(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other, int depth,
                            int *n_steps) {
    const kin_schema_list *lists[] = {written, other};
    bool found = false;
    for (int k = 0; k < 2 && depth < MAX_DEPTH; k++) {
        kin_str *names;
        size_t n;
        if (kin_schema_names(json, lists[k], &names, &n, NULL) != 0) return false;
        for (size_t i = 0; i < n && !found && ++*n_steps < MAX_STEPS; i++)
            found = property_excludes(json, written, other, names[i], depth, n_steps);
        free(names);
    }
    return found;
}

static bool excludes(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other, int depth,
                     int *n_steps) {
    kin_schema_facts ours, theirs;
    if (kin_schema_get_facts(json, written, &ours, NULL) != 0 || kin_schema_get_facts(json, other, &theirs, NULL) != 0)
        return false;
    unsigned common = ours.types & theirs.types;
    if (common == 0) return true;
    if (ours.has_values) return values_exclude(json, written, &ours, other, &theirs);
    if (theirs.has_values) return values_exclude(json, other, &theirs, written, &ours);
    if (common & (KIN_TYPE_NULL | KIN_TYPE_BOOLEAN)) return false;
    if (common & KIN_TYPE_NUMBER && kin_number_range_overlap(&ours.numbers, &theirs.numbers)) return false;
    if (common & KIN_TYPE_STRING && ours.min_length <= theirs.max_length && theirs.min_length <= ours.max_length) return false;
    if (common & KIN_TYPE_ARRAY && ours.min_items <= theirs.max_items && theirs.min_items <= ours.max_items) return false;
    return !(common & KIN_TYPE_OBJECT) || objects_exclude(json, written, other, depth, n_steps);
}

bool kin_schema_excludes(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other) {
    int n_steps = 0;
    return excludes(json, written, other, 0, &n_steps);
}
