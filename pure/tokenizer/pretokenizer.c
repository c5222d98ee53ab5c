#define PCRE2_CODE_UNIT_WIDTH 8

#include "pure/tokenizer/pretokenizer.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- the expressions

// Unicode's White_Space. PCRE2's \s would also match U+180E.
#define SPACE "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S "[" SPACE "]"
#define NOT_S "[^" SPACE "]"

// Parts shared by several models. "(?i:...)" is spelled out, because with Unicode rules U+017F would also match an s.
#define CONTRACTION_LOWER "'s|'t|'re|'ve|'m|'ll|'d"
#define CONTRACTION "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCTUATION " ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
#define PUNCTUATION_SLASH " ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*"
#define BLANKS S "*[\\r\\n]+|" S "+(?!" NOT_S ")|" S "+"

#define GPT2 CONTRACTION_LOWER "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" S "+(?!" NOT_S ")"
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" PUNCTUATION "|" BLANKS
#define QWEN2 CONTRACTION "|" WORD "|\\p{N}|" PUNCTUATION "|" BLANKS
#define QWEN35 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS

// Letters except ASCII lower case, and letters except ASCII upper case.
#define UPPER "[^\\P{L}a-z]"
#define LOWER "[^\\P{L}A-Z]"
#define TEKKEN                                                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*|\\p{N}|" PUNCTUATION_SLASH "|" BLANKS
#define GPT4O                                                                                                                    \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+(?:" CONTRACTION ")?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*(?:" CONTRACTION   \
    ")?"                                                                                                                         \
    "|\\p{N}{1,3}|" PUNCTUATION_SLASH "|" BLANKS

// Cased letters, as listed by DeepSeek's tokenizer.
#define DEEPSEEK_CASED                                                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"             \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"               \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"                 \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                            \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                            \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"           \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                            \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"           \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"           \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"           \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                            \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"                          \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"                  \
    "\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_ASIAN "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK3_WORDS                                                                                                          \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                        \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS

// Chinese characters, and words without them. llama.cpp cuts neither at capitals nor keeps combining marks with their letters,
// unlike Kimi's tokenizer.
#define HAN                                                                                                                      \
    "\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{faff}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2ebef}"                        \
    "\\x{2f800}-\\x{2fa1f}"
#define KIMI_K2 "[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}" HAN "]+(?:" CONTRACTION ")?|\\p{N}{1,3}|" PUNCTUATION "|" BLANKS

enum { MAX_STAGES = 6 };

static const char *const stages_gpt2[MAX_STAGES] = {GPT2};
static const char *const stages_llama3[MAX_STAGES] = {LLAMA3};
static const char *const stages_qwen2[MAX_STAGES] = {QWEN2};
static const char *const stages_laguna[MAX_STAGES] = {"[^\\n]+|[\\n]+", QWEN2};
static const char *const stages_qwen35[MAX_STAGES] = {QWEN35};
static const char *const stages_tekken[MAX_STAGES] = {TEKKEN};
static const char *const stages_gpt4o[MAX_STAGES] = {GPT4O};
static const char *const stages_kimi_k2[MAX_STAGES] = {KIMI_K2};
static const char *const stages_digits_gpt2[MAX_STAGES] = {"\\p{N}", GPT2};
static const char *const stages_falcon[MAX_STAGES] = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"};
static const char *const stages_default[MAX_STAGES] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"};
static const char *const stages_deepseek_coder[MAX_STAGES] = {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_ASIAN, "\\p{N}"};
static const char *const stages_deepseek3[MAX_STAGES] = {
    "\\p{N}{1,3}",
    "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
    DEEPSEEK3_WORDS,
};
static const char *const stages_deepseek_llm[MAX_STAGES] = {
    "[\\r\\n]",
    S "?[" DEEPSEEK_CASED "]+",
    S "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
    "(?<!" S ")" S "++\\z", // "\s+$", written so that a run of spaces elsewhere is scanned only once
    DEEPSEEK_ASIAN,
    "\\p{N}+",
};

typedef struct entry {
    const char *name;
    const char *const *stages; // [MAX_STAGES], NULL after the last
    kin_pretokenizer_traits traits;
} entry;

static const entry entries[] = {
    {"default", stages_default, {0}},
    {"gpt-2", stages_gpt2, {0}},
    {"phi-2", stages_gpt2, {0}},
    {"mpt", stages_gpt2, {0}},
    {"olmo", stages_gpt2, {0}},
    {"exaone4", stages_gpt2, {0}},
    {"gigachat", stages_gpt2, {0}},
    {"granite-docling", stages_gpt2, {0}},
    {"llama-bpe", stages_llama3, {.ignore_merges = true, .add_bos = true}},
    {"llama3", stages_llama3, {.ignore_merges = true, .add_bos = true}},
    {"llama-v3", stages_llama3, {.ignore_merges = true, .add_bos = true}},
    {"falcon3", stages_llama3, {.ignore_merges = true, .add_bos = true}},
    {"lfm2", stages_llama3, {.ignore_merges = true, .add_bos = true}},
    {"pixtral", stages_llama3, {.ignore_merges = true, .add_bos = true}},
    {"dbrx", stages_llama3, {0}},
    {"smaug-bpe", stages_llama3, {0}},
    {"glm4", stages_llama3, {0}},
    {"chatglm-bpe", stages_llama3, {0}},
    {"qwen2", stages_qwen2, {0}},
    {"deepseek-r1-qwen", stages_qwen2, {0}},
    {"deepseek-r1-distill-qwen", stages_qwen2, {0}},
    {"stablelm2", stages_qwen2, {0}},
    {"hunyuan", stages_qwen2, {0}},
    {"megrez", stages_qwen2, {0}},
    {"solar-open", stages_qwen2, {0}},
    {"laguna", stages_laguna, {0}},
    {"qwen35", stages_qwen35, {0}},
    {"tekken", stages_tekken, {.ignore_merges = true, .add_bos = true}},
    {"gpt-4o", stages_gpt4o, {0}},
    {"llama4", stages_gpt4o, {0}},
    {"kanana2", stages_gpt4o, {0}},
    {"minimax-m2", stages_gpt4o, {0}},
    {"kimi-k2", stages_kimi_k2, {0}},
    {"smollm", stages_digits_gpt2, {0}},
    {"starcoder", stages_digits_gpt2, {0}},
    {"refact", stages_digits_gpt2, {0}},
    {"command-r", stages_digits_gpt2, {0}},
    {"codeshell", stages_digits_gpt2, {0}},
    {"exaone", stages_digits_gpt2, {0}},
    {"minerva-7b", stages_digits_gpt2, {0}},
    {"falcon", stages_falcon, {0}},
    {"deepseek-llm", stages_deepseek_llm, {0}},
    {"deepseek-coder", stages_deepseek_coder, {0}},
    {"deepseek-v3", stages_deepseek3, {0}},
    {"hunyuan-dense", stages_deepseek3, {0}},
    {"joyai-llm", stages_deepseek3, {0}},
};

enum { N_ENTRIES = sizeof entries / sizeof *entries };

// ---- finding and compiling

struct kin_pretokenizer {
    const char *name;
    pcre2_code *codes[MAX_STAGES];
    int n_stages;
};

static const entry *find_entry(const char *name) {
    for (size_t i = 0; name && i < N_ENTRIES; i++) {
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    }
    return NULL;
}

bool kin_pretokenizer_find(const char *name, kin_pretokenizer_traits *traits) {
    const entry *entry = find_entry(name);
    *traits = entry ? entry->traits : (kin_pretokenizer_traits){0};
    return entry != NULL;
}

static int unknown_name(const char *name, kin_err *err) {
    char list[700] = "";
    size_t n = 0;
    for (size_t i = 0; i < N_ENTRIES; i++) {
        size_t len = strlen(entries[i].name);
        if (n + len + 3 > sizeof list) break;
        if (i > 0) n = (size_t)(stpcpy(list + n, ", ") - list);
        n = (size_t)(stpcpy(list + n, entries[i].name) - list);
    }
    return kin_err_set(err, "the pre-tokenizer '%.40s' is not supported (supported: %s)", name ? name : "", list);
}

static int pcre_failed(const kin_pretokenizer *pre, int stage, int code, kin_err *err) {
    char message[160];
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message) < 0) strcpy(message, "PCRE2 error");
    return kin_err_set(err, "pre-tokenizer %s: expression %d: %s (%d)", pre->name, stage + 1, message, code);
}

static int compile(kin_pretokenizer *pre, const char *expression, kin_err *err) {
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    if (!code) return pcre_failed(pre, pre->n_stages, error, err);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // a failure is harmless: without JIT matching is only slower
    pre->codes[pre->n_stages++] = code;
    return 0;
}

int kin_pretokenizer_new(kin_pretokenizer **out, const char *name, kin_err *err) {
    *out = NULL;
    const entry *entry = find_entry(name);
    if (!entry) return unknown_name(name, err);
    kin_pretokenizer *pre = calloc(1, sizeof *pre);
    if (!pre) return kin_err_set(err, "pre-tokenizer %s: out of memory", name);
    pre->name = entry->name;
    for (int i = 0; i < MAX_STAGES && entry->stages[i]; i++) {
        if (compile(pre, entry->stages[i], err) == 0) continue;
        kin_pretokenizer_free(pre);
        return KIN_FAIL;
    }
    *out = pre;
    return 0;
}

void kin_pretokenizer_free(kin_pretokenizer *pre) {
    if (!pre) return;
    for (int i = 0; i < pre->n_stages; i++) pcre2_code_free(pre->codes[i]);
    free(pre);
}

// ---- splitting

typedef struct job {
    const kin_pretokenizer *pre;
    pcre2_match_data *match; // shared by the stages: each copies its match before the next stage runs
    kin_pretokenizer_sink sink;
    void *user;
} job;

// Passes text [len] through the expressions from `stage` on. The recursion depth is at most MAX_STAGES.
static int split(const job *job, int stage, const char *text, size_t len, kin_err *err) {
    if (len == 0) return 0;
    if (stage == job->pre->n_stages) return job->sink(job->user, text, len, err);

    size_t done = 0;
    while (done < len) {
        int rc = pcre2_match(job->pre->codes[stage], (PCRE2_SPTR)text, len, done, PCRE2_NO_UTF_CHECK, job->match, NULL);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return pcre_failed(job->pre, stage, rc, err);
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(job->match);
        size_t begin = ends[0], end = ends[1];
        kin_assert(end > begin); // no expression matches the empty string
        if (split(job, stage + 1, text + done, begin - done, err) < 0) return KIN_FAIL;
        if (split(job, stage + 1, text + begin, end - begin, err) < 0) return KIN_FAIL;
        done = end;
    }
    return split(job, stage + 1, text + done, len - done, err);
}

int kin_pretokenizer_split(const kin_pretokenizer *pre, const char *text, size_t len, kin_pretokenizer_sink sink, void *user,
                           kin_err *err) {
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match) return kin_err_set(err, "pre-tokenizer %s: out of memory", pre->name);
    job job = {pre, match, sink, user};
    int rc = split(&job, 0, text, len, err);
    pcre2_match_data_free(match);
    return rc;
}
