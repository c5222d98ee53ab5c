// Help, the manual page and the completions of bash and zsh: all of them from the commands and their tables of options.
// Printed to stdout.
#pragma once

#include "app/app.h"

void kin_manual_overview(void);
void kin_manual_command(const kin_command *command);

// word: "--man", "--bash", "--zsh". KIN_FAIL for another.
int kin_manual_print(const char *word);
