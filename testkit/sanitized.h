// KIN_SANITIZED: 1 under AddressSanitizer or ThreadSanitizer, where a test that computes much may compute less: how long things
// take is seen without them.
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
