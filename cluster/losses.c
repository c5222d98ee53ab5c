#include "cluster/losses.h"

#include <string.h>

bool kin_losses_add(kin_losses *l, uint64_t progress) {
    if (progress > l->progress) l->n = 0;
    l->progress = progress;
    if (++l->n <= KIN_LOSSES_MOST) return true;
    l->n = 0;
    return false;
}

// Returns the length of a sentence without its reason, "(...)" at its end. The message about a broken link names two devices,
// each with its stage in brackets, and only its reason tells which one is lost: there the reason counts.
static int length_before_reason(const char *sentence) {
    const size_t n = strlen(sentence);
    const char *reason = n > 0 && sentence[n - 1] == ')' ? strrchr(sentence, '(') : NULL;
    return (int)(reason ? (size_t)(reason - sentence) : n);
}

bool kin_losses_is_news(kin_losses *l, const char *sentence, kin_time now) {
    const int n = length_before_reason(sentence);
    kin_err about;
    kin_err_set(&about, "%.*s", n, sentence);
    if (strcmp(about.text, l->last.text) == 0 && kin_clock_ms(l->last_at, now) < KIN_LOSSES_QUIET_S * 1e3) return false;
    l->last = about;
    l->last_at = now;
    return true;
}
