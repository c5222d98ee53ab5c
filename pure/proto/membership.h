// The membership: the head's knowledge of its devices, and their current epoch.
//
// A step function: the driver reports an event and the time, and the membership answers with actions to carry out in order. It
// opens no links, reads no clock and makes no plans: links detect by themselves that the other side is silent (net/link.h), and
// the planner decides which device computes which layers. Of a plan, the membership knows only the members in ring order, and
// whether it equals the last one.
//
//     joins ─► facts ─► ask the planner ─► plan: epoch + 1 ─► every member ready, every ring link open ─► the ring is up
//                            ▲                                                                              │
//                            ├── a device joined, times drift: a better plan is prepared beside it ◄──────────┤
//                            └── a member or a ring link lost, a member failed: the epoch ends ◄──────────────┘
//
// While the ring is up, a better plan does not replace it at once. Its members are told to fetch and pack what it needs
// (PREFETCH), and the epoch in force goes on. When all members have everything, requests stop between two steps (yields), and the
// next epoch begins. The better plan is dropped if a member is lost, cannot fetch, or makes no progress for too long.
//
// If a member of the better plan needs hours for its weights, the planner is asked for the best plan without the slow members; if
// that is better than the plan in force, it comes first. Once it is in force, or if there is none, all devices are planned with
// again, and the slow ones continue with what they have fetched.
//
// An epoch is one plan in force; its number only grows (pure/proto/epoch.h), and ring frames of any other epoch are dropped. When
// it ends, the running requests fail with a sentence that names device and stage. Devices keep what they have loaded, so the next
// epoch is cheap for a device whose windows stay the same.
//
// The head itself is not in the membership: the ring is up when the devices are ready; the driver knows when the head's own shard
// is loaded.
//
// Owner: the head's driver. Thread: its loop's. Actions and device pointers are valid until the next step.
#pragma once

#include "pure/proto/device_events.h"
#include "pure/proto/membership_view.h"

kin_membership_options kin_membership_options_default(void);

// NULL: out of memory.
kin_membership *kin_membership_new(const kin_membership_options *options, kin_time now);
void kin_membership_free(kin_membership *membership);

// `now` never decreases. Events about links that the membership no longer knows, and about epochs that are over, change nothing.
const kin_membership_actions *kin_membership_step(kin_membership *membership, kin_time now, const kin_membership_event *event);
