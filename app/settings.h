// The file of settings: values of options for every kin that this user starts (pure/text/settings.h has its form).
//
// Its names are those of options, its sections are commands. A line is refused if no command, or not the section's, has the
// option. Owner: the program; strings live until it ends. Thread: the main thread.
#pragma once

#include <stddef.h>

#include "app/app.h"
#include "pure/text/settings.h"

// Writes the file's path: $KIN_CONFIG, otherwise kin.conf beside the cluster's key. NULL: there is no home directory.
const char *kin_settings_path(char *buf, size_t n);

// Reads the file, once. A file that does not exist has no settings. Fails with "PATH:LINE: reason".
int kin_settings_read(kin_err *err);

// Makes the settings of a command, and those of all commands, the presets of options (app/options.h).
void kin_settings_use(const kin_command *command);

// The settings in the file's order // [*n]
const kin_setting *kin_settings_list(int *n);

// True if a command has the option.
bool kin_settings_concern(const char *option, const kin_command *command);
