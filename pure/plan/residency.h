// Residency: selects the weight blocks that stay in memory when not all of them fit.
//
// A decode step reads every block once, in a fixed cyclic order. For such a scan a fixed resident set is optimal; the other
// blocks are read from the disk each time. Loading hides best behind computing if the streamed blocks are spread evenly over the
// cycle, so that no two loads wait for each other (TPI-LLM's "retain one FFN block every T" is the special case of equal blocks).
// We give all blocks one order of leaving memory in which every prefix is spread evenly. The budget then only determines how many
// blocks leave, and a change of the budget moves few blocks.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Writes order // [n]: the blocks in the order in which they leave memory as the budget shrinks. The first n_first ones leave
// before all others. bytes // [n]: their sizes in cyclic order; a block of 0 bytes never leaves and comes last.
void kin_residency_order(const uint64_t *bytes, size_t n, size_t n_first, uint32_t *order);

// Writes resident // [n]: the blocks that stay within `budget` bytes. Returns the sum of their sizes, at most `budget`.
// Blocks leave in `order` until the rest fits; then blocks that fit into the remaining room come back.
uint64_t kin_residency_choose(const uint64_t *bytes, size_t n, const uint32_t *order, uint64_t budget, bool *resident);
