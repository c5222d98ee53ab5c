#include "node/losses.h"

#include <string.h>

bool kin_losses_add(kin_losses *l, uint64_t progress) {
    if (progress > l->progress) l->n = 0;
    l->progress = progress;
    if (++l->n <= KIN_LOSSES_MOST) return true;
    l->n = 0;
    return false;
}

// The length of what a sentence says before its reason: "(...)" at its end. A broken link names two devices, each with its stage
// in brackets, and which of them is lost only the reason tells: there it counts.
static int length_before_reason(const char *sentence) {
    const size_t n = strlen(sentence);
    const char *reason = n > 0 && sentence[n - 1] == ')' ? strrchr(sentence, '(') : NULL;
    return (int)(reason ? (size_t)(reason - sentence) : n);
}

bool kin_losses_is_news(kin_losses *l, const char *sentence, kin_time now) {
    const int n = length_before_reason(sentence);
    kin_err about;
    kin_err_set(&about, "%.*s", n, sentence);
    if (strcmp(about.text, l->said.text) == 0 && kin_clock_ms(l->said_at, now) < KIN_LOSSES_QUIET_S * 1e3) return false;
    l->said = about;
    l->said_at = now;
    return true;
}
