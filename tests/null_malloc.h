// Makes the sanitizers return NULL for an allocation that is too large, as malloc does without them.
//
// Included by one file of a test that requests more memory than the machine has.
#pragma once

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}
