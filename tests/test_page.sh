#!/bin/sh
# The page's modules that need no browser (tests/page), in node.
#
# Skipped where there is no node (apt-get install nodejs).
set -u
if ! command -v node >/dev/null; then
    echo 'skipped: apt-get install nodejs'
    exit 77
fi
cd "$(dirname "$0")/page" || exit 1
node --test ./test_*.mjs
