#!/bin/sh
# Documents generated under the grammars of random JSON schemas are valid according to another program (python3-jsonschema).
#
#   test_schema_random.sh KIN [N [SEED]]    N schemas (default: 300)
set -eu
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
walk=$(dirname "$1")/schema_walk
[ -x "$walk" ] || { echo "no $walk" && exit 77; }
python3 -c 'import jsonschema' 2>/dev/null || { echo 'no python3-jsonschema' && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 "$here/schemas.py" generate "${2:-300}" "${3:-1}" >"$scratch/schemas"
"$walk" "${3:-1}" <"$scratch/schemas" >"$scratch/documents"
python3 "$here/schemas.py" check "$scratch/schemas" "$scratch/documents"
