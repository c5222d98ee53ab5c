// A folder of a test's own. Its setup makes it; its teardown removes it with all that is in it.
#pragma once

#include <stdio.h>
#include <stdlib.h>

static char dir[64];

static inline int make_own_dir(const char *in, const char *name) {
    snprintf(dir, sizeof dir, "%s/kin-test-%s-XXXXXX", in, name);
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_dir(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}
