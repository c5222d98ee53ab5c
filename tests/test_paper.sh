#!/bin/sh
# lab/run paper: its table of contents, names that do not exist, and experiments that only plan: they leave a table, a plot and
# results, are not run again when they are complete, and continue after a break.
#
#   test_paper.sh PATH_TO_KIN      (paper is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(dirname "$kin")
command -v jq >/dev/null || {
    echo "the program jq is not here"
    exit 77
}
paper() { # STATUS WORD...
    expected=$1
    shift
    status "$expected" "$root/lab/run" paper "$@" --build "$build" --out "$dir/paper"
}

claim='the table of contents names a command, or a reason, for each table and figure'
paper 0 list
says "$out" '^  Table 12 *lab/run paper table12 '
says "$out" '^  Figure 12 *none: '
[ "$(grep -c '^  ' "$out")" -ge 50 ] || fail 'too few lines'
grep '^  ' "$out" | grep -v -q 'none: .\|lab/run paper .' && fail 'a line says neither'

claim='each experiment of the table of contents is a function, and each function is in it'
sed '/^#/d' "$root/lab/paper/contents" | awk -F'|' '{ print $3 }' | tr ' ' '\n' | grep -v '^-*$' | tr '.-' '__' | sort -u >"$dir/named"
sed -n 's/^paper_\([a-z0-9_]*\)().*/\1/p' "$root"/lab/paper/*.sh | sort -u >"$dir/there"
same "$dir/named" "$dir/there"

claim='a name that does not exist gets the closest ones'
paper 2 tabel12
says "$err" "no experiment 'tabel12'; the closest names: table12, "
paper 2 table12 --fast
says "$err" '^  *lab/run paper NAME'

claim='a plan of the paper leaves a table, a plot and results'
paper 0 table12
for file in table12.csv table12.svg results raw/70b.json; do [ -s "$dir/paper/table12/$file" ] || fail "no $file"; done
[ -e "$dir/paper/table12/complete" ] || fail 'it is not complete'
says "$dir/paper/table12/table12.csv" '^70b,paper,146$'
says "$out" '^prima Table 12 .* predicted [0-9.]* .*; same'

claim='what is complete is not run again'
paper 0 table12
says "$err" 'table12 is complete'
echo '{"tpot_ms": 1}' >"$dir/paper/table12/raw/70b.json"

claim='after a break, raw data that is there is kept'
rm "$dir/paper/table12/complete" "$dir/paper/table12/raw/8b.json"
paper 0 table12
says "$dir/paper/table12/table12.csv" '^70b,exact,1$'
says "$dir/paper/table12/table12.csv" '^8b,exact,[0-9]'

claim='--again runs everything again'
paper 0 table12 --again
says_not "$dir/paper/table12/table12.csv" '^70b,exact,1$'

claim='the program of the thesis is the best by brute force'
paper 0 thesis-dp --tiny
says "$out" '^thesis chapter 5'

claim='an experiment that fails is named, and not complete'
mkdir "$dir/broken"
printf '#!/bin/sh\nexit 1\n' >"$dir/broken/paper"
chmod +x "$dir/broken/paper"
status 1 "$root/lab/run" paper thesis-dp --kin "$kin" --build "$dir/broken" --out "$dir/failed"
says "$err" 'thesis-dp failed'
[ ! -e "$dir/failed/thesis-dp/complete" ] || fail 'it is complete'
status 1 "$root/lab/run" paper table12 --kin "$kin" --build "$dir/broken" --out "$dir/failed"
says "$err" 'there are no facts for'
[ ! -e "$dir/failed/table12/complete" ] || fail 'it is complete without facts'
status 1 "$root/lab/run" paper table12 --kin "$dir/broken/paper" --build "$build" --out "$dir/failed"
says "$err" 'kin plan failed: '
[ ! -e "$dir/failed/table12/complete" ] || fail 'it is complete without a plan'

claim='the report is a table of all that is complete'
paper 0 report
says "$out" '^| prima Table 12 (A.19) | .* |$'
lines "$out" 4
tally
