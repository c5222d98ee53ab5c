// A console (cluster/console.h) that shows nothing and answers no questions, for tests of code that talks to a person.
#pragma once

#include "cluster/console.h"

kin_console kin_silent_console(atomic_bool *stop); // stop is borrowed
