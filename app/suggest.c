#include "app/suggest.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_LETTERS = 32, MAX_DISTANCE = 2 };

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

// Returns the edit distance with swaps of neighbours (optimal string alignment). a, b: at most MAX_LETTERS.
static int distance_of(const char *a, int n_a, const char *b, int n_b) {
    int rows[3][MAX_LETTERS + 1]; // for the last two letters of a and this one
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (int j = 0; j <= n_b; j++) last[j] = j;
    for (int i = 1; i <= n_a; i++) {
        now[0] = i;
        for (int j = 1; j <= n_b; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < now[j]) now[j] = before[j - 2] + 1;
        }
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[n_b];
}

void kin_suggest(kin_suggestion *s, const char *known) {
    size_t n = strlen(s->word), n_known = strlen(known);
    if (n > MAX_LETTERS || n_known > MAX_LETTERS) return;
    bool begins = n >= 2 && strncmp(s->word, known, n) == 0;
    int distance = begins ? 0 : distance_of(s->word, (int)n, known, (int)n_known);
    if (distance > MAX_DISTANCE || 2 * distance > (int)n || (s->best && distance >= s->distance)) return;
    s->best = known;
    s->distance = distance;
}
