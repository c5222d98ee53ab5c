#include "pure/proto/refusal.h"

#include <string.h>

static const char *const words[] = {
    [KIN_REFUSAL_VERSION] = "version", [KIN_REFUSAL_FEATURE] = "feature",   [KIN_REFUSAL_MODEL] = "model",
    [KIN_REFUSAL_BUSY] = "busy",       [KIN_REFUSAL_IDENTITY] = "identity", [KIN_REFUSAL_DUPLICATE] = "twin",
    [KIN_REFUSAL_NO_HEAD] = "no head", [KIN_REFUSAL_OTHER] = "refused",
};

const char *kin_refusal_word(kin_refusal refusal) {
    return words[refusal];
}

kin_refusal kin_refusal_of(const char *sentence) {
    for (int i = 0; i < KIN_REFUSAL_OTHER; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(sentence, words[i], n) == 0 && sentence[n] == ':') return (kin_refusal)i;
    }
    return KIN_REFUSAL_OTHER;
}

const char *kin_refusal_words(const char *sentence) {
    kin_refusal refusal = kin_refusal_of(sentence);
    if (refusal == KIN_REFUSAL_OTHER) return sentence;
    const char *at = sentence + strlen(words[refusal]) + 1;
    while (*at == ' ') at++;
    return at;
}

bool kin_refusal_is_final(kin_refusal refusal) {
    return refusal == KIN_REFUSAL_VERSION || refusal == KIN_REFUSAL_FEATURE || refusal == KIN_REFUSAL_IDENTITY;
}
