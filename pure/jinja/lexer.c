#include "pure/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pure/jinja/strings.h"
#include "pure/text/utf8.h"

static int fail(const kin_lexer *lexer, const char *what, kin_err *err) {
    return kin_err_set(err, "line %u: %s", lexer->line, what);
}

// As in Jinja, every kind of newline becomes \n, and one at the very end is dropped.
bool kin_lexer_init(kin_lexer *lexer, kin_values *values, const char *source, size_t len) {
    char *at = kin_values_alloc(values, len + 1);
    size_t n = 0;
    if (!at) return false;
    for (size_t i = 0; i < len; i++) {
        bool second = source[i] == '\n' && i > 0 && source[i - 1] == '\r';
        if (!second) at[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n > 0 && at[n - 1] == '\n') n--;
    *lexer = (kin_lexer){.values = values, .at = at, .len = n, .line = 1, .mode = KIN_LEX_DATA, .line_starts = true};
    return true;
}

static bool starts_with(const kin_lexer *lexer, size_t pos, const char *text) {
    size_t n = strlen(text);
    return pos <= lexer->len && lexer->len - pos >= n && memcmp(lexer->at + pos, text, n) == 0;
}

static char char_at(const kin_lexer *lexer, size_t pos) {
    return pos < lexer->len ? lexer->at[pos] : '\0';
}

static size_t skip_space(const kin_lexer *lexer, size_t pos) {
    int n;
    while ((n = kin_space_begins(lexer->at + pos, lexer->len - pos)) > 0) pos += (size_t)n;
    return pos;
}

static void advance(kin_lexer *lexer, size_t pos) {
    for (; lexer->pos < pos; lexer->pos++) lexer->line += lexer->at[lexer->pos] == '\n';
}

// ---- text

// Continues after a tag that ends at `pos` with `sign`: '-' skips white space, the end of a block without a sign skips the
// newline.
static void end_tag(kin_lexer *lexer, size_t pos, char sign, bool trims) {
    if (sign == '-')
        pos = skip_space(lexer, pos);
    else if (sign != '+' && trims && char_at(lexer, pos) == '\n')
        pos++;
    advance(lexer, pos);
    lexer->line_starts = pos > 0 && lexer->at[pos - 1] == '\n';
}

// Returns what remains of the text [begin, end) before a tag with that sign. strips: lstrip_blocks applies to the tag.
static kin_str text_before(const kin_lexer *lexer, size_t begin, size_t end, char sign, bool strips) {
    int n;
    if (sign == '-') {
        while ((n = kin_space_ends(lexer->at + begin, end - begin)) > 0) end -= (size_t)n;
    } else if (sign != '+' && strips) {
        size_t from = end;
        while ((n = kin_space_ends(lexer->at + begin, from - begin)) > 0 && lexer->at[from - 1] != '\n') from -= (size_t)n;
        bool at_line = from > begin ? lexer->at[from - 1] == '\n' : lexer->line_starts;
        if (at_line) end = from;
    }
    return (kin_str){lexer->at + begin, end - begin};
}

static char sign_at(const kin_lexer *lexer, size_t pos) {
    char c = char_at(lexer, pos);
    return c == '-' || c == '+' ? c : '\0';
}

// Matches "NAME %}" at pos, after white space. Returns the position after it, and the sign at its end; 0: no match.
static size_t match_tag(const kin_lexer *lexer, size_t pos, const char *name, char *sign) {
    pos = skip_space(lexer, pos);
    if (!starts_with(lexer, pos, name)) return 0;
    pos = skip_space(lexer, pos + strlen(name));
    *sign = sign_at(lexer, pos);
    if (*sign) pos++;
    return starts_with(lexer, pos, "%}") ? pos + 2 : 0;
}

static int lex_comment(kin_lexer *lexer, size_t pos, kin_err *err) {
    size_t end = pos;
    while (end < lexer->len && !starts_with(lexer, end, "#}")) end++;
    if (end == lexer->len) return fail(lexer, "the end of a comment, #}, is missing", err);
    end_tag(lexer, end + 2, end > pos ? sign_at(lexer, end - 1) : '\0', true);
    return 0;
}

// Reads the text of a raw block, and the endraw tag.
static int lex_raw(kin_lexer *lexer, kin_token *token, kin_err *err) {
    for (size_t pos = lexer->pos; pos < lexer->len; pos++) {
        if (!starts_with(lexer, pos, "{%")) continue;
        char sign = sign_at(lexer, pos + 2), end_sign;
        size_t end = match_tag(lexer, pos + 2 + (sign != '\0'), "endraw", &end_sign);
        if (!end) continue;
        token->kind = KIN_LEX_DATA;
        token->text = text_before(lexer, lexer->pos, pos, sign, true);
        end_tag(lexer, end, end_sign, true);
        lexer->raw = false;
        return 0;
    }
    return fail(lexer, "the end of a raw block, {% endraw %}, is missing", err);
}

// Reads the text up to the next tag, and the beginning of the tag.
static int lex_data(kin_lexer *lexer, kin_token *token, kin_err *err) {
    size_t begin = lexer->pos, pos = begin;
    while (pos < lexer->len && !(lexer->at[pos] == '{' && strchr("{%#", char_at(lexer, pos + 1)) && char_at(lexer, pos + 1)))
        pos++;
    token->kind = KIN_LEX_DATA;
    if (pos >= lexer->len) {
        token->text = (kin_str){lexer->at + begin, lexer->len - begin};
        advance(lexer, lexer->len);
        return 0;
    }
    char tag = lexer->at[pos + 1], sign = sign_at(lexer, pos + 2), raw_sign;
    size_t inside = pos + 2 + (sign != '\0');
    token->text = text_before(lexer, begin, pos, sign, tag != '{');
    advance(lexer, inside);
    if (tag == '#') return lex_comment(lexer, inside, err);
    size_t raw = tag == '%' ? match_tag(lexer, inside, "raw", &raw_sign) : 0;
    if (raw && raw_sign != '+') {
        end_tag(lexer, raw, raw_sign, false);
        lexer->raw = true;
    } else {
        lexer->pending = tag == '{' ? KIN_LEX_PRINT : KIN_LEX_BLOCK;
    }
    return 0;
}

// ---- within tags

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

// Skips digits, which single underscores may separate; returns the position after them.
static size_t skip_digits(const kin_lexer *lexer, size_t pos) {
    while (is_digit(char_at(lexer, pos)) || (char_at(lexer, pos) == '_' && is_digit(char_at(lexer, pos + 1)))) pos++;
    return pos;
}

static int lex_number(kin_lexer *lexer, kin_token *token, kin_err *err) {
    size_t begin = lexer->pos, end = skip_digits(lexer, begin);
    bool is_float = false;
    if (begin == 0 || lexer->at[begin - 1] != '.') { // "a.0.1" has two subscripts
        size_t point = end;
        if (char_at(lexer, end) == '.' && is_digit(char_at(lexer, end + 1))) {
            is_float = true;
            point = skip_digits(lexer, end + 1);
        }
        bool has_e = char_at(lexer, point) == 'e' || char_at(lexer, point) == 'E';
        size_t exponent = point + 1 + (sign_at(lexer, point + 1) != '\0');
        end = point;
        if (has_e && is_digit(char_at(lexer, exponent))) {
            is_float = true;
            end = skip_digits(lexer, exponent);
        }
    }
    char digits[64];
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        if (lexer->at[i] == '_') continue;
        if (n == sizeof digits - 1) return fail(lexer, "a number is too long", err);
        digits[n++] = lexer->at[i];
    }
    digits[n] = '\0';
    errno = 0;
    token->kind = is_float ? KIN_LEX_FLOAT : KIN_LEX_INT;
    if (is_float)
        token->f = strtod(digits, NULL);
    else
        token->i = strtoll(digits, NULL, 10);
    if (!is_float && (errno || (n > 1 && digits[0] == '0' && token->i != 0)))
        return fail(lexer, "a number is too large or begins with 0", err);
    advance(lexer, end);
    return 0;
}

static int hex_digits(const kin_lexer *lexer, size_t pos, int n, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < n; i++) {
        char c = char_at(lexer, pos + (size_t)i);
        int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return KIN_FAIL;
        *value = *value << 4 | (uint32_t)digit;
    }
    return *value > 0x10ffff || (*value >= 0xd800 && *value < 0xe000) ? KIN_FAIL : 0;
}

// Decodes the escape at pos, after the backslash, to *out. Returns the position after it; 0: malformed.
static size_t lex_escape(const kin_lexer *lexer, size_t pos, char **out) {
    static const char letters[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v"; // letter, character
    char c = char_at(lexer, pos);
    uint32_t value = 0;
    for (const char *l = letters; *l; l += 2) {
        if (c != l[0]) continue;
        *(*out)++ = l[1];
        return pos + 1;
    }
    if (c == '\n') return pos + 1; // a line continuation
    int n_hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_hex > 0) {
        if (hex_digits(lexer, pos + 1, n_hex, &value) != 0) return 0;
        *out += kin_utf8_put(*out, value);
        return pos + 1 + (size_t)n_hex;
    }
    if (c >= '0' && c <= '7') {
        size_t end = pos;
        for (; end < pos + 3 && char_at(lexer, end) >= '0' && char_at(lexer, end) <= '7'; end++)
            value = value * 8 + (uint32_t)(lexer->at[end] - '0');
        *out += kin_utf8_put(*out, value);
        return end;
    }
    if (c == 'N') return 0; // character names are not supported
    *(*out)++ = '\\';
    return pos;
}

static int lex_string(kin_lexer *lexer, kin_token *token, kin_err *err) {
    char quote = lexer->at[lexer->pos];
    size_t begin = lexer->pos + 1, end = begin;
    while (end < lexer->len && lexer->at[end] != quote) end += lexer->at[end] == '\\' ? 2 : 1;
    if (end >= lexer->len) return fail(lexer, "the closing quote of a string is missing", err);
    char *decoded = kin_values_alloc(lexer->values, end - begin + 1), *out = decoded; // no escape is shorter than its character
    if (!decoded) return kin_values_check(lexer->values, err);
    for (size_t pos = begin; pos < end;) {
        if (lexer->at[pos] != '\\') {
            *out++ = lexer->at[pos++];
        } else if ((pos = lex_escape(lexer, pos + 1, &out)) == 0) {
            return fail(lexer, "unknown escape in a string", err);
        }
    }
    token->kind = KIN_LEX_STRING;
    token->text = (kin_str){decoded, (size_t)(out - decoded)};
    advance(lexer, end + 1);
    return 0;
}

static int lex_operator(kin_lexer *lexer, kin_token *token, kin_err *err) {
    static const char pairs[] = "//**==!=>=<=";
    char a = lexer->at[lexer->pos], b = char_at(lexer, lexer->pos + 1);
    token->kind = KIN_LEX_OPERATOR;
    for (const char *p = pairs; *p; p += 2) {
        if (a != p[0] || b != p[1]) continue;
        token->op = KIN_OP(a, b);
        advance(lexer, lexer->pos + 2);
        return 0;
    }
    if (a == '\0' || !strchr("+-/*%~[](){}<>=.:|,;", a))
        return kin_err_set(err, "line %u: unexpected character 0x%02x", lexer->line, (unsigned char)a);
    if (strchr("([{", a)) lexer->nesting++;
    if (strchr(")]}", a) && lexer->nesting > 0) lexer->nesting--;
    token->op = (uint16_t)a;
    advance(lexer, lexer->pos + 1);
    return 0;
}

// Reads the end of the tag if it is here.
static bool lex_end(kin_lexer *lexer, kin_token *token) {
    bool block = lexer->mode == KIN_LEX_BLOCK;
    char sign = sign_at(lexer, lexer->pos);
    if (sign == '+' && !block) return false;
    size_t pos = lexer->pos + (sign != '\0');
    if (lexer->nesting > 0 || !starts_with(lexer, pos, block ? "%}" : "}}")) return false;
    token->kind = block ? KIN_LEX_BLOCK_END : KIN_LEX_PRINT_END;
    lexer->mode = KIN_LEX_DATA;
    end_tag(lexer, pos + 2, sign, block);
    return true;
}

static int lex_inside(kin_lexer *lexer, kin_token *token, kin_err *err) {
    if (lex_end(lexer, token)) return 0;
    advance(lexer, skip_space(lexer, lexer->pos));
    token->line = lexer->line;
    if (lex_end(lexer, token)) return 0;
    if (lexer->pos >= lexer->len)
        return fail(lexer,
                    lexer->mode == KIN_LEX_BLOCK ? "the end of a block, %}, is missing"
                                                 : "the end of an expression, }}, is missing",
                    err);
    char c = lexer->at[lexer->pos];
    if (c == '"' || c == '\'') return lex_string(lexer, token, err);
    if (is_digit(c)) return lex_number(lexer, token, err);
    if (!is_name_char(c)) return lex_operator(lexer, token, err);
    size_t end = lexer->pos;
    while (is_name_char(char_at(lexer, end))) end++;
    token->kind = KIN_LEX_NAME;
    token->text = (kin_str){lexer->at + lexer->pos, end - lexer->pos};
    advance(lexer, end);
    return 0;
}

int kin_lexer_next(kin_lexer *lexer, kin_token *token, kin_err *err) {
    for (;;) {
        *token = (kin_token){.kind = KIN_LEX_END, .line = lexer->line};
        if (lexer->pending) {
            token->kind = lexer->mode = lexer->pending;
            lexer->pending = KIN_LEX_END;
            lexer->nesting = 0;
            return 0;
        }
        if (lexer->mode != KIN_LEX_DATA) return lex_inside(lexer, token, err);
        if (!lexer->raw && lexer->pos >= lexer->len) return 0;
        if ((lexer->raw ? lex_raw : lex_data)(lexer, token, err) != 0) return KIN_FAIL;
        if (token->text.len > 0) return 0;
    }
}
