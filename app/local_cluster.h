// A local cluster for `kin demo`: devices as processes, each with its own home in a folder that is removed at the end.
//
//   kin demo (the head) ──── pipe: closed when the head ends, however it ends ────► supervisor ──► device, device, ...
//                       ◄─── pipe and SIGUSR1: a device ended ───────────────────
//
// The supervisor is a process in its own session, so that Ctrl-C reaches only the head. When the pipe closes it stops the
// devices, waits for them and removes the folder. If the supervisor itself is killed, the devices end with it (on Linux), and the
// head removes the folder.
//
// Owner and thread: the command's main thread. Open it before other threads are started.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { KIN_LOCAL_CLUSTER_DEVICES = 8, KIN_LOCAL_CLUSTER_PATH = 512 };

typedef struct kin_local_cluster {
    char folder[KIN_LOCAL_CLUSTER_PATH];
    int n_devices;
    uint16_t port; // the head's, on 127.0.0.1
    pid_t supervisor;
    int to_supervisor, from_supervisor;
} kin_local_cluster;

// Creates the folder with the homes, and starts n_devices [1, KIN_LOCAL_CLUSTER_DEVICES] that join a head at 127.0.0.1 with the
// key from the head's home. If one of them ends by itself, kin_app_stop is set.
int kin_local_cluster_open(kin_local_cluster *local_cluster, int n_devices, kin_err *err);

// Returns PATH inside the head's home.
const char *kin_local_cluster_path(const kin_local_cluster *local_cluster, const char *path, char buf[KIN_LOCAL_CLUSTER_PATH]);

// True if a device or the supervisor ended by itself; *how is a sentence that describes how.
bool kin_local_cluster_lost(kin_local_cluster *local_cluster, kin_err *how);

// Stops all processes, waits for them and removes the folder. A zeroed struct is allowed.
void kin_local_cluster_close(kin_local_cluster *local_cluster);
