#!/bin/sh
# A model of 2 GB that is fetched over a connection that breaks: it arrives with the right hash, and at most 1 % of it is sent twice. Then
# what else may happen after a cut: other content, and a server that ignores ranges. Needs 5 GB of disk.
#
#   test_pull_large.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
command -v python3 >/dev/null || { echo 'skipped: no python3' && exit 77; }
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
[ "$(df -Pk "$dir" | awk 'END { print $4 }')" -gt 5000000 ] || { echo 'skipped: less than 5 GB of disk' && exit 77; }
for name in HF_TOKEN http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy; do unset $name; done
export no_proxy=127.0.0.1

root=$dir/root requests=$dir/requests
mkdir -p "$root/hf/some/large-GGUF" "$root/web"
: >"$requests"
echo nothing 1 >"$root/trouble"
python3 "$(dirname "$0")/registry.py" "$root" "$requests" >"$dir/ports" &
registry=$!
trap 'kill $registry; rm -rf "$dir"' EXIT
while [ ! -s "$dir/ports" ]; do sleep 0.05; done
HF_ENDPOINT=http://127.0.0.1:$(cut -d' ' -f1 "$dir/ports")
export HF_ENDPOINT
models=$dir/cache/kin/models

# model FILE MIB SEED: a file with the first bytes of a model, whose MiBs all differ.
model() {
    python3 -c '
import random, sys
rest = random.Random(int(sys.argv[3])).randbytes((1 << 20) - 16)
with open(sys.argv[1], "wb") as f:
    for i in range(int(sys.argv[2])):
        f.write(b"GGUF" + b"\3\0\0\0" + i.to_bytes(8, "little") + rest)' "$@"
}
trouble() { # "WORD VALUE"...
    for line; do echo "$line"; done >"$root/trouble.new"
    mv "$root/trouble.new" "$root/trouble"
}
forget() { rm -rf "$models" "$requests" && : >"$requests"; }
sent() { awk '$1 == "cdn" || $3 ~ /^\/web/ { n += $NF } END { printf "%.0f\n", n }' "$requests"; } # bytes of files

# arrives NAME FILE: the last pull ends well, with the bytes of FILE.
arrives() {
    status 0 "$kin" pull "$1"
    cmp -s "$(cat "$out")" "$2" || fail 'it has other bytes'
    [ -z "$(find "$models" -name '*.part*')" ] || fail 'something is left of the download'
}
at_most_one_percent() { # SIZE
    for _ in $(seq 200); do [ "$(sent)" -lt "$1" ] || break; sleep 0.05; done # until the server has written down what it sent last
    extra=$(($(sent) - $1))
    echo "$claim: $extra of $1 bytes were sent twice"
    [ $extra -ge 0 ] || fail "the server wrote down $extra bytes less than the file has"
    [ $extra -le $(($1 / 100)) ] || fail "$extra bytes were sent twice"
}
# interrupted NAME SIGNAL MISSING: a pull that gets a signal when at most MISSING bytes are missing.
missing() { find "$models" -name '*.part.state' -exec sed -n 's/^missing //p' {} + 2>/dev/null | tr ' ' '\n' | awk -F- '{ n += $2 - $1 } END { printf "%.0f\n", NR ? n : 1e18 }'; }
interrupted() {
    "$kin" pull "$1" >"$out" 2>"$err" </dev/null &
    puller=$!
    while [ "$(missing)" -gt "$3" ]; do
        kill -0 $puller 2>/dev/null || { fail 'the download ended' && break; }
        sleep 0.01
    done
    kill "$2" $puller
    wait $puller
}

large=$root/hf/some/large-GGUF/large-Q8_0.gguf
model "$large" 2000 1
size=$(wc -c <"$large")
sum=$(sha256sum <"$large")

claim='2 GB whose connections break ten times'
trouble 'cut 20000000' 'cuts 10'
arrives hf:some/large-GGUF "$large"
at_most_one_percent "$size"
status 0 "$kin" list --json
says "$out" "${sum%% *}"

claim='2 GB fetched by processes of which ten are killed'
forget
trouble 'slow 0.004' # slower than kin, as networks are: what a socket holds when its process is killed is lost
for tenth in 9 8 7 6 5 4 3 2 1 0; do
    signal=-9
    [ $((tenth % 2)) = 0 ] || signal=-INT
    interrupted hf:some/large-GGUF $signal $((size * (2 * tenth + 1) / 20))
done 2>/dev/null
trouble 'nothing 1'
arrives hf:some/large-GGUF "$large"
at_most_one_percent "$size"
rm "$large"

# ---- other trouble after a cut

claim='a server that ignores ranges after a cut sends the whole file again'
model "$large" 64 2
size=$(wc -c <"$large")
for signal in -9 -INT; do
    forget
    trouble 'slow 0.002'
    interrupted hf:some/large-GGUF $signal $((size / 2))
    trouble 'noranges 1'
    arrives hf:some/large-GGUF "$large"
done 2>/dev/null

claim='content that has changed between two processes is fetched whole, with and without a hash'
forget
trouble 'slow 0.002'
interrupted hf:some/large-GGUF -9 $((size / 2)) 2>/dev/null
model "$large" 64 3
arrives hf:some/large-GGUF "$large"
plain=$root/web/plain.gguf
model "$plain" 64 4
forget
interrupted "$HF_ENDPOINT/web/plain.gguf" -9 $((size / 2)) 2>/dev/null
model "$plain" 64 5
arrives "$HF_ENDPOINT/web/plain.gguf" "$plain"

claim='another ETag after a broken connection ends the download with a sentence, and the same command fetches the new content'
forget
trouble 'cut 1000000' 'cuts 100000' 'etag one'
"$kin" pull "$HF_ENDPOINT/web/plain.gguf" >"$out" 2>"$err" </dev/null &
puller=$!
while [ "$(missing)" -gt $((size * 3 / 4)) ]; do
    kill -0 $puller 2>/dev/null || { fail 'the download ended' && break; }
    sleep 0.01
done
model "$plain" 64 6
trouble 'cut 1000000' 'cuts 100000' 'etag two'
wait $puller && fail 'it ended well'
says "$err" 'plain.gguf has changed on the server in the meantime; the same command fetches the new one'
arrives "$HF_ENDPOINT/web/plain.gguf" "$plain"
tally
