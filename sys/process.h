// Other processes of this machine: whether one is about to end.
//
// A process that was killed keeps its locks and its ports until its memory is given back, which takes a while where that is much.
#pragma once

#include <stdbool.h>

// Whether that process was killed, or ends by itself, and is still there. False where the system does not say.
bool kin_process_is_ending(int pid);

// Waits until it has ended, at most so long. False: it has not. True where the system does not say.
bool kin_process_wait_end(int pid, int timeout_ms);
