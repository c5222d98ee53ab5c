// A console (node/console.h) that shows nothing and can ask nobody, for tests of what talks to a person.
#pragma once

#include "node/console.h"

kin_console kin_silent_console(atomic_bool *stop); // stop is borrowed
