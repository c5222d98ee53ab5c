// Registries of models: lists the files that a name may mean, and knows their addresses.
//
// Blocking; any thread.
#pragma once

#include "pull/options.h"
#include "pure/pull/model_ref.h"
#include "pure/pull/variants.h"

typedef struct kin_listing {
    kin_repo repo;
    char base[600];    // address of the registry
    const char *token; // for it; NULL: none
    char etag[200];    // of a file on the web
    bool accepts_ranges;
} kin_listing;

int kin_registry_list(const kin_pull_options *o, const kin_model_ref *ref, kin_listing *listing, kin_err *err);
void kin_listing_fini(kin_listing *listing);

// Writes the address of a file.
int kin_registry_address(const kin_listing *listing, const kin_model_ref *ref, const kin_repo_file *file, char *url, size_t size,
                         kin_err *err);
