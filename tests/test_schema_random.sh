#!/bin/sh
# Documents generated under the grammars of random JSON schemas are valid according to another program (python3-jsonschema), and so
# are the arguments of tool calls in each syntax, as the reply parser reads them.
#
#   test_schema_random.sh KIN [N [SEED]]    N schemas (default: 300), and as many of arguments for all formats together
#   FORMATS="2 9" test_schema_random.sh ... only calls, in these formats (kin_chat_known), N schemas for each
set -eu
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
walk=$(dirname "$1")/schema_walk
[ -x "$walk" ] || { echo "no $walk" && exit 77; }
python3 -c 'import jsonschema' 2>/dev/null || { echo 'no python3-jsonschema' && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -z "${FORMATS:-}" ]; then
    python3 "$here/schemas.py" generate "${2:-300}" "${3:-1}" >"$scratch/schemas"
    "$walk" "${3:-1}" <"$scratch/schemas" >"$scratch/documents"
    python3 "$here/schemas.py" check "$scratch/schemas" "$scratch/documents"
fi

# Calls: each format has its share of the schemas.
formats=${FORMATS:-$(seq 29)} n=0
n_each=$((${2:-300} / 29 + 1))
[ -z "${FORMATS:-}" ] || n_each=${2:-300}
# shellcheck disable=SC2086 # a list
python3 "$here/schemas.py" arguments $((n_each * $(echo $formats | wc -w))) "${3:-1}" >"$scratch/schemas"
: >"$scratch/documents"
for format in $formats; do
    sed -n "$((n * n_each + 1)),$(((n + 1) * n_each))p" "$scratch/schemas" | "$walk" --calls "$format" "${3:-1}" >>"$scratch/documents"
    n=$((n + 1))
done
python3 "$here/schemas.py" check "$scratch/schemas" "$scratch/documents"
[ -n "${FORMATS:-}" ] || ! "$walk" --calls 30 </dev/null || { echo 'there are more than 29 formats' && exit 1; }
