// Tells the service manager (systemd) what this process is doing: the protocol of sd_notify, without its library.
//
// Thread: any. Without a service manager (no NOTIFY_SOCKET in the environment) nothing happens.
#pragma once

#include <stdbool.h>

// Sends lines such as "READY=1" or "STATUS=loading". Returns true if they were sent.
bool kin_notify(const char *state);
