#include "pure/grammar/schema_string.h"

#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"

void kin_schema_put_builtins(kin_text_buffer *gbnf) {
    static const char rules[] = "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
                                "object ::= \"{\" ws (member (ws \",\" ws member)* ws)? \"}\"\n"
                                "member ::= string ws \":\" ws value\n"
                                "array ::= \"[\" ws (value (ws \",\" ws value)* ws)? \"]\"\n"
                                "string ::= \"\\\"\" char* \"\\\"\"\n"
                                "char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" unit)\n"
                                // Code points above U+FFFF are two units; an unpaired surrogate is invalid.
                                "unit ::= [0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | [dD] [89abAB] "
                                "[0-9a-fA-F]{2} \"\\\\u\" [dD] [c-fC-F] "
                                "[0-9a-fA-F]{2}\n"
                                "one ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt] | \"\\\\u00\" (\"0\" [0-7be-f] | \"1\" "
                                "[0-9a-f])\n"
                                "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
                                "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
                                "ws ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n";
    kin_text_put(gbnf, rules, sizeof rules - 1);
}

void kin_schema_put_literal(kin_str text, kin_text_buffer *gbnf) {
    kin_text_put(gbnf, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.at[i];
        if (c == '"' || c == '\\')
            kin_text_print(gbnf, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            kin_text_print(gbnf, "\\x%02X", c);
        else
            kin_text_put(gbnf, text.at + i, 1);
    }
    kin_text_put(gbnf, "\"", 1);
}

// ---- sets of characters, and their spelling in JSON strings

typedef struct char_set {
    struct {
        uint32_t lo, hi;
    } ranges[KIN_PATTERN_MAX_RANGES];
    int n;
    bool ascii_only; // it contains a negated class, whose extent beyond ASCII depends on the engine
    bool is_part;    // only a part of the real set is known
    bool overflow;
} char_set;

static void add_characters(char_set *set, uint32_t lo, uint32_t hi) {
    if (set->n == KIN_PATTERN_MAX_RANGES) {
        set->overflow = true;
        return;
    }
    set->ranges[set->n].lo = lo;
    set->ranges[set->n++].hi = hi;
}

static bool has(const char_set *set, uint32_t c) {
    for (int i = 0; i < set->n; i++) {
        if (c >= set->ranges[i].lo && c <= set->ranges[i].hi) return true;
    }
    return false;
}

// Returns the complement of the set within [lo, hi].
static char_set negated(const char_set *set, uint32_t lo, uint32_t hi) {
    char_set result = {.ascii_only = set->ascii_only, .overflow = set->overflow};
    for (uint32_t at = lo; at <= hi;) {
        uint32_t end = hi; // end of the gap that begins at `at`
        bool is_inside = false;
        for (int i = 0; i < set->n; i++) {
            uint32_t first = set->ranges[i].lo, last = set->ranges[i].hi;
            if (at >= first && at <= last) {
                is_inside = true;
                at = last + 1;
                break;
            }
            if (first > at && first - 1 < end) end = first - 1;
        }
        if (is_inside) continue;
        add_characters(&result, at, end);
        at = end + 1;
    }
    return result;
}

static void put_escaped(char c, kin_text_buffer *gbnf) {
    char one[2] = {c, '\0'};
    kin_text_buffer json = {0};
    static const char letters[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    const char *letter = strchr(letters, c);
    if (c && letter)
        kin_text_print(&json, "\\%c", names[letter - letters]);
    else
        kin_text_print(&json, "\\u%04x", (unsigned)(uint8_t)one[0]);
    kin_schema_put_literal((kin_str){json.at, json.len}, gbnf);
    if (json.failed) gbnf->failed = true;
    kin_text_fini(&json);
}

// Writes the set as a class of unescaped characters, and in JSON as escapes.
static void put_set(const char_set *set, kin_schema_spelling spelling, kin_text_buffer *gbnf) {
    typedef struct range {
        uint32_t lo, hi;
    } range;
    static const range in_text[] = {{0x01, 0xd7ff}, {0xe000, 0x10ffff}};
    static const range in_json[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}};
    bool is_text = spelling == KIN_SPELLING_TEXT;
    const range *raw = is_text ? in_text : in_json;
    size_t n_raw = is_text ? sizeof in_text / sizeof *in_text : sizeof in_json / sizeof *in_json;
    uint32_t most = set->ascii_only ? 0x7f : 0x10ffff;
    kin_text_print(gbnf, "([");
    for (int i = 0; i < set->n; i++) {
        for (size_t k = 0; k < n_raw; k++) {
            uint32_t lo = set->ranges[i].lo > raw[k].lo ? set->ranges[i].lo : raw[k].lo;
            uint32_t hi = set->ranges[i].hi < raw[k].hi ? set->ranges[i].hi : raw[k].hi;
            if (hi > most) hi = most;
            if (lo <= hi) kin_text_print(gbnf, "\\U%08X-\\U%08X", lo, hi);
        }
    }
    kin_text_print(gbnf, "]");
    for (uint32_t c = 0; c < 0x60 && !is_text; c++) {
        if ((c >= 0x20 && c != '"' && c != '\\') || !has(set, c)) continue;
        kin_text_print(gbnf, " | ");
        put_escaped((char)c, gbnf);
    }
    kin_text_print(gbnf, ")");
}

// ---- patterns

typedef struct parser {
    kin_str pattern;
    const char *at, *end;
    int nesting;
    kin_schema_spelling spelling;
    const char *any; // the expression for one character
    int ahead;       // nesting level of the alternatives of a look-ahead; -1: none
    bool widens;     // in a negative look-ahead, which must exclude everything that any engine might match
    kin_text_buffer *gbnf;
    kin_err *err;
} parser;

static int fail_pattern(const parser *p, const char *what) {
    int len = p->pattern.len < 100 ? (int)p->pattern.len : 100;
    return kin_err_set(p->err, "the pattern '%.*s': %s", len, p->pattern.at, what);
}

static bool skip_char(parser *p, char c) {
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static bool is_repetition(const parser *p) {
    return p->at < p->end && (*p->at == '*' || *p->at == '+' || *p->at == '?' || *p->at == '{');
}

static bool add_shorthand(char_set *set, char letter, bool widens) {
    char_set one = {0};
    char lower = (char)(letter | 0x20);
    if (lower == 'd' || lower == 'w') add_characters(&one, '0', '9');
    if (lower == 'w') add_characters(&one, 'A', 'Z'), add_characters(&one, '_', '_'), add_characters(&one, 'a', 'z');
    if (lower == 's') add_characters(&one, '\t', '\r'), add_characters(&one, ' ', ' ');
    if (one.n == 0) return false;
    if (letter == (widens ? 's' : 'S')) add_characters(&one, 0x1c, 0x1f); // white space in Python
    if (letter != lower) one = negated(&one, 0, 0x7f);
    for (int i = 0; i < one.n; i++) add_characters(set, one.ranges[i].lo, one.ranges[i].hi);
    return true;
}

// Adds everything beyond ASCII that some engine might include in the class. White space is listed; digits and letters are too
// many, so everything is added.
static void add_beyond_ascii(char_set *set, char letter) {
    static const uint32_t blanks[][2] = {{0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x180e, 0x180e},
                                         {0x2000, 0x200b}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                         {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    if (letter != 's') add_characters(set, 0x80, 0x10ffff);
    for (size_t i = 0; letter == 's' && i < sizeof blanks / sizeof *blanks; i++) add_characters(set, blanks[i][0], blanks[i][1]);
}

static int parse_hex(parser *p, int n, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < n; i++, p->at++) {
        const char *digits = "0123456789abcdef";
        const char *digit =
            p->at < p->end && *p->at ? strchr(digits, *p->at >= 'A' && *p->at <= 'F' ? *p->at | 0x20 : *p->at) : NULL;
        if (!digit) return fail_pattern(p, "\\x needs 2 hexadecimal digits and \\u 4");
        *c = *c << 4 | (uint32_t)(digit - digits);
    }
    if (*c >= 0xd800 && *c <= 0xdfff) return fail_pattern(p, "an unpaired surrogate");
    return 0;
}

// Called after "\\p": the Unicode properties of emoji that zod uses. Extended_Pictographic has only characters that are in it
// in every Unicode version.
static int parse_property(parser *p, char_set *set) {
    static const struct {
        const char *name;
        bool is_part;
        struct {
            uint32_t lo, hi;
        } ranges[40];
    } known[] = {
        {"{Emoji_Component}",
         false,
         {{0x23, 0x23},
          {0x2a, 0x2a},
          {0x30, 0x39},
          {0x200d, 0x200d},
          {0x20e3, 0x20e3},
          {0xfe0f, 0xfe0f},
          {0x1f1e6, 0x1f1ff},
          {0x1f3fb, 0x1f3ff},
          {0x1f9b0, 0x1f9b3},
          {0xe0020, 0xe007f}}},
        {"{Regional_Indicator}", false, {{0x1f1e6, 0x1f1ff}}},
        {"{Emoji_Modifier}", false, {{0x1f3fb, 0x1f3ff}}},
        {"{Extended_Pictographic}", true, {{0xa9, 0xa9},       {0xae, 0xae},       {0x203c, 0x203c},   {0x2122, 0x2122},
                                           {0x231a, 0x231b},   {0x23e9, 0x23f3},   {0x2600, 0x2604},   {0x2614, 0x2615},
                                           {0x2648, 0x2653},   {0x26a0, 0x26a1},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
                                           {0x2702, 0x2702},   {0x2705, 0x2705},   {0x2708, 0x270d},   {0x2714, 0x2714},
                                           {0x2728, 0x2728},   {0x274c, 0x274c},   {0x2753, 0x2755},   {0x2757, 0x2757},
                                           {0x2763, 0x2764},   {0x27a1, 0x27a1},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},
                                           {0x1f300, 0x1f321}, {0x1f324, 0x1f393}, {0x1f39e, 0x1f3f0}, {0x1f400, 0x1f4fd},
                                           {0x1f4ff, 0x1f53d}, {0x1f550, 0x1f567}, {0x1f5fa, 0x1f64f}, {0x1f680, 0x1f6c5},
                                           {0x1f6cb, 0x1f6d2}, {0x1f90c, 0x1f93a}, {0x1f93c, 0x1f945}, {0x1f947, 0x1f9ff}}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known && !p->widens; i++) {
        size_t len = strlen(known[i].name);
        if ((size_t)(p->end - p->at) < len || memcmp(p->at, known[i].name, len) != 0) continue;
        p->at += len;
        for (int k = 0; k < 40 && known[i].ranges[k].hi > 0; k++)
            add_characters(set, known[i].ranges[k].lo, known[i].ranges[k].hi);
        set->is_part |= known[i].is_part;
        return 0;
    }
    return fail_pattern(p, "\\p is only supported for emoji properties, outside negative look-aheads");
}

// Called after a backslash: reads a character, or adds a shorthand to the set (*c is UINT32_MAX then).
static int parse_escape(parser *p, char_set *set, uint32_t *c) {
    static const char letters[] = "tnrfv0", meanings[] = "\t\n\r\f\v\0";
    char letter = p->at < p->end ? *p->at++ : 'b';
    const char *known = letter ? strchr(letters, letter) : NULL;
    *c = UINT32_MAX;
    if (add_shorthand(set, letter, p->widens)) {
        if (p->widens) add_beyond_ascii(set, letter);
        if (letter < 'a') set->ascii_only = !p->widens;
        return 0;
    }
    if (letter == 'p') return parse_property(p, set);
    if (letter == 'x' || letter == 'u') return parse_hex(p, letter == 'x' ? 2 : 4, c);
    if (known)
        *c = (uint32_t)meanings[known - letters];
    else if ((uint8_t)letter < 0x80 && !((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z') && !(letter >= '0' && letter <= '9'))
        *c = (uint32_t)letter;
    else
        return fail_pattern(p, "\\b, \\B, \\p, back references and unknown escapes are not supported");
    return 0;
}

static int parse_char(parser *p, char_set *set, uint32_t *c) {
    if (skip_char(p, '\\')) return parse_escape(p, set, c);
    int len = kin_utf8_len(p->at, (size_t)(p->end - p->at));
    if (len <= 0) return fail_pattern(p, "invalid UTF-8");
    *c = kin_utf8_get(p->at, len);
    p->at += len;
    return 0;
}

// Called after '['.
static int parse_class(parser *p, char_set *set) {
    bool negate = skip_char(p, '^'), has_shorthand = false, has_all = false;
    char letters[128] = {0}; // shorthands seen so far
    while (!skip_char(p, ']')) {
        uint32_t lo, hi;
        if (p->at == p->end) return fail_pattern(p, "']' is missing");
        if (parse_char(p, set, &lo) != 0) return KIN_FAIL;
        if (lo == UINT32_MAX) {
            char letter = p->at[-1] & 0x7f;
            letters[(uint8_t)letter] = 1;
            has_shorthand = true;
            has_all |= letters[(uint8_t)letter ^ 0x20] != 0; // [\s\S]
            continue;
        }
        hi = lo;
        if (p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (parse_char(p, set, &hi) != 0) return KIN_FAIL;
            if (hi == UINT32_MAX || hi < lo) return fail_pattern(p, "a character range ends before it begins");
        }
        add_characters(set, lo, hi);
    }
    if (has_all) *set = (char_set){.n = 1, .ranges = {{0, 0x10ffff}}};
    if (negate && set->is_part) return fail_pattern(p, "a negated \\p{...} is not supported");
    if (negate) {
        *set = negated(set, 0, 0x10ffff);
        set->ascii_only |= has_shorthand;
    }
    if (p->widens) set->ascii_only = false;
    return set->overflow ? fail_pattern(p, "a character class has too many ranges") : 0;
}

static int parse_choice(parser *p);

// Called after '(?'.
static int fail_group(const parser *p) {
    char c = p->at < p->end ? *p->at : '\0';
    if (c == '<') return fail_pattern(p, "look-behind, (?<= and (?<!, is not supported");
    if (c == 'P') return fail_pattern(p, "(?P is Python syntax; write (?<name>...) for a named group");
    if ((c >= 'a' && c <= 'z') || c == '-')
        return fail_pattern(p, "flags such as (?i) are not supported in patterns; write [aA] for both letters");
    return fail_pattern(p, "unknown group after '(?'");
}

// Called after '('.
static int parse_group(parser *p) {
    char kind = 0; // for a look-ahead: '=' or '!'
    if (++p->nesting > KIN_PATTERN_MAX_NESTING) return fail_pattern(p, "groups are nested more than 24 levels deep");
    if (skip_char(p, '?')) {
        if (p->at < p->end && (*p->at == '=' || *p->at == '!')) kind = *p->at++;
        bool is_name = !kind && p->end - p->at > 1 && p->at[0] == '<' && p->at[1] != '=' && p->at[1] != '!';
        if (is_name) {
            while (p->at < p->end && *p->at != '>') p->at++;
            if (!skip_char(p, '>')) return fail_pattern(p, "'>' is missing after the name of a group");
        } else if (!kind && !skip_char(p, ':')) {
            return fail_group(p);
        }
    }
    bool widens = p->widens;
    int ahead = p->ahead;
    p->widens = widens != (kind == '!');
    p->ahead = kind ? p->nesting : -1;
    kin_text_print(p->gbnf, kind == '!' ? "!(" : kind ? "&(" : "(");
    if (parse_choice(p) != 0) return KIN_FAIL;
    kin_text_print(p->gbnf, ")");
    p->widens = widens;
    p->ahead = ahead;
    p->nesting--;
    return skip_char(p, ')') ? 0 : fail_pattern(p, "')' is missing");
}

static int parse_atom(parser *p) {
    char_set set = {0};
    uint32_t c;
    if (skip_char(p, '(')) return parse_group(p);
    if (skip_char(p, '[')) {
        if (parse_class(p, &set) != 0) return KIN_FAIL;
    } else if (skip_char(p, '.')) {
        char_set ends = {.n = p->widens ? 1 : 3, .ranges = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}};
        set = negated(&ends, 0, 0x10ffff);
    } else {
        if (*p->at == '^' || *p->at == '$') return fail_pattern(p, "^ and $ are supported only at the ends of the whole pattern");
        if (is_repetition(p)) return fail_pattern(p, "nothing to repeat");
        if (parse_char(p, &set, &c) != 0) return KIN_FAIL;
        if (c != UINT32_MAX) add_characters(&set, c, c);
    }
    put_set(&set, p->spelling, p->gbnf);
    return 0;
}

// Reads decimal digits. The value saturates far above the grammar compiler's limit. Returns false if there are no digits.
static bool parse_count(parser *p, uint32_t *count) {
    const char *begin = p->at;
    uint32_t n = 0;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (n < 100000000) n = n * 10 + (uint32_t)(*p->at - '0');
    *count = n;
    return p->at > begin;
}

static int parse_repetition(parser *p) {
    if (!is_repetition(p)) return 0;
    const char *begin = p->at++;
    if (*begin == '{') {
        uint32_t least, most;
        if (!parse_count(p, &least)) return fail_pattern(p, "a repetition must be {m}, {m,} or {m,n}");
        if (skip_char(p, ',') && parse_count(p, &most) && most < least)
            return fail_pattern(p, "the minimum of a repetition is above its maximum");
        if (!skip_char(p, '}')) return fail_pattern(p, "a repetition must be {m}, {m,} or {m,n}");
    }
    kin_text_put(p->gbnf, begin, (size_t)(p->at - begin));
    skip_char(p, '?'); // lazy: matches the same strings
    if (is_repetition(p)) return fail_pattern(p, "two repetitions in a row are not supported");
    return 0;
}

static int parse_sequence(parser *p) {
    bool is_whole = p->nesting == 0, is_ahead = p->nesting == p->ahead;
    kin_text_print(p->gbnf, "\"\"");
    if (is_whole && !skip_char(p, '^')) kin_text_print(p->gbnf, " %s*", p->any);
    while (p->at < p->end && *p->at != '|' && *p->at != ')') {
        bool is_last = p->end - p->at == 1 || p->at[1] == '|' || (is_ahead && p->at[1] == ')');
        if (is_whole && *p->at == '$' && is_last) return p->at++, 0;
        if (is_ahead && *p->at == '$' && is_last) { // in Python $ also matches before a line end
            kin_text_print(p->gbnf, !p->widens ? " $" : p->spelling == KIN_SPELLING_TEXT ? " \"\\n\"? $" : " \"\\\\n\"? $");
            p->at++;
            return 0;
        }
        kin_text_print(p->gbnf, " ");
        if (parse_atom(p) != 0 || parse_repetition(p) != 0) return KIN_FAIL;
    }
    if (is_whole) kin_text_print(p->gbnf, " %s*", p->any);
    return 0;
}

static int parse_choice(parser *p) {
    if (parse_sequence(p) != 0) return KIN_FAIL;
    while (skip_char(p, '|')) {
        kin_text_print(p->gbnf, " | ");
        if (parse_sequence(p) != 0) return KIN_FAIL;
    }
    return 0;
}

bool kin_schema_pattern_has_lookaround(kin_str pattern) {
    for (size_t i = 0; i + 3 <= pattern.len; i++) {
        if (memcmp(pattern.at + i, "(?=", 3) == 0 || memcmp(pattern.at + i, "(?!", 3) == 0) return true;
    }
    return false;
}

int kin_schema_put_pattern(kin_str pattern, kin_schema_spelling spelling, kin_text_buffer *gbnf, kin_err *err) {
    static const char *const any[] = {"char", "one", "[^\\x00]"}; // by spelling
    parser p = {.pattern = pattern,
                .at = pattern.at,
                .end = pattern.at + pattern.len,
                .spelling = spelling,
                .any = any[spelling],
                .ahead = -1,
                .gbnf = gbnf,
                .err = err};
    kin_text_print(gbnf, "(");
    if (parse_choice(&p) != 0) return KIN_FAIL;
    if (p.at < p.end) return fail_pattern(&p, "')' without '('");
    kin_text_print(gbnf, ")");
    return 0;
}

// ---- formats

// February has 28 days; years are 1000 to 9999.
#define YEAR "[1-9] [0-9]{3}"
#define DAYS_28 "(\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])"
#define DATE                                                                                                                     \
    YEAR " \"-\" ((\"0\" [13578] | \"1\" [02]) \"-\" (" DAYS_28                                                                  \
         " | \"29\" | \"30\" | \"31\") | (\"0\" [469] | \"11\") \"-\" (" DAYS_28 " | \"29\" | \"30\") | \"02-\" " DAYS_28 ")"
#define HOUR_MINUTE "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9]"
#define TIME HOUR_MINUTE " \":\" [0-5] [0-9] (\".\" [0-9]{1,6})? (\"Z\" | [-+] " HOUR_MINUTE ")"
#define SHORT_TIME HOUR_MINUTE " (\":\" [0-5] [0-9] (\".\" [0-9]{1,6})?)? (\"Z\" | [-+] " HOUR_MINUTE ")?"
#define BYTE "(\"25\" [0-5] | \"2\" [0-4] [0-9] | \"1\" [0-9] [0-9] | [1-9]? [0-9])"
#define HEX "[0-9a-fA-F]"

bool kin_schema_put_format(kin_str format, bool is_short, kin_text_buffer *gbnf) {
    static const struct {
        const char *name, *gbnf, *short_gbnf;
    } formats[] = {
        {"date", DATE, NULL},
        {"time", TIME, SHORT_TIME},
        {"date-time", DATE " \"T\" " TIME, DATE " \"T\" " SHORT_TIME},
        {"uuid", HEX "{8} \"-\" " HEX "{4} \"-\" " HEX "{4} \"-\" " HEX "{4} \"-\" " HEX "{12}", NULL},
        {"ipv4", BYTE " \".\" " BYTE " \".\" " BYTE " \".\" " BYTE, NULL},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (format.len != strlen(formats[i].name) || memcmp(format.at, formats[i].name, format.len) != 0) continue;
        const char *known = is_short ? formats[i].short_gbnf : formats[i].gbnf;
        if (gbnf && known) kin_text_put(gbnf, known, strlen(known));
        return known != NULL;
    }
    return false;
}

// ---- keys other than the given ones: a rule for each common prefix

static int by_bytes(const void *a, const void *b) {
    const kin_str *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n > 0 ? memcmp(x->at, y->at, n) : 0;
    return order != 0 ? order : x->len < y->len ? -1 : x->len > y->len;
}

static bool can_be_written(kin_str key) {
    for (size_t i = 0; i < key.len; i++) {
        if ((uint8_t)key.at[i] < 0x20 || key.at[i] == '"' || key.at[i] == '\\') return false;
    }
    return true;
}

#define NOT_BARE "\\x00- \\x7F,:=()\\[\\]{}\"'<\\\\" // in a class

bool kin_schema_is_bare_key(kin_str key) {
    for (size_t i = 0; i < key.len; i++) {
        if ((uint8_t)key.at[i] <= ' ' || memchr("\x7F,:=()[]{}\"'<\\", key.at[i], 14)) return false;
    }
    return key.len > 0;
}

typedef struct key_rules {
    const char *name;
    const char *forbidden, *more, *end; // of a class; how often others may follow; the end of the key
    bool is_bare;
    unsigned n_rules;
    kin_text_buffer *gbnf;
} key_rules;

// Writes rule number `rule`: what may follow the first `at` bytes of keys [n], which they share. The recursion depth is the
// length of a key, so the caller bounds it; each level writes its rule after those below it.
static void put_key_rule(key_rules *r, const kin_str *keys, size_t n, size_t at, unsigned rule) {
    kin_text_buffer line = {0};
    bool is_key = n > 0 && keys[0].len == at; // the shortest one is first
    kin_text_print(&line, "%s-%u ::= [^%s", r->name, rule, r->forbidden);
    for (size_t i = is_key; i < n; i++) {
        int len = kin_utf8_len(keys[i].at + at, keys[i].len - at);
        kin_text_print(&line, "\\U%08X", kin_utf8_get(keys[i].at + at, len));
    }
    kin_text_print(&line, "] [^%s]%s %s", r->forbidden, r->more, r->end);
    if (!is_key && (at > 0 || !r->is_bare)) kin_text_print(&line, " | %s", r->end);
    for (size_t i = is_key, end; i < n; i = end) {
        size_t len = (size_t)kin_utf8_len(keys[i].at + at, keys[i].len - at);
        for (end = i + 1; end < n && keys[end].len >= at + len && memcmp(keys[end].at + at, keys[i].at + at, len) == 0;) end++;
        unsigned below = ++r->n_rules;
        kin_text_print(&line, " | ");
        kin_schema_put_literal((kin_str){keys[i].at + at, len}, &line);
        kin_text_print(&line, " %s-%u", r->name, below);
        put_key_rule(r, keys + i, end - i, at + len, below);
    }
    kin_text_print(&line, "\n");
    kin_text_put(r->gbnf, line.at, line.len);
    if (line.failed) r->gbnf->failed = true;
    kin_text_fini(&line);
}

void kin_schema_put_other_keys(const char *name, kin_str *keys, size_t n, bool is_bare, kin_text_buffer *gbnf) {
    enum { MAX_LENGTH = 256 }; // length of a key that is excluded byte by byte
    key_rules r = {.name = name,
                   .forbidden = is_bare ? NOT_BARE : "\"\\\\\\x00-\\x1F",
                   .more = is_bare ? "{0,63}" : "*",
                   .end = is_bare ? "\"\"" : "\"\\\"\"",
                   .is_bare = is_bare,
                   .gbnf = gbnf};
    size_t n_kept = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_bare ? !kin_schema_is_bare_key(keys[i]) : !can_be_written(keys[i])) continue;
        if (keys[i].len > most) most = keys[i].len;
        keys[n_kept++] = keys[i];
    }
    if (n_kept > 0) qsort(keys, n_kept, sizeof *keys, by_bytes);
    if (most > MAX_LENGTH) { // allow no other keys at all
        kin_text_print(gbnf, "%s ::= []\n", name);
        return;
    }
    kin_text_print(gbnf, "%s ::= %s %s-0\n", name, r.end, name); // the end is as the beginning
    put_key_rule(&r, keys, n_kept, 0, 0);
}
