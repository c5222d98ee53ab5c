// Operators, comparisons and subscripts, with Python's semantics.
#include "pure/jinja/state.h"

#include <math.h>
#include <string.h>

#include "pure/jinja/format.h"
#include "pure/jinja/lexer.h"
#include "pure/jinja/sort.h"
#include "pure/jinja/text.h"

static void *fail_undefined(kin_state *state, const kin_value *value) {
    if (value->name.len == 0) return kin_state_fail(state, "a value is undefined");
    return kin_state_fail(state, "'%.*s' is undefined", KIN_SHOWN(value->name));
}

static const kin_value *undefined_of(kin_state *state, const kin_value *name) {
    kin_value *value = kin_value_new(state->values, KIN_KIND_UNDEFINED);
    if (value && name && name->kind == KIN_KIND_STRING) value->name = (kin_str){name->s.at, name->s.len};
    return value;
}

// ---- arithmetic

static const kin_value *integer(kin_state *state, bool overflows, int64_t i) {
    if (overflows) return kin_state_fail(state, "integer overflow (64 bits)");
    return kin_value_int(state->values, i);
}

static const kin_value *integer_power(kin_state *state, int64_t base, int64_t exponent) {
    int64_t result = 1;
    bool overflows = false;
    if (base == 0 || base == 1) exponent = exponent > 0;
    if (base == -1) exponent = exponent % 2;
    for (; exponent > 0 && !overflows; exponent--) overflows = __builtin_mul_overflow(result, base, &result);
    return integer(state, overflows, result);
}

static const kin_value *integer_binary(kin_state *state, uint16_t op, int64_t a, int64_t b) {
    int64_t result;
    bool overflows;
    switch (op) {
    case '+': overflows = __builtin_add_overflow(a, b, &result); return integer(state, overflows, result);
    case '-': overflows = __builtin_sub_overflow(a, b, &result); return integer(state, overflows, result);
    case '*': overflows = __builtin_mul_overflow(a, b, &result); return integer(state, overflows, result);
    default: break;
    }
    if (b == -1) return op == '%' ? integer(state, false, 0) : integer(state, a == INT64_MIN, -a);
    int64_t quotient = a / b, rest = a % b; // Python rounds the quotient down, and the remainder has the sign of b
    bool adjust = rest != 0 && (rest < 0) != (b < 0);
    return integer(state, false, op == '%' ? rest + (adjust ? b : 0) : quotient - adjust);
}

// Python's % (*quotient: its //) of floats: the remainder has the sign of b, also if it is zero.
static double float_rest(double a, double b, double *quotient) {
    double rest = fmod(a, b), exact = (a - rest) / b;
    if (rest == 0) {
        rest = copysign(0, b);
    } else if ((rest < 0) != (b < 0)) {
        rest += b;
        exact -= 1;
    }
    *quotient = exact == 0 ? copysign(0, a / b) : floor(exact);
    if (exact - *quotient > 0.5) *quotient += 1;
    return rest;
}

static const kin_value *float_binary(kin_state *state, uint16_t op, double a, double b) {
    double result, rest;
    switch (op) {
    case '+': result = a + b; break;
    case '-': result = a - b; break;
    case '*': result = a * b; break;
    case '/': result = a / b; break;
    case KIN_OP('*', '*'):
        result = pow(a, b);
        if (isnan(result) && !isnan(a) && !isnan(b)) return kin_state_fail(state, "a power is not a real number");
        if (isinf(result) && !isinf(a) && !isinf(b)) return kin_state_fail(state, "a power is too large");
        break;
    default:
        rest = float_rest(a, b, &result);
        if (op == '%') result = rest;
    }
    return kin_value_float(state->values, result);
}

static const kin_value *number_binary(kin_state *state, uint16_t op, const kin_value *a, const kin_value *b) {
    bool integers = kin_value_is_integer(a) && kin_value_is_integer(b);
    bool divides = op == '/' || op == '%' || op == KIN_OP('/', '/');
    bool power = op == KIN_OP('*', '*');
    if (divides && kin_value_number(b) == 0) return kin_state_fail(state, "division by zero");
    if (power && kin_value_number(a) == 0 && kin_value_number(b) < 0) return kin_state_fail(state, "division by zero");
    if (integers && power && kin_value_integer(b) >= 0) return integer_power(state, kin_value_integer(a), kin_value_integer(b));
    if (integers && !power && op != '/') return integer_binary(state, op, kin_value_integer(a), kin_value_integer(b));
    return float_binary(state, op, kin_value_number(a), kin_value_number(b));
}

// Concatenates two lists or two tuples.
static const kin_value *join_items(kin_state *state, const kin_value *a, const kin_value *b) {
    kin_items sum = {.n = a->items->n + b->items->n};
    sum.at = kin_values_alloc(state->values, sum.n * sizeof *sum.at);
    if (!sum.at) return NULL;
    for (size_t i = 0; i < sum.n; i++) sum.at[i] = i < a->items->n ? a->items->at[i] : b->items->at[i - a->items->n];
    return kin_value_of_items(state->values, a->kind, sum);
}

static const kin_value *repeat_items(kin_state *state, const kin_value *list, int64_t times) {
    kin_items sum = {0};
    for (int64_t i = 0; i < times && list->items->n > 0; i++)
        for (size_t k = 0; k < list->items->n; k++)
            if (!kin_values_charge(state->values, 1) || !kin_items_push(state->values, &sum, list->items->at[k])) return NULL;
    return kin_value_of_items(state->values, list->kind, sum);
}

static const kin_value *repeat(kin_state *state, const kin_value *what, int64_t times) {
    if (what->kind == KIN_KIND_STRING) return kin_string_repeat(state->values, &what->s, times);
    return repeat_items(state, what, times);
}

static bool repeats(const kin_value *what, const kin_value *times) {
    bool repeatable = what->kind == KIN_KIND_STRING || what->kind == KIN_KIND_LIST || what->kind == KIN_KIND_TUPLE;
    return repeatable && kin_value_is_integer(times);
}

const kin_value *kin_binary(kin_state *state, uint16_t op, const kin_value *a, const kin_value *b) {
    if (op == '%' && a->kind == KIN_KIND_STRING) return kin_format_percent(state, &a->s, b);
    if (a->kind == KIN_KIND_UNDEFINED) return fail_undefined(state, a);
    if (b->kind == KIN_KIND_UNDEFINED) return fail_undefined(state, b);
    if (kin_value_is_number(a) && kin_value_is_number(b)) return number_binary(state, op, a, b);
    if (op == '+' && a->kind == b->kind) {
        if (a->kind == KIN_KIND_STRING) return kin_string_concat(state->values, &a->s, &b->s);
        if (a->kind == KIN_KIND_LIST || a->kind == KIN_KIND_TUPLE) return join_items(state, a, b);
    }
    if (op == '*' && repeats(a, b)) return repeat(state, a, kin_value_integer(b));
    if (op == '*' && repeats(b, a)) return repeat(state, b, kin_value_integer(a));
    const char sign[] = {(char)op, (char)(op >> 8), '\0'};
    return kin_state_fail(state, "unsupported operands: %s %s %s", kin_value_type_name(a), sign, kin_value_type_name(b));
}

// ---- comparisons

static int contains(kin_state *state, const kin_value *in, const kin_value *what) {
    if (in->kind == KIN_KIND_UNDEFINED) return 0;
    if (in->kind == KIN_KIND_STRING) {
        if (what->kind == KIN_KIND_STRING) return kin_string_find(state->values, &in->s, &what->s, 0) != KIN_NOT_FOUND;
    } else if (in->kind == KIN_KIND_DICT) {
        if (kin_value_hashable(what)) return kin_pairs_find(state->values, in->pairs, what) != NULL;
    } else if (kin_value_is_sequence(in)) {
        kin_items items;
        if (!kin_iterate(state, in, &items) || !kin_values_charge(state->values, items.n / 4)) return KIN_FAIL;
        for (size_t i = 0; i < items.n; i++)
            if (kin_value_equal(state->values, items.at[i], what)) return 1;
        return 0;
    }
    kin_state_fail(state, "unsupported operands: %s in %s", kin_value_type_name(what), kin_value_type_name(in));
    return KIN_FAIL;
}

static int compare_numbers(uint16_t op, const kin_value *a, const kin_value *b) {
    bool integers = kin_value_is_integer(a) && kin_value_is_integer(b);
    double x = kin_value_number(a), y = kin_value_number(b);
    bool less = integers ? kin_value_integer(a) < kin_value_integer(b) : x < y;
    bool greater = integers ? kin_value_integer(a) > kin_value_integer(b) : x > y;
    bool equal = integers ? !less && !greater : x == y;
    return op == '<' ? less : op == '>' ? greater : op == KIN_OP('<', '=') ? less || equal : greater || equal;
}

int kin_compare(kin_state *state, uint16_t op, const kin_value *a, const kin_value *b) {
    int result;
    switch (op) {
    case KIN_OP('=', '='): return kin_value_equal(state->values, a, b);
    case KIN_OP('!', '='): return !kin_value_equal(state->values, a, b);
    case KIN_OP_IN: return contains(state, b, a);
    case KIN_OP_NOT_IN: result = contains(state, b, a); return result < 0 ? KIN_FAIL : !result;
    default: break;
    }
    if (kin_value_is_number(a) && kin_value_is_number(b)) return compare_numbers(op, a, b);
    if (a->kind == KIN_KIND_UNDEFINED || b->kind == KIN_KIND_UNDEFINED) {
        fail_undefined(state, a->kind == KIN_KIND_UNDEFINED ? a : b);
        return KIN_FAIL;
    }
    bool swapped = op == '>' || op == KIN_OP('<', '='), negated = op == KIN_OP('<', '=') || op == KIN_OP('>', '=');
    result = kin_value_less(state->values, swapped ? b : a, swapped ? a : b);
    if (result < 0) kin_state_fail(state, "cannot compare %s and %s", kin_value_type_name(a), kin_value_type_name(b));
    return result < 0 ? KIN_FAIL : result ^ negated;
}

// ---- subscripts and attributes

static const kin_value *char_at(kin_state *state, const kin_string *s, int64_t i, const kin_value *key) {
    int64_t n = (int64_t)kin_string_n_chars(state->values, s);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return undefined_of(state, key);
    size_t begin = kin_string_offset(state->values, s, (size_t)i);
    kin_string rest = kin_string_part(s, begin, s->len);
    return kin_value_of_string(state->values, kin_string_part(&rest, 0, kin_string_offset(state->values, &rest, 1)));
}

static const kin_value *loop_attribute(kin_state *state, const kin_loop *loop, const kin_value *name) {
    int64_t i = (int64_t)loop->index0, n = (int64_t)loop->items->n;
    const kin_string *s = &name->s;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", i + 1},         {"index0", i}, {"revindex", n - i},
                   {"revindex0", n - i - 1}, {"length", n}, {"depth", loop->depth0 + 1},
                   {"depth0", loop->depth0}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (kin_string_is(s, numbers[k].name)) return kin_value_int(state->values, numbers[k].value);
    if (kin_string_is(s, "first")) return kin_value_of_bool(i == 0);
    if (kin_string_is(s, "last")) return kin_value_of_bool(i == n - 1);
    if (kin_string_is(s, "previtem") && i > 0) return loop->items->at[i - 1];
    if (kin_string_is(s, "nextitem") && i < n - 1) return loop->items->at[i + 1];
    return NULL;
}

// Returns an attribute in Python's sense, that is, not a key of a dict: a method, or an attribute of a namespace or loop. NULL:
// none.
static const kin_value *own_attribute(kin_state *state, const kin_value *of, const kin_value *name) {
    const kin_value *found = NULL;
    if (of->kind == KIN_KIND_NAMESPACE) found = kin_pairs_find(state->values, of->pairs, name);
    if (of->kind == KIN_KIND_LOOP) found = loop_attribute(state, of->loop, name);
    return found ? found : kin_method_of(state, of, (kin_str){name->s.at, name->s.len});
}

const kin_value *kin_get_attribute(kin_state *state, const kin_value *of, const kin_value *name) {
    if (of->kind == KIN_KIND_UNDEFINED) return fail_undefined(state, of);
    const kin_value *found = own_attribute(state, of, name);
    if (!found && of->kind == KIN_KIND_DICT && !kin_method_hidden(of, (kin_str){name->s.at, name->s.len}))
        found = kin_pairs_find(state->values, of->pairs, name);
    return found ? found : undefined_of(state, name);
}

const kin_value *kin_get_item(kin_state *state, const kin_value *of, const kin_value *key) {
    const kin_value *found = NULL;
    if (of->kind == KIN_KIND_UNDEFINED) return fail_undefined(state, of);
    if (of->kind == KIN_KIND_DICT) found = kin_pairs_find(state->values, of->pairs, key);
    if (of->kind == KIN_KIND_STRING && kin_value_is_integer(key)) return char_at(state, &of->s, kin_value_integer(key), key);
    bool indexed = of->kind == KIN_KIND_LIST || of->kind == KIN_KIND_TUPLE || of->kind == KIN_KIND_RANGE;
    if (indexed && kin_value_is_integer(key)) {
        int64_t i = kin_value_integer(key), n = (int64_t)of->items->n;
        if (i < 0) i += n;
        if (i >= 0 && i < n) found = of->items->at[i];
    }
    if (!found && key->kind == KIN_KIND_STRING) found = own_attribute(state, of, key);
    return found ? found : undefined_of(state, key);
}

// ---- str() and iter()

const kin_value *kin_str_of(kin_state *state, const kin_value *value) {
    const kin_value *text = kin_value_str(state->values, value);
    if (text || kin_values_error(state->values)) return text;
    return kin_state_fail(state, "a %s cannot be converted to text", kin_value_type_name(value));
}

// Appends each character as a string.
static bool chars_of(kin_state *state, const kin_string *s, kin_items *items) {
    for (size_t i = 0; i < s->len;) {
        kin_string rest = kin_string_part(s, i, s->len);
        size_t n = kin_string_offset(state->values, &rest, 1);
        const kin_value *c = kin_value_of_string(state->values, kin_string_part(&rest, 0, n));
        if (!kin_values_charge(state->values, 1) || !kin_items_push(state->values, items, c)) return false;
        i += n;
    }
    return true;
}

bool kin_iterate(kin_state *state, const kin_value *value, kin_items *items) {
    *items = (kin_items){0};
    if (value->kind == KIN_KIND_UNDEFINED) return true;
    if (value->kind == KIN_KIND_STRING) return chars_of(state, &value->s, items);
    if (value->kind == KIN_KIND_DICT) {
        for (size_t i = 0; i < value->pairs->n; i++)
            if (!kin_items_push(state->values, items, value->pairs->at[i].key)) return false;
        return kin_values_charge(state->values, items->n / 8);
    }
    if (!kin_value_is_sequence(value)) return kin_state_fail(state, "a %s is not iterable", kin_value_type_name(value));
    *items = *value->items;
    if (value->kind == KIN_KIND_ITERATOR) value->items->n = 0;
    return true;
}
