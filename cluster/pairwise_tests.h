// Pairwise tests: a device that joins measures its links to the head and to all other devices, and only then the membership
// gets its DEVICE message, so that the first plan with it knows the links.
//
// A test ends when all its measurements were answered, or after TEST_NS: then it is planned with what is known.
//
// Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include "base/clock.h"
#include "pure/proto/message.h"

typedef struct kin_pairwise_tests kin_pairwise_tests;

// The test of the device on that link is over; `device` is what it said, for the call. Comes from kin_pairwise_tests_tick
// only.
typedef void (*kin_pairwise_tests_over)(void *user, uint32_t link, const kin_proto_device *device);

int kin_pairwise_tests_open(kin_pairwise_tests **out, kin_pairwise_tests_over over, void *user, kin_err *err);
void kin_pairwise_tests_close(kin_pairwise_tests *tests); // NULL is allowed

// A device said what it has, and was asked for so many measurements. False: no place or no memory; it is not kept.
bool kin_pairwise_tests_begin(kin_pairwise_tests *tests, uint32_t link, const kin_proto_device *device, int n_asked,
                              kin_time now);

// One of them was answered. False: there is no test (any more).
bool kin_pairwise_tests_answered(kin_pairwise_tests *tests, uint32_t link);
// It said again what it has. False: there is no test.
bool kin_pairwise_tests_renew(kin_pairwise_tests *tests, uint32_t link, const kin_proto_device *device);
void kin_pairwise_tests_lost(kin_pairwise_tests *tests, uint32_t link);

// At least ten times a second.
void kin_pairwise_tests_tick(kin_pairwise_tests *tests, kin_time now);
