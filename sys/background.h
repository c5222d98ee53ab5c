// Background work: threads that must not slow down the foreground.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

// Lowers the priority of the calling thread below all others, as far as the system allows.
void kin_background_thread(void);

// Call after a piece of background work that started at `began`: while `is_needed` says that others use the same resource (the
// disk), it sleeps until the work has taken only a twentieth of the time. Returns early once `stop` is set (NULL: never).
void kin_background_rest(kin_time began, bool (*is_needed)(void), const atomic_bool *stop);
