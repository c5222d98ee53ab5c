// The demo model, embedded in the program: used if no -m is given.
#pragma once

#include <stddef.h>
#include <stdint.h>

const uint8_t *kin_demo_model_bytes(void);
size_t kin_demo_model_size(void);
