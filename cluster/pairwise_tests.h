// Pairwise tests: a device that joins measures its links to the head and to all other devices. The membership gets its DEVICE
// message only after that, so that the first plan with the device knows the links.
//
// A test ends when all its measurements were answered, or after TEST_NS; the plan then uses what is known.
//
// Owner: cluster/head/link_tests.h. Thread: the loop's.
#pragma once

#include "base/clock.h"
#include "pure/proto/message.h"

typedef struct kin_pairwise_tests kin_pairwise_tests;

// Called when the test of the device on that link is over; `device`, its message, is valid for the call. Only from
// kin_pairwise_tests_tick.
typedef void (*kin_pairwise_tests_over)(void *user, uint32_t link, const kin_proto_device *device);

int kin_pairwise_tests_open(kin_pairwise_tests **out, kin_pairwise_tests_over over, void *user, kin_err *err);
void kin_pairwise_tests_close(kin_pairwise_tests *tests); // NULL is allowed

// Begins a test of a device that sent its message and was asked for n_asked measurements. False: no free place or no memory.
bool kin_pairwise_tests_begin(kin_pairwise_tests *tests, uint32_t link, const kin_proto_device *device, int n_asked,
                              kin_time now);

// Counts an answer. False: the test does not exist, or is over.
bool kin_pairwise_tests_answered(kin_pairwise_tests *tests, uint32_t link);
// Updates the device's message. False: there is no test.
bool kin_pairwise_tests_renew(kin_pairwise_tests *tests, uint32_t link, const kin_proto_device *device);
void kin_pairwise_tests_lost(kin_pairwise_tests *tests, uint32_t link);

// Call it at least ten times a second.
void kin_pairwise_tests_tick(kin_pairwise_tests *tests, kin_time now);
