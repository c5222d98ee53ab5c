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
profile() { "$kin" profile --no-gpu --threads 1 "$@"; }
measures() { # [CACHE]: returns 0 if it starts to measure; then stops it
    "$kin" profile --no-gpu --threads 1 --cache "${1:-$dir/cache}" >/dev/null 2>"$dir/talking" &
    pid=$!
    {
        status=0
        grep -m 1 "measuring" >"$dir/measuring" || status=1
        kill $pid 2>/dev/null || true
        cat >/dev/null
    } <"$dir/talking"
    wait $pid || true
    return $status
}

# The peak of a first run is that of the work, not of measuring the machine.
peak() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1"; }
# Make the sanitizer return freed memory to the OS.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=0:thread_local_quarantine_size_kb=0
export ASAN_OPTIONS
for run in first second; do
    "$kin" bench --threads 1 --cache "$dir/cache" --prompt 8 --gen 4 --reps 1 --json >"$dir/$run" 2>"$dir/$run.talk"
done
grep -q "measuring this machine" "$dir/first.talk" || fail "a first run does not measure the machine"
grep -q "measuring" "$dir/second.talk" && fail "a second run measures the machine again"
if grep -q Linux /proc/version 2>/dev/null && [ -w /proc/self/clear_refs ]; then
    [ "$(peak "$dir/first")" -le $((3 * $(peak "$dir/second"))) ] ||
        fail "a peak of $(peak "$dir/first") bytes, and $(peak "$dir/second") the second time"
fi

profile --cache "$dir/cache" --name tower --json >"$dir/first" 2>"$dir/talk"
[ ! -s "$dir/talk" ] || fail "a kept profile is talked about"
for key in name memory_bytes cpu Q4_K F16 other; do
    grep -q "\"$key\"" "$dir/first" || fail "no $key in the profile"
done
set -- "$dir"/cache/profile-*.json
[ $# = 1 ] || fail "not one kept profile"

profile --cache "$dir/cache" --name other >"$dir/second" 2>"$dir/talk"
grep -q "measuring" "$dir/talk" && fail "a kept profile is measured again"
grep -q "^Q4_K  *[0-9.]" "$dir/second" || fail "no table"
grep -q "^memory  *[0-9.]* GiB now" "$dir/second" || fail "no memory"

# The stored profile reads back as it was written, except for name and memory.
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
kept, read = json.load(open(sys.argv[1]))["device"], json.load(open(sys.argv[2]))
assert kept["cpu"] and read["name"] == "tower", (kept, read)
for figures in kept, read: figures.pop("name"), figures.pop("memory_bytes")
assert kept == read, (kept, read)' "$1" "$dir/first" || fail "a kept profile reads back differently"
fi

if [ -w /dev/full ]; then
    for words in '' --json; do
        # shellcheck disable=SC2086 # none or one
        profile --cache "$dir/cache" $words >/dev/full 2>"$dir/talk" && fail "a full stdout is no error"
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
    (ulimit -f 100 && profile --cache "$dir/cache" >"$dir/out" 2>"$dir/talk") || fail "no profile without a disk"
    grep -q "measuring" "$dir/talk" && fail "all is measured again for a disk"
    grep -q "^disk  *not measured" "$dir/out" || fail "a disk out of nowhere"
    grep -q '"disk_bytes_per_s"' "$1" && fail "a disk that was not measured is kept"
    profile --cache "$dir/cache" >"$dir/out" 2>"$dir/talk"
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

# Without a usable cache folder it measures, and says that nothing is stored.
: >"$dir/file"
measures "$dir/file/cache" || fail "no profile without a cache"
grep -q "the result cannot be stored" "$dir/measuring" || fail "nothing is said about a result that is not stored"

"$kin" profile --no-such >/dev/null 2>&1 && fail "an unknown option passes"
exit 0
