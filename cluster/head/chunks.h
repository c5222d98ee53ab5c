// The model's parts that devices fetch: the head serves them from its file, and tells each device what the others have.
//
// Owner: kin_cluster. Thread: the loop's.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head_options.h"
#include "cluster/ring_member.h"
#include "fetch/chunk_store.h"

typedef struct kin_cluster_chunks {
    const kin_cluster_options *o;
    const kin_cluster_devices *devices;
    kin_ring_member *ring; // its chunk server is opened here
    kin_chunk_store *store;
} kin_cluster_chunks;

void kin_cluster_chunks_begin(kin_cluster_chunks *chunks); // in the loop's thread, once it runs
void kin_cluster_chunks_end(kin_cluster_chunks *chunks);   // there, too; after the chunk server has ended

// Handles a device's HAVE: lets the other devices fetch from this one what it has of the model.
void kin_cluster_chunks_relay(const kin_cluster_chunks *chunks, uint32_t from, kin_proto_have *have);
