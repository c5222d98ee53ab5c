#include "pure/jinja/slice.h"

// Evaluates a bound: a negative one counts from the end; the result is clamped to [low, high].
static int64_t clamp(const kin_value *bound, int64_t n, int64_t missing, int64_t low, int64_t high) {
    if (bound->kind == KIN_KIND_NONE) return missing;
    int64_t i = kin_value_integer(bound);
    if (i < 0) i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static const kin_value *pick_items(kin_state *state, const kin_value *of, int64_t begin, int64_t step, size_t n) {
    kin_items picked = {.n = n, .at = kin_values_alloc(state->values, n * sizeof *picked.at)};
    if (!picked.at) return NULL;
    for (size_t i = 0; i < n; i++, begin += step) picked.at[i] = of->items->at[begin];
    return kin_value_of_items(state->values, of->kind, picked);
}

static const kin_value *pick_chars(kin_state *state, const kin_string *s, int64_t begin, int64_t step, size_t n) {
    if (step != 1) return kin_string_pick(state->values, s, begin, step, n);
    size_t from = kin_string_offset(state->values, s, (size_t)begin);
    kin_string rest = kin_string_part(s, from, s->len);
    return kin_value_of_string(state->values, kin_string_part(&rest, 0, kin_string_offset(state->values, &rest, n)));
}

const kin_value *kin_slice(kin_state *state, const kin_value *of, const kin_value *const bounds[3]) {
    bool string = of->kind == KIN_KIND_STRING;
    if (!string && of->kind != KIN_KIND_LIST && of->kind != KIN_KIND_TUPLE && of->kind != KIN_KIND_RANGE)
        return kin_state_fail(state, "a %s cannot be sliced", kin_value_type_name(of));
    for (int i = 0; i < 3; i++)
        if (bounds[i]->kind != KIN_KIND_NONE && !kin_value_is_integer(bounds[i]))
            return kin_state_fail(state, "a slice needs integers, not a %s", kin_value_type_name(bounds[i]));
    int64_t n = (int64_t)(string ? kin_string_n_chars(state->values, &of->s) : of->items->n);
    int64_t step = bounds[2]->kind == KIN_KIND_NONE ? 1 : kin_value_integer(bounds[2]);
    if (step == 0) return kin_state_fail(state, "the step of a slice must not be 0");
    bool back = step < 0;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    int64_t begin = clamp(bounds[0], n, back ? n - 1 : 0, low, high);
    int64_t end = clamp(bounds[1], n, back ? -1 : n, low, high);
    if (step > n) step = n + 1; // same result, without overflow
    if (step < -n) step = -n - 1;
    size_t count = 0;
    if (!back && begin < end) count = (size_t)((end - begin - 1) / step + 1);
    if (back && begin > end) count = (size_t)((begin - end - 1) / -step + 1);
    if (string) return pick_chars(state, &of->s, begin < 0 ? 0 : begin, step, count);
    return pick_items(state, of, begin, step, count);
}
