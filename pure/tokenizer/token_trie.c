#include "pure/tokenizer/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "pure/tokenizer/token_reference.h"

typedef struct entry {
    kin_str text;
    int32_t id;
} entry;

kin_str kin_token_trie_text(const kin_token_trie *trie, int32_t id) {
    kin_token_type type = kin_vocab_type(trie->vocab, id);
    bool is_text = type == KIN_TOKEN_NORMAL || type == KIN_TOKEN_USER_DEFINED || type == KIN_TOKEN_BYTE;
    kin_str piece = kin_vocab_piece(trie->vocab, id), none = {"", 0};
    if (kin_vocab_is_eog(trie->vocab, id)) return none;
    if (type == KIN_TOKEN_CONTROL) return (kin_str){trie->references[id], KIN_TOKEN_REFERENCE_BYTES};
    bool is_matched = is_text && piece.len > 0 && piece.len <= UINT16_MAX;
    return is_matched && !memchr(piece.at, KIN_TOKEN_REFERENCE_FIRST, piece.len) ? piece : none;
}

// Returns the number of characters of a plain text; 0 if it is not plain.
static uint32_t plain_length(kin_str text) {
    uint32_t n = 0;
    for (size_t at = 0; at < text.len; n++) {
        int len = kin_utf8_len(text.at + at, text.len - at);
        uint8_t c = (uint8_t)text.at[at];
        if (len <= 0 || c < 0x20 || c == 0x7f || c == '"' || c == '\\') return 0;
        at += (size_t)len;
    }
    return n;
}

// ---- trees

static int by_text(const void *a, const void *b) {
    const entry *x = a, *y = b;
    size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order = memcmp(x->text.at, y->text.at, n);
    if (order != 0) return order;
    if (x->text.len != y->text.len) return x->text.len < y->text.len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static size_t common_length(kin_str a, kin_str b) {
    size_t n = 0;
    while (n < a.len && n < b.len && a.at[n] == b.at[n]) n++;
    return n;
}

static uint32_t count_nodes(const entry *entries, size_t n) {
    uint32_t n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        n_nodes += (uint32_t)(entries[i].text.len - (i > 0 ? common_length(entries[i - 1].text, entries[i].text) : 0));
    }
    return n_nodes;
}

// Builds a tree from sorted entries [n]. open: the node at each depth of the previous text, with room for the longest one.
static int build_tree(kin_token_trie *trie, kin_token_tree *tree, const entry *entries, size_t n, uint32_t *open) {
    tree->nodes = malloc(((size_t)count_nodes(entries, n) + 1) * sizeof *tree->nodes);
    if (!tree->nodes) return KIN_FAIL;
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        kin_str text = entries[i].text;
        size_t shared = i > 0 ? common_length(entries[i - 1].text, text) : 0;
        if (i > 0 && shared == text.len && shared == entries[i - 1].text.len) {
            int32_t *same = trie->same[trie->n_same++];
            same[0] = entries[i].id;
            same[1] = tree->nodes[tree->n_nodes - 1].token;
            continue;
        }
        while (depth > shared) tree->nodes[open[--depth]].end = tree->n_nodes;
        for (; depth < text.len; depth++) {
            open[depth] = tree->n_nodes;
            tree->nodes[tree->n_nodes++] =
                (kin_token_node){.token = trie->n_tokens, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)text.at[depth]};
        }
        tree->nodes[tree->n_nodes - 1].token = entries[i].id;
    }
    while (depth > 0) tree->nodes[open[--depth]].end = tree->n_nodes;
    return 0;
}

// ---- the whole trie

static void add_to_sets(kin_token_trie *trie, int32_t id, uint32_t n_chars) {
    if (n_chars > trie->longest_plain) trie->longest_plain = n_chars;
    if (n_chars >= KIN_TOKEN_TRIE_N_SETS) trie->long_plain[trie->n_long_plain++] = (kin_long_token){id, n_chars};
    for (uint32_t i = n_chars; i < KIN_TOKEN_TRIE_N_SETS; i++)
        kin_token_set_add(trie->plain_sets + (size_t)i * trie->n_words, id);
}

static int fill(kin_token_trie *trie) {
    size_t n_tokens = (size_t)trie->n_tokens, n_plain = 0, n_other = n_tokens; // plain ones from the left, others from the right
    entry *entries = malloc((n_tokens + 1) * sizeof *entries);
    uint32_t *open = NULL;
    int rc = KIN_FAIL;
    if (!entries) goto done;
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        kin_str text = kin_token_trie_text(trie, id);
        uint32_t n_chars = plain_length(text);
        if (kin_vocab_is_eog(trie->vocab, id)) kin_token_set_add(trie->ends, id);
        if (text.len == 0) continue;
        if (text.len > trie->longest) trie->longest = (uint32_t)text.len;
        if (n_chars > 0) add_to_sets(trie, id, n_chars);
        entries[n_chars > 0 ? n_plain++ : --n_other] = (entry){text, id};
    }
    open = malloc(((size_t)trie->longest + 1) * sizeof *open);
    if (!open) goto done;
    qsort(entries, n_plain, sizeof *entries, by_text);
    qsort(entries + n_other, n_tokens - n_other, sizeof *entries, by_text);
    if (build_tree(trie, &trie->plain, entries, n_plain, open) == 0 &&
        build_tree(trie, &trie->other, entries + n_other, n_tokens - n_other, open) == 0)
        rc = 0;

done:
    free(open);
    free(entries);
    return rc;
}

int kin_token_trie_new(kin_token_trie **out, const kin_vocab *vocab, kin_err *err) {
    *out = NULL;
    kin_token_trie *trie = calloc(1, sizeof *trie);
    if (!trie) return kin_err_set(err, "token trie: out of memory");
    trie->vocab = vocab;
    trie->n_tokens = kin_vocab_n_tokens(vocab);
    trie->n_words = (uint32_t)trie->n_tokens / 64 + 1;
    trie->same = malloc(((size_t)trie->n_tokens + 1) * sizeof *trie->same);
    trie->plain_sets = calloc((size_t)KIN_TOKEN_TRIE_N_SETS * trie->n_words + 1, sizeof *trie->plain_sets);
    trie->long_plain = malloc(((size_t)trie->n_tokens + 1) * sizeof *trie->long_plain);
    trie->references = malloc(((size_t)trie->n_tokens + 1) * sizeof *trie->references);
    for (int32_t id = 0; trie->references && id < trie->n_tokens; id++) kin_token_reference_put(trie->references[id], id);
    trie->ends = calloc((size_t)trie->n_words + 1, sizeof *trie->ends);
    bool ok = trie->same && trie->plain_sets && trie->long_plain && trie->references && trie->ends;
    if (!ok || fill(trie) != 0) {
        kin_token_trie_free(trie);
        return kin_err_set(err, "token trie: out of memory");
    }
    *out = trie;
    return 0;
}

void kin_token_trie_free(kin_token_trie *trie) {
    if (!trie) return;
    free(trie->ends);
    free(trie->references);
    free(trie->long_plain);
    free(trie->plain_sets);
    free(trie->same);
    free(trie->other.nodes);
    free(trie->plain.nodes);
    free(trie);
}

void kin_token_trie_add_plain(const kin_token_trie *trie, uint32_t n_chars, uint64_t *set) {
    uint32_t i = n_chars < KIN_TOKEN_TRIE_N_SETS ? n_chars : KIN_TOKEN_TRIE_N_SETS - 1;
    const uint64_t *plain = trie->plain_sets + (size_t)i * trie->n_words;
    if (n_chars == 0) return;
    for (uint32_t word = 0; word < trie->n_words; word++) set[word] |= plain[word];
    for (uint32_t k = 0; k < trie->n_long_plain; k++) {
        if (trie->long_plain[k].n_chars <= n_chars) kin_token_set_add(set, trie->long_plain[k].id);
    }
}

void kin_token_trie_finish(const kin_token_trie *trie, uint64_t *set) {
    set[trie->n_tokens / 64] &= ~((uint64_t)1 << (trie->n_tokens % 64));
    for (uint32_t i = 0; i < trie->n_same; i++) {
        if (kin_token_set_has(set, trie->same[i][1])) kin_token_set_add(set, trie->same[i][0]);
    }
}
