#!/bin/sh
# Models by name: kin pull, and names in place of files, against servers of this machine that play the registries (registry.py).
#
#   test_pull.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
command -v python3 >/dev/null || { echo 'skipped: no python3' && exit 77; }
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
for name in HF_TOKEN HF_ENDPOINT http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy; do unset $name; done
export no_proxy=127.0.0.1

root=$dir/root requests=$dir/requests registry='' secure=''
mkdir -p "$root/hf/some/tiny-GGUF" "$root/hf/some/split-GGUF/Q8_0" "$root/hf/gated/m" "$root/hf/private/m" "$root/hf/none/m" \
    "$root/hf/nohash/m" "$root/hf/pages/m" "$root/ollama/library/tiny" "$root/ollama/me/own" "$root/web/files"
: >"$requests"
echo nothing 1 >"$root/trouble"
python3 "$(dirname "$0")/registry.py" "$root" "$requests" >"$dir/ports" &
registry=$!
trap '[ -z "$server" ] || kill -9 $server 2>/dev/null; kill $registry $secure; rm -rf "$dir"' EXIT
until_says "$dir/ports" '[0-9]'
port=$(cut -d' ' -f1 "$dir/ports")
HF_ENDPOINT=http://127.0.0.1:$port
KIN_OLLAMA_REGISTRY=$HF_ENDPOINT
web=$HF_ENDPOINT/web/files
export HF_ENDPOINT KIN_OLLAMA_REGISTRY
models=$dir/cache/kin/models

demo=$(dirname "$0")/../assets/demo.gguf
grown() { # FILE MIB: the demo model, followed by bytes that no tensor uses
    cp "$demo" "$1"
    head -c "$(($2 * 1048576))" /dev/urandom >>"$1"
}
cp "$demo" "$root/hf/some/tiny-GGUF/tiny-Q4_K_M.gguf"
grown "$root/hf/some/tiny-GGUF/tiny-Q8_0.gguf" 8
cp "$demo" "$root/hf/some/tiny-GGUF/mmproj-tiny-F16.gguf"
echo 'a card' >"$root/hf/some/tiny-GGUF/README.md"
"$mkmodel" --preset tiny --layers 2 --seed 2 --split 3 -o "$root/hf/some/split-GGUF/Q8_0/parts-Q8_0" >/dev/null
for owner in gated private nohash pages; do cp "$demo" "$root/hf/$owner/m/m-Q4_0.gguf"; done
cp "$demo" "$root/hf/pages/m/m-Q5_0.gguf"
cp "$demo" "$root/ollama/library/tiny/latest"
cp "$demo" "$root/ollama/me/own/v1"
cp "$demo" "$root/web/files/plain.gguf"

trouble() { # "WORD VALUE"...
    for line; do echo "$line"; done >"$root/trouble.new"
    mv "$root/trouble.new" "$root/trouble"
}
calm() { trouble 'nothing 1'; }
new_log() { rm -f "$requests" && : >"$requests"; }
forget() { rm -rf "$models" && new_log; }
sent() { awk '$1 == "cdn" || $3 ~ /^\/web/ { n += $NF } END { print n + 0 }' "$requests"; } # bytes of files
is_same_file() { # GOT WANTED
    n_checks=$((n_checks + 1))
    cmp -s "$1" "$2" || fail "$(basename "$1") has other bytes"
}

# ---- names

claim='a repository without a quantization gets the usual one, in a sentence; the path goes to stdout'
status 0 "$kin" pull hf:some/tiny-GGUF
says "$err" 'some/tiny-GGUF: Q4_K_M: 3.9. MiB, fits into the .* of memory here; Q8_0 (.*) would fit too'
lines "$out" 1
is_same_file "$(cat "$out")" "$root/hf/some/tiny-GGUF/tiny-Q4_K_M.gguf"
says "$requests" '^registry GET /api/models/some/tiny-GGUF/tree/main?recursive=true '
says "$requests" '^registry GET /some/tiny-GGUF/resolve/main/tiny-Q4_K_M.gguf '
says_not "$requests" 'mmproj\|README'
[ -z "$(find "$models" -name '*.part*')" ] || fail 'something is left of the download'

claim='a model that is here is not fetched again, and kin pull asks whether there is a newer one'
before=$(sent)
status 0 "$kin" pull hf:some/tiny-GGUF
[ "$(sent)" = "$before" ] || fail 'it was fetched again'

claim='a name may have a quantization in any case, a file, or the form of llama.cpp or a browser'
for name in hf:some/tiny-GGUF:q8_0 hf.co/some/tiny-GGUF:Q8_0 hf:some/tiny-GGUF/tiny-Q8_0.gguf \
    https://huggingface.co/some/tiny-GGUF/blob/main/tiny-Q8_0.gguf; do
    forget
    status 0 "$kin" pull "$name"
    is_same_file "$(cat "$out")" "$root/hf/some/tiny-GGUF/tiny-Q8_0.gguf"
done
forget
status 0 "$kin" pull -hf some/tiny-GGUF:Q8_0
is_same_file "$(cat "$out")" "$root/hf/some/tiny-GGUF/tiny-Q8_0.gguf"

claim='a split model comes whole, and runs'
status 0 "$kin" pull hf:some/split-GGUF
says "$out" 'parts-Q8_0-00001-of-00003.gguf$'
[ "$(find "$models/hf--some--split-GGUF" -name '*.gguf' | wc -l)" = 3 ] || fail 'not three files'
status 0 "$kin" run hf:some/split-GGUF -p One -n 3
status 0 "$kin" list
says "$out" '^hf:some/split-GGUF:Q8_0 '

claim='models of Ollama, of its users, and of a web server'
status 0 "$kin" pull ollama:tiny
says "$out" 'ollama--tiny/tiny-latest.gguf$'
is_same_file "$(cat "$out")" "$demo"
status 0 "$kin" pull ollama:me/own:v1
is_same_file "$(cat "$out")" "$demo"
status 0 "$kin" pull "$web/plain.gguf"
is_same_file "$(cat "$out")" "$demo"

claim='a list in pages is read to its end'
status 0 "$kin" pull hf:pages/m:Q5_0

claim='short names: those of the user, and built-in ones'
mkdir -p "$dir/config/kin"
printf '# mine\nmy-model  hf:some/tiny-GGUF:Q4_K_M   a small one\n' >"$dir/config/kin/models"
status 0 "$kin" pull my-model
says "$err" 'my-model is hf:some/tiny-GGUF:Q4_K_M'
status 0 "$kin" pull --names
says "$out" '^my-model .*a small one'
says "$out" '^qwen3-4b '
echo 'broken' >>"$dir/config/kin/models"
status 1 "$kin" pull my-model
says "$err" 'models, line 3: is not NAME SOURCE'
rm "$dir/config/kin/models"

# ---- refusals

claim='what cannot be fetched is refused in a sentence'
refused() { # PATTERN NAME
    status 1 "$kin" pull "$2"
    says "$err" "$1"
    silent "$out"
}
refused 'hf:some/absent does not exist' hf:some/absent
refused 'hf:gated/m is gated: accept its terms .* HF_TOKEN' hf:gated/m
refused 'hf:private/m: the server refuses access (401).*HF_TOKEN' hf:private/m
refused 'has no Q3_K_M; it has Q4_K_M (.*), Q8_0 (' hf:some/tiny-GGUF:Q3_K_M
refused 'none/m: the repository has no GGUF file' hf:none/m
refused 'ollama:tiny:7b does not exist' ollama:tiny:7b
refused 'does not exist' "$web/absent.gguf"
refused "there is no model 'nonsense'" nonsense
refused 'is not a name on Hugging Face' hf:some
refused 'is not a name on Hugging Face' hf:some/../m
refused 'addresses end in .gguf' "$web/plain.zip"
status 2 "$kin" pull

claim='a token opens gated models, and goes to the registry only, not to where it redirects'
new_log
status 0 env HF_TOKEN=good "$kin" pull hf:gated/m
says "$requests" '^registry .* Bearer_good 302 '
says "$requests" '^cdn .* - 206 '
says_not "$requests" '^cdn .*good'
forget
status 1 env HF_TOKEN=bad "$kin" pull hf:gated/m
says "$err" 'is gated'

claim='with TLS only a server is asked whose certificate an authority of the list has signed, and only by its name'
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=registry -addext 'subjectAltName=IP:127.0.0.1' -keyout "$dir/tls.key" \
        -out "$dir/tls.crt" 2>/dev/null
    python3 "$(dirname "$0")/registry.py" "$root" "$requests" "$dir/tls.crt" "$dir/tls.key" >"$dir/tls.ports" &
    secure=$!
    until_says "$dir/tls.ports" '[0-9]'
    tls_port=$(cut -d' ' -f1 "$dir/tls.ports")
    forget
    status 1 "$kin" pull --mirror "https://127.0.0.1:$tls_port" hf:some/tiny-GGUF
    says "$err" "127.0.0.1:$tls_port: .*certificate"
    status 1 env SSL_CERT_FILE="$dir/tls.crt" "$kin" pull --mirror "https://localhost:$tls_port" hf:some/tiny-GGUF
    says "$err" "localhost:$tls_port: .*certificate"
    silent "$requests"
    status 0 env SSL_CERT_FILE="$dir/tls.crt" "$kin" pull --mirror "https://127.0.0.1:$tls_port" hf:some/tiny-GGUF
    says "$requests" '^cdn .* 206 '
fi

claim='a name that nobody knows ends at once, with a question'
status 1 env HF_ENDPOINT=http://nowhere.invalid "$kin" pull hf:some/other-GGUF
says "$err" 'cannot resolve the name nowhere.invalid: is this machine connected to the internet'

claim='--offline contacts no server'
forget
status 1 "$kin" pull --offline hf:some/tiny-GGUF
says "$err" 'is not here, and --offline forbids'
silent "$requests"
status 0 "$kin" pull hf:some/tiny-GGUF
new_log
status 0 "$kin" pull --offline hf:some/tiny-GGUF
status 0 "$kin" run hf:some/tiny-GGUF -p One -n 2
status 0 "$kin" run hf:some/tiny-GGUF:Q4_K_M -p One -n 2 --offline
silent "$requests"

claim='--mirror takes the place of the registry'
forget
status 0 env HF_ENDPOINT=http://127.0.0.1:1 "$kin" pull --mirror "http://127.0.0.1:$port/" hf:some/tiny-GGUF

claim='the memory that is named decides the quantization'
status 0 "$kin" pull hf:some/tiny-GGUF --memory 300M
says "$err" 'Q4_K_M: .*, fits into the 300 MiB of memory here; Q8_0 (.*) would fit too'
status 0 "$kin" pull hf:some/tiny-GGUF --memory 10M
says "$err" 'Q4_K_M: .*, of which 100 % are read from disk for every token: there are 10.0 MiB of memory'

claim='what a model needs beside its weights is read from the beginning of one file, once'
forget
status 0 "$kin" pull hf:some/tiny-GGUF --memory 300M
says "$requests" '^cdn GET /hf/some/tiny-GGUF/tiny-Q4_K_M.gguf?signed=1 bytes=0-1048575 '
new_log
status 0 "$kin" pull hf:some/tiny-GGUF --memory 300M
says_not "$requests" '^cdn '
# An unknown family: an estimate takes the place of what cannot be known.
mkdir -p "$root/hf/other/m"
for name in m-Q4_K_M m-Q8_0; do LC_ALL=C sed 's/llama/lxama/g' "$demo" >"$root/hf/other/m/$name.gguf"; done
status 0 "$kin" pull hf:other/m --memory 300M
says "$err" 'Q4_K_M: .*, of which 100 % are read from disk for every token: there are 300 MiB of memory'

# ---- a server in trouble

big=$root/hf/some/tiny-GGUF/tiny-Q8_0.gguf
size=$(wc -c <"$big")
fetches() { # [EXTRA]: it arrives whole, and at most EXTRA bytes come twice
    status 0 "$kin" pull hf:some/tiny-GGUF:Q8_0
    is_same_file "$(cat "$out")" "$big"
    extra=$(($(sent) - size))
    [ $extra -le "${1:-0}" ] || fail "$extra bytes came twice"
}
for words in 'cut 300000;cuts 10' 'busy 3;retry 1' 'broken 2' 'gone 6' 'gone 2' 'slow 0.002'; do
    claim="a download with trouble ends well: $words"
    forget
    trouble "${words%;*}" "${words#*;}"
    fetches 65536
done

claim='a server that sends only whole files is good enough'
forget
trouble 'noranges 1'
fetches $((2 * size)) # what the sockets of the first answers held

claim='a server that sends a byte now and then is given up with a sentence, and the download continues later'
forget
trouble 'drip 0.05'
status 1 "$kin" pull --patience 2 hf:some/tiny-GGUF:Q8_0
says "$err" 'tiny-Q8_0.gguf: the server sent only [0-9]* B in 2 seconds; the same command continues later'
calm
fetches 65536

claim='a long wait is not waited for'
forget
trouble 'busy 99' 'retry 3600'
refused 'accepts no more requests for now; try again in 3600 s' hf:some/tiny-GGUF:Q8_0

claim='a web page in place of the file is not taken for it'
trouble 'html 1'
refused 'sent no GGUF file' hf:some/tiny-GGUF:Q8_0
refused 'is a page of a web site' "$web/plain.gguf"

claim='a web page in place of the list of files is said to be one'
trouble 'login 1'
refused '127.0.0.1:[0-9]* sent a web page in place of a list of files: perhaps this network asks for a login' hf:some/tiny-GGUF

claim='a list that claims to be larger than any is refused before it comes'
trouble 'endless 1'
refused 'more than 4194304 bytes' hf:some/tiny-GGUF

claim='an answer that does not say which bytes it has is not taken for a changed file'
forget
trouble 'bare 1'
refused 'the server sent bytes that were not requested' hf:some/tiny-GGUF:Q8_0

claim='a link in place of a part is not followed: its target stays as it is'
forget
calm
mkdir -p "$models/hf--some--tiny-GGUF"
echo precious >"$dir/precious"
ln -s "$dir/precious" "$models/hf--some--tiny-GGUF/tiny-Q8_0.gguf.part"
refused 'tiny-Q8_0.gguf.part: is a symbolic link' hf:some/tiny-GGUF:Q8_0
says "$dir/precious" '^precious$'

claim='no password is shown or stored'
refused 'may not contain a user or a password' "http://me:secret@127.0.0.1:$port/web/files/plain.gguf"
says_not "$err" secret
status 1 env HF_ENDPOINT=http://me:secret@127.0.0.1:1 "$kin" pull --connections 1 hf:some/tiny-GGUF
says "$err" '^kin: 127.0.0.1:1: '
says_not "$err" secret
trouble 'endless 1'
status 1 env HF_ENDPOINT="http://me:secret@127.0.0.1:$port" "$kin" pull --connections 1 hf:some/tiny-GGUF
says "$err" '^kin: 127.0.0.1:[0-9]* sent more than [0-9]* bytes for a list of files'
says_not "$err" secret
calm

claim='other bytes than those of the registry are dropped, and nothing of them stays'
forget
trouble 'wrong 1'
refused 'have the SHA-256 .*, but the registry says .*; they were deleted' hf:some/tiny-GGUF:Q8_0
[ ! -e "$models/hf--some--tiny-GGUF/tiny-Q8_0.gguf" ] || fail 'the file is there'
calm
new_log
fetches

claim='a file that is shorter on the server than listed is one that has changed'
forget
trouble 'short 5000000'
refused 'has changed on the server' hf:some/tiny-GGUF:Q8_0

claim='the disk is looked at before'
# The list of files says more bytes than any disk has; nothing is asked for.
forget
calm
truncate -s 60T "$root/hf/nohash/m/huge-Q8_0.gguf" 2>/dev/null && {
    refused 'needs 60.* TiB on the disk of .*KIN_MODELS' hf:nohash/m:Q8_0
    says_not "$requests" 'resolve'
    rm "$root/hf/nohash/m/huge-Q8_0.gguf"
}

# ---- interrupted

claim='a download that was killed ten times continues, and at most one percent comes twice'
forget
grown "$root/hf/some/tiny-GGUF/tiny-Q6_K.gguf" 96
large=$root/hf/some/tiny-GGUF/tiny-Q6_K.gguf
size=$(wc -c <"$large")
trouble 'slow 0.01'
part=$models/hf--some--tiny-GGUF/tiny-Q6_K.gguf.part
missing() { sed -n 's/^missing //p' "$part.state" 2>/dev/null | tr ' ' '\n' | awk -F- '{ n += $2 - $1 } END { print n + 0 }'; }
n_kills=0
while [ $n_kills -lt 10 ]; do
    goal=$((size / 12 * (11 - n_kills)))
    "$kin" pull hf:some/tiny-GGUF:Q6_K >"$out" 2>"$err" </dev/null &
    puller=$!
    while [ ! -s "$part.state" ] || [ "$(missing)" -gt $goal ]; do
        kill -0 $puller 2>/dev/null || break
        sleep 0.02
    done
    if [ $((n_kills % 2)) = 0 ]; then kill -9 $puller; else kill -INT $puller; fi
    wait $puller
    n_kills=$((n_kills + 1))
done 2>/dev/null
[ -s "$part" ] || fail 'nothing is left of the download'
calm
status 0 "$kin" pull hf:some/tiny-GGUF:Q6_K
is_same_file "$(cat "$out")" "$large"
sleep 0.2
extra=$(($(sent) - size))
echo "killed $n_kills times: $extra of $size bytes were sent twice"
# Less than one percent of a model of 2 GB: at each end what is not saved yet, and what the sockets held.
[ $extra -le $((10 * 1048576)) ] || fail "$extra bytes were sent twice"

claim='Ctrl-C is answered with what to do next'
forget
trouble 'slow 0.05'
"$kin" pull hf:some/tiny-GGUF:Q8_0 >"$out" 2>"$err" </dev/null &
puller=$!
until_says "$requests" 'resolve/main/tiny-Q8_0'
kill -INT $puller
wait $puller
[ $? = 130 ] || fail 'the status is not 130'
says "$err" 'the same command continues the download'

claim='two processes that want the same file share one download'
forget
trouble 'slow 0.01'
"$kin" pull hf:some/tiny-GGUF:Q8_0 >"$dir/one" 2>"$dir/one.err" </dev/null &
first=$!
until_says "$requests" '^registry .*tiny-Q8_0'
status 0 "$kin" pull hf:some/tiny-GGUF:Q8_0
wait $first || fail 'the first one failed'
says "$err" 'another kin fetches tiny-Q8_0.gguf'
same "$out" "$dir/one"
size=$(wc -c <"$big")
extra=$(($(sent) - size))
[ $extra = 0 ] || fail "$extra bytes came twice"
calm

claim='a changed ETag ends a download without a hash, and the next one fetches the new file'
forget
grown "$root/web/files/grown.gguf" 4
trouble 'slow 0.05' 'etag one'
"$kin" pull "$web/grown.gguf" >"$out" 2>"$err" </dev/null &
puller=$!
until_says "$requests" '^registry GET /web/files/grown.gguf bytes=0-3'
sleep 0.3
kill -INT $puller
wait $puller
trouble 'etag two'
status 0 "$kin" pull "$web/grown.gguf"
is_same_file "$(cat "$out")" "$root/web/files/grown.gguf"

# ---- a new version of a repository

claim='a file that has changed in the repository replaces the old one'
forget
status 0 "$kin" pull hf:some/tiny-GGUF:Q8_0
grown "$big" 9
status 0 "$kin" pull hf:some/tiny-GGUF:Q8_0
is_same_file "$(cat "$out")" "$big"

# ---- names in place of files

claim='kin run, kin info, kin chat and kin serve take a name where they take a file'
forget
status 0 "$kin" run -m hf:some/tiny-GGUF -p 'Once upon a time' -n 5 --seed 1
status 0 "$kin" info ollama:tiny
says "$out" '^family       llama'
echo 'Hello' | "$kin" chat ollama:tiny -n 4 >"$out" 2>"$err"
n_checks=$((n_checks + 1))
[ -s "$out" ] || fail 'kin chat says nothing'
serve ollama:tiny
answers 200 /v1/completions -d '{"model": "tiny-latest", "prompt": "One", "max_tokens": 4}'
stop
status 0 "$kin" run tiny-latest -p One -n 2
status 2 "$kin" run qwen3:8b
says "$err" "ollama:qwen3:8b"
status 2 "$kin" bench no-such-model
says "$err" 'there is no such file, and no model of that name'

# ---- kin list, show, rm

claim='kin list shows what is here, kin show one of them, kin rm removes it'
status 0 "$kin" list
says "$out" '^hf:some/tiny-GGUF:Q4_K_M  *3.9. MiB '
says "$out" '^ollama:tiny:latest '
status 0 "$kin" list --json
says "$out" '"name": "ollama:tiny:latest"'
status 0 "$kin" show hf:some/tiny-GGUF
says "$out" '^name         hf:some/tiny-GGUF:Q4_K_M'
says "$out" '^sha256       [0-9a-f]\{64\}$'
says "$out" '^family '
status 0 "$kin" rm --dry-run hf:some/tiny-GGUF
says "$out" '^would remove hf:some/tiny-GGUF:Q4_K_M'
status 0 "$kin" rm hf:some/tiny-GGUF
says "$out" '^removed hf:some/tiny-GGUF:Q4_K_M (3.9. MiB)'
[ ! -d "$models/hf--some--tiny-GGUF" ] || fail 'the folder is still there'
status 0 "$kin" rm tiny-latest
status 0 "$kin" list
silent "$out"
says "$err" 'there are no models in'
status 1 "$kin" rm ollama:tiny
says "$err" "there is no model 'ollama:tiny' here"
status 2 "$kin" rm

# ---- clients of kin serve

claim='a client of Ollama fetches a model, uses it by the same name, and removes it'
calm
forget
mkdir -p "$dir/served"
cp "$demo" "$dir/served/first.gguf"
serve --models-dir "$dir/served"
answers 501 /api/pull -d '{"model": "tiny"}'
says "$out" '^{"error":".*--pull'
answers 501 /api/delete -X DELETE -d '{"model": "tiny"}'
stop
serve --models-dir "$dir/served" --pull
answers 200 /api/pull -d '{"model": "tiny"}'
says "$dir/head" '^Content-Type: application/x-ndjson'
head -n 1 "$out" >"$dir/begin"
says "$dir/begin" '^{"status":"pulling manifest"}$'
says "$out" '^{"status":"pulling [0-9a-f]\{12\}","total":[0-9]*,"completed":[0-9]*,"digest":"sha256:[0-9a-f]\{64\}"}$'
tail -n 1 "$out" >"$dir/end"
says "$dir/end" '^{"status":"success"}$'
for name in tiny tiny:latest tiny-latest; do
    answers 200 /api/generate -d "{\"model\": \"$name\", \"prompt\": \"One\", \"stream\": false, \"options\": {\"num_predict\": 2}}"
done
answers 200 /api/tags
says "$out" '"name":"tiny-latest"'
answers 200 /api/pull -d '{"name": "hf.co/some/tiny-GGUF:Q4_K_M", "stream": false}'
says "$out" '^{"status":"success"}$'
answers 500 /api/pull -d '{"model": "absent:7b", "stream": false}'
says "$out" '^{"error":"ollama:absent:7b does not exist"}$'
answers 200 /api/pull -d '{"model": "absent:7b"}'
says "$out" '^{"error":"ollama:absent:7b does not exist"}$'
answers 400 /api/pull -d "{\"model\": \"$web/plain.gguf\"}"
says "$out" 'not web addresses'
answers 400 /api/pull -d '{"model": "../../etc"}'
answers 400 /api/pull -d '{}'
answers 400 /api/pull -d 'x'
answers 200 /api/delete -X DELETE -d '{"model": "tiny"}'
[ ! -e "$dir/served/ollama--tiny" ] || fail 'the file is still there'
answers 404 /api/delete -X DELETE -d '{"model": "tiny"}'
answers 404 /api/delete -X DELETE -d '{"model": "first"}'
says "$out" 'put into the folder by hand stay'
[ -e "$dir/served/first.gguf" ] || fail 'a file that was put there by hand is gone'

claim='a client removes what it fetched by the name that is listed; of two with one name the one it names'
for name in tiny me/own:v1 hf.co/some/tiny-GGUF:Q4_K_M; do answers 200 /api/pull -d "{\"model\": \"$name\", \"stream\": false}"; done
answers 200 /api/tags
for name in tiny-latest own-v1:latest tiny-Q4_K_M; do answers 200 /api/delete -X DELETE -d "{\"model\": \"$name\"}"; done
[ "$(find "$dir/served" -name '*.gguf')" = "$dir/served/first.gguf" ] || fail 'a file is still there'
head -c 100000 /dev/zero | tr '\0' ' ' >"$dir/long"
answers 400 /api/delete -X DELETE --data-binary "@$dir/long"

claim='a client that goes away ends its download; one that is cut off by the end of the server is told'
trouble 'slow 0.05'
curl -s -m 1 -o "$dir/cut" "$base/api/pull" -d '{"model": "hf:some/tiny-GGUF:Q8_0"}'
[ ! -e "$dir/served/hf--some--tiny-GGUF/tiny-Q8_0.gguf" ] || fail 'it was fetched in a second'
curl -sN -o "$dir/told" "$base/api/pull" -d '{"model": "hf:some/tiny-GGUF:Q8_0"}' &
client=$!
until_says "$dir/told" '"completed":[1-9]'
stop
wait $client
says "$dir/told" '^{"error":"stopped"}$'
calm

claim='a client does not remove the model of the command line'
status 0 "$kin" pull ollama:tiny
serve ollama:tiny --models-dir "$dir/served" --pull
answers 404 /api/delete -X DELETE -d '{"model": "tiny-latest"}'
[ -n "$(find "$models" -name '*.gguf')" ] || fail 'the file is gone'
stop

tally
