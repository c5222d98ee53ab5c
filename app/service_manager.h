// The program that starts services with the machine: systemd on Linux, launchd on macOS. kin writes a file for it, and calls its
// command (systemctl, launchctl).
//
// Plain functions. Thread: the main thread.
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "pure/text/text_buffer.h"

// Installs kin serve or kin join as a service, for the logged-in user or for the whole system.
typedef struct kin_service_unit {
    const char *command; // "serve" or "join"
    bool is_system;
    char name[64];       // as the manager knows it: "kin-serve.service", "kin.serve"
    char path[PATH_MAX]; // of its file
} kin_service_unit;

typedef struct kin_service_manager {
    const char *name, *command; // "systemd", "systemctl"
    // Fills name and path from the other two.
    int (*init)(kin_service_unit *unit, kin_err *err);
    // Writes the text of the file. program: its path; words [n]: the command and its options.
    int (*write)(const kin_service_unit *unit, const char *program, char *const *words, int n, kin_text_buffer *out,
                 kin_err *err);
    // The file is there: the service runs now and with every start of the machine, or no more.
    int (*start)(const kin_service_unit *unit, kin_err *err);
    int (*stop)(const kin_service_unit *unit, kin_err *err);
    int (*removed)(const kin_service_unit *unit, kin_err *err); // the file is gone
    // Prints what the manager says about it. Returns its command's status; -1: it could not be run.
    int (*show)(const kin_service_unit *unit);
    // The command that shows what the service says, and how a service of a user runs while that user is not logged in (NULL: it
    // does). Texts live until the next call.
    const char *(*log_hint)(const kin_service_unit *unit);
    const char *(*linger_hint)(const kin_service_unit *unit);
} kin_service_manager;

// name: "systemd" or "launchd"; NULL: this system's.
const kin_service_manager *kin_service_manager_find(const char *name);

// Fails if its command is not in PATH: then this system has another manager.
int kin_service_manager_check(const kin_service_manager *manager, kin_err *err);
