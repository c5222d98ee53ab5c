// Suggests the closest known word for a misspelled one.
#pragma once

typedef struct kin_suggestion {
    const char *word; // as typed
    const char *best; // NULL: no known word is close
    int distance;
} kin_suggestion;

// Considers one known word, which is borrowed. A word is close if the typed word is its beginning, or if at most two letters, and
// at most half of them, are missing, wrong, extra or swapped.
void kin_suggest(kin_suggestion *suggestion, const char *known);
