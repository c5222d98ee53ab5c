// Upper and lower case of characters: simple one-to-one mappings for Latin, Greek, Cyrillic, Armenian, Georgian and full-width
// letters. Other characters are returned unchanged.
#pragma once

#include <stdint.h>

uint32_t kin_upper_of(uint32_t c);
uint32_t kin_lower_of(uint32_t c);
