// Upper and lower case of characters: Latin, Greek, Cyrillic, Armenian, Georgian and full-width letters, by their simple mappings
// of one character to one. Other characters are their own.
#pragma once

#include <stdint.h>

uint32_t kin_upper_of(uint32_t c);
uint32_t kin_lower_of(uint32_t c);
