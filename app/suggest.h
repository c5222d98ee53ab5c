// What somebody meant who wrote a word that is not known: the nearest of those that are.
#pragma once

typedef struct kin_suggestion {
    const char *word; // as it was written
    const char *best; // NULL: nothing is near
    int distance;
} kin_suggestion;

// Looks at one word that is known; borrowed. Near: the beginning of one, or at most two letters are missing, wrong, too many or
// swapped, and at most half of them.
void kin_suggest(kin_suggestion *suggestion, const char *known);
