#!/bin/sh
# kin profile: measured once and stored; measured again if the stored profile is unusable. $1: the kin program.
set -eu
kin=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

mkfifo "$dir/talking"
measures() { # returns 0 if it starts to measure; then stops it
    "$kin" profile --threads 1 --cache "$dir/cache" >/dev/null 2>"$dir/talking" &
    pid=$!
    {
        status=0
        grep -q "measuring" || status=1
        kill $pid 2>/dev/null || true
        cat >/dev/null
    } <"$dir/talking"
    wait $pid || true
    return $status
}

"$kin" profile --threads 1 --cache "$dir/cache" --name tower --json >"$dir/first" 2>"$dir/talk"
grep -q "measuring this machine" "$dir/talk" || fail "a first profile is not measured"
for key in name memory_bytes cpu Q4_K F16 other; do
    grep -q "\"$key\"" "$dir/first" || fail "no $key in the profile"
done
set -- "$dir"/cache/profile-*.json
[ $# = 1 ] || fail "not one kept profile"

"$kin" profile --threads 1 --cache "$dir/cache" --name other >"$dir/second" 2>"$dir/talk"
grep -q "measuring" "$dir/talk" && fail "a kept profile is measured again"
grep -q "Q4_K" "$dir/second" || fail "no table"

# The stored profile equals what was measured, except for name and memory.
"$kin" profile --threads 1 --cache "$dir/cache" --name tower --json >"$dir/kept" 2>/dev/null
grep -v memory_bytes "$dir/first" >"$dir/a"
grep -v memory_bytes "$dir/kept" >"$dir/b"
cmp "$dir/a" "$dir/b" || fail "a kept profile reads back differently"

if [ -w /dev/full ]; then
    for words in '' --json; do
        # shellcheck disable=SC2086 # none or one
        "$kin" profile --threads 1 --cache "$dir/cache" $words >/dev/full 2>"$dir/talk" && fail "a full stdout is no error"
        grep -q '^kin: stdout: No space left on device$' "$dir/talk" || fail "a full stdout is not said"
    done
fi

# Impossible rates are measured again, with a message.
if command -v python3 >/dev/null; then
    cp "$1" "$dir/good"
    for figure in token_bytes_per_s=1e300 token_bytes_per_s=0 prompt_flop_per_s=-5e9 read_bytes_per_s=1e-9; do
        python3 -c 'import json, sys
kept, (key, value) = json.load(open(sys.argv[1])), sys.argv[2].split("=")
rates = kept["device"]["cpu"]
assert key in rates, sorted(rates)
rates[key] = {name: float(value) for name in rates[key]} if isinstance(rates[key], dict) else float(value)
json.dump(kept, open(sys.argv[1], "w"))' "$1" "$figure" || fail "no such figure: $figure"
        measures || fail "a kept profile with $figure is believed"
        cp "$dir/good" "$1"
    done
fi

# If the disk could not be measured, only the disk is tried again; then the result is stored.
if grep -q '"disk_bytes_per_s"' "$dir/first" && command -v python3 >/dev/null; then
    python3 -c 'import json, sys
kept = json.load(open(sys.argv[1]))
for key in "disk_bytes_per_s", "disk_random_bytes_per_s": kept["device"].pop(key)
json.dump(kept, open(sys.argv[1], "w"))' "$1"
    "$kin" profile --threads 1 --cache "$dir/cache" >"$dir/out" 2>"$dir/talk"
    grep -q "measuring" "$dir/talk" && fail "all is measured again for a disk"
    grep -q "^disk  *[0-9]" "$dir/out" || fail "a disk that could not be measured is not tried again"
    grep -q '"disk_bytes_per_s"' "$1" || fail "it is not kept"
fi

# A damaged file, and one from another machine.
cp "$1" "$dir/good"
head -c 100 "$dir/good" >"$1"
measures || fail "a damaged profile is used"
sed 's/"fingerprint": "/&elsewhere /' "$dir/good" >"$1"
measures || fail "a profile of another machine is used"

# Without a usable cache folder it measures, stores nothing and says so.
: >"$dir/file"
"$kin" profile --threads 1 --cache "$dir/file/cache" >"$dir/out" 2>"$dir/talk" || fail "no profile without a cache"
grep -q "not measured" "$dir/out" || fail "a disk out of nowhere"

"$kin" profile --no-such >/dev/null 2>&1 && fail "an unknown option passes"
exit 0
