// KIN_SANITIZED: 1 under AddressSanitizer or ThreadSanitizer, where tests with much computing may do less; durations are tested
// without sanitizers.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KIN_SANITIZED 1
#endif
#endif
#if !defined(KIN_SANITIZED) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define KIN_SANITIZED 1
#endif
#ifndef KIN_SANITIZED
#define KIN_SANITIZED 0
#endif
