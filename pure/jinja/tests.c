// Tests: the functions after "is".
#include "pure/jinja/functions.h"
#include "pure/jinja/letters.h"
#include "pure/jinja/lexer.h"
#include "pure/text/utf8.h"

#define TEST(name)                                                                                                               \
    static const kin_value *name(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all)
#define UNUSED (void)state, (void)self, (void)arg, (void)all

TEST(is_defined) {
    UNUSED;
    return kin_value_of_bool(self->kind != KIN_KIND_UNDEFINED);
}

TEST(is_undefined) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_UNDEFINED);
}

TEST(is_none) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_NONE);
}

TEST(is_true) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_BOOL && self->b);
}

TEST(is_false) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_BOOL && !self->b);
}

TEST(is_boolean) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_BOOL);
}

TEST(is_integer) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_INT);
}

TEST(is_float) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_FLOAT);
}

TEST(is_number) {
    UNUSED;
    return kin_value_of_bool(kin_value_is_number(self));
}

TEST(is_string) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_STRING);
}

TEST(is_mapping) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_DICT);
}

TEST(is_iterable) {
    UNUSED;
    return kin_value_of_bool(kin_value_is_sequence(self) || self->kind == KIN_KIND_STRING || self->kind == KIN_KIND_DICT ||
                             self->kind == KIN_KIND_UNDEFINED || self->kind == KIN_KIND_LOOP);
}

// As in Jinja: has a length and subscripts, which includes dicts and undefined values.
TEST(is_sequence) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_LIST || self->kind == KIN_KIND_TUPLE || self->kind == KIN_KIND_RANGE ||
                             self->kind == KIN_KIND_STRING || self->kind == KIN_KIND_DICT || self->kind == KIN_KIND_UNDEFINED);
}

TEST(is_callable) {
    UNUSED;
    return kin_value_of_bool(self->kind == KIN_KIND_FUNCTION || self->kind == KIN_KIND_MACRO || self->kind == KIN_KIND_LOOP ||
                             self->kind == KIN_KIND_UNDEFINED);
}

TEST(is_same) {
    UNUSED;
    bool constant = self->kind == KIN_KIND_NONE || self->kind == KIN_KIND_BOOL;
    return kin_value_of_bool(self == arg[0] ||
                             (constant && self->kind == arg[0]->kind && kin_value_truth(self) == kin_value_truth(arg[0])));
}

static const kin_value *compared(kin_state *state, uint16_t op, const kin_value *a, const kin_value *b) {
    int holds = kin_compare(state, op, a, b);
    return holds < 0 ? NULL : kin_value_of_bool(holds);
}

TEST(is_equal) {
    UNUSED;
    return compared(state, KIN_OP('=', '='), self, arg[0]);
}

TEST(is_not_equal) {
    UNUSED;
    return compared(state, KIN_OP('!', '='), self, arg[0]);
}

TEST(is_less) {
    UNUSED;
    return compared(state, '<', self, arg[0]);
}

TEST(is_less_or_equal) {
    UNUSED;
    return compared(state, KIN_OP('<', '='), self, arg[0]);
}

TEST(is_greater) {
    UNUSED;
    return compared(state, '>', self, arg[0]);
}

TEST(is_greater_or_equal) {
    UNUSED;
    return compared(state, KIN_OP('>', '='), self, arg[0]);
}

TEST(is_in) {
    UNUSED;
    return compared(state, KIN_OP_IN, self, arg[0]);
}

// self % divisor == rest
static const kin_value *has_rest(kin_state *state, const kin_value *self, const kin_value *divisor, int64_t expected) {
    const kin_value *rest = kin_binary(state, '%', self, divisor);
    return rest ? kin_value_of_bool(kin_value_is_number(rest) && kin_value_number(rest) == (double)expected) : NULL;
}

TEST(is_divisible) {
    UNUSED;
    return has_rest(state, self, arg[0], 0);
}

TEST(is_odd) {
    UNUSED;
    return has_rest(state, self, &(const kin_value){.kind = KIN_KIND_INT, .i = 2}, 1);
}

TEST(is_even) {
    UNUSED;
    return has_rest(state, self, &(const kin_value){.kind = KIN_KIND_INT, .i = 2}, 0);
}

// str.isupper() and str.islower(): there is a letter of that case, and none of the other case.
static const kin_value *has_case(kin_state *state, const kin_value *self, uint32_t (*own)(uint32_t),
                                 uint32_t (*other)(uint32_t)) {
    const kin_value *text = kin_str_of(state, self);
    bool any = false;
    for (size_t i = 0; text && i < text->s.len;) {
        int len = kin_utf8_len(text->s.at + i, text->s.len - i);
        uint32_t c = kin_utf8_get(text->s.at + i, len);
        if (own(c) != c) return &kin_the_false;
        any |= other(c) != c;
        i += (size_t)len;
    }
    return text && kin_values_charge(state->values, text->s.len / 8) ? kin_value_of_bool(any) : NULL;
}

TEST(is_upper) {
    UNUSED;
    return has_case(state, self, kin_upper_of, kin_lower_of);
}

TEST(is_lower) {
    UNUSED;
    return has_case(state, self, kin_lower_of, kin_upper_of);
}

static const kin_function tests[] = {
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"boolean", "", 0, is_boolean},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"number", "", 0, is_number},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"iterable", "", 0, is_iterable},
    {"sequence", "", 0, is_sequence},
    {"callable", "", 0, is_callable},
    {"sameas", "other ", 1, is_same},
    {"equalto", "b ", 1, is_equal},
    {"eq", "b ", 1, is_equal},
    {"==", "b ", 1, is_equal},
    {"ne", "b ", 1, is_not_equal},
    {"!=", "b ", 1, is_not_equal},
    {"lt", "b ", 1, is_less},
    {"lessthan", "b ", 1, is_less},
    {"<", "b ", 1, is_less},
    {"le", "b ", 1, is_less_or_equal},
    {"<=", "b ", 1, is_less_or_equal},
    {"gt", "b ", 1, is_greater},
    {"greaterthan", "b ", 1, is_greater},
    {">", "b ", 1, is_greater},
    {"ge", "b ", 1, is_greater_or_equal},
    {">=", "b ", 1, is_greater_or_equal},
    {"in", "seq ", 1, is_in},
    {"divisibleby", "num ", 1, is_divisible},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"upper", "", 0, is_upper},
    {"lower", "", 0, is_lower},
    {NULL, NULL, 0, NULL},
};

const kin_function *kin_test_find(kin_str name) {
    return kin_function_find(tests, name);
}
