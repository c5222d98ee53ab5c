// Sanitizers: an allocation that cannot be gives NULL, as it does without them.
//
// Included by one file of a test that asks for more memory than there is.
#pragma once

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}
