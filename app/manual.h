// Help, the manual page and the completions for bash and zsh, all generated from the commands and their option tables. Printed to
// stdout.
#pragma once

#include "app/app.h"

void kin_manual_overview(void);
void kin_manual_command(const kin_command *command);

// word: "--man", "--bash" or "--zsh". Returns KIN_FAIL for any other word.
int kin_manual_print(const char *word);
