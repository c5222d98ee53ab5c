#!/bin/sh
# Tests in node of the page's modules that need no browser (tests/page).
#
# Skipped without node (apt-get install nodejs).
set -u
if ! command -v node >/dev/null; then
    echo 'skipped: apt-get install nodejs'
    exit 77
fi
cd "$(dirname "$0")/page" || exit 1
node --test ./test_*.mjs
