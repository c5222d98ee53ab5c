// Background work: threads that must not slow down what the user waits for.
#pragma once

// Makes the calling thread give way to all others, as far as the system allows.
void kin_background_thread(void);
