// Background work: threads that must not slow down what the user waits for.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

// Makes the calling thread give way to all others, as far as the system allows.
void kin_background_thread(void);

// After a piece of such work that began at `began`: rests until it has taken a twentieth of the time, while `is_needed` says that
// others use what it works with (the disk), and until `stop` says so (NULL: never).
void kin_background_rest(kin_time began, bool (*is_needed)(void), const atomic_bool *stop);
