#!/bin/sh
# Models with recurrent layers on disks that are shared, full or damaged: two servers with one cache folder, one of which is killed while it
# writes, a folder without room, and calls that fail. Each text is that of a server without caches, or a sentence says what is wrong.
#
#   test_hybrid_disks.sh PATH_TO_KIN      (mkmodel and failing_io.so are in the same folder)
set -u
if [ -z "${HAS_MOUNTS:-}" ]; then # in a namespace of its own, in which it may mount a small disk
    HAS_MOUNTS=no
    for how in -m -rm; do
        ! command -v unshare >/dev/null || ! unshare $how mount -t tmpfs none /mnt 2>/dev/null || HAS_MOUNTS=yes exec unshare $how "$0" "$@"
    done
fi
in_memory=yes
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_DRAFT=off
failing=$(cd "$(dirname "$kin")" && pwd)/failing_io.so
cache=$dir/cache
mkdir -p "$dir/head" "$cache"
"$mkmodel" --preset tiny --arch qwen35 --layers 6 --interval 3 --vocab 2000 --ctx 4096 --endless -o "$dir/qwen35.gguf" >/dev/null || exit 1

# server NAME OPTION...: starts one, whose log is NAME.log; sets $server. It shares home and cache with the others. $fails: calls that fail
fails=
server() {
    log=$dir/$1.log
    shift
    : >"$log"
    # shellcheck disable=SC2086 # none, or two settings
    env HOME="$dir/head" ${fails:+LD_PRELOAD="$failing" KIN_LAB_FAILS="$fails" ASAN_OPTIONS=verify_asan_link_order=0} \
        "$kin" serve -t 1 --port 0 --no-webui --ctx 4096 --cache "$cache" --kv-disk 200M -m "$model" "$@" >"$log" 2>&1 &
    server=$!
    pids="$pids $server"
}
# address NAME: sets $base when the server answers. Returns 1 if it has ended instead.
address() {
    log=$dir/$1.log
    wait_until 60 answers_or_ends || return 1
    base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$log")
    [ -n "$base" ]
}
answers_or_ends() { grep -q 'serving .* at http' "$log" || ! kill -0 "$server" 2>/dev/null; }
# ids SEED N: the tokens of a text; the first 640 are those of all texts
ids() {
    awk -v seed="$1" -v n="$2" 'BEGIN {
        for (i = 1; i <= n; i++) printf "%s%d", (i > 1 ? "," : ""), 20 + ((i <= 640 ? 1 : seed) * 7919 + i * i * 31 + i * 17) % 200
    }'
}
ask() { # BASE SEED N FILE: a text behind N tokens
    curl -s -m 200 -o "$4" -d "{\"prompt\": [$(ids "$2" "$3")], \"n_predict\": 24, \"seed\": $2, \"ignore_eos\": true}" "$1/completion"
}
text_of() { sed -n 's/.*"content":"\(.*\)","tokens".*/\1/p' "$1"; }
found_in() { sed -n 's/.*"cache_n":\([0-9]*\).*/\1/p' "$1"; }
expect() { # FILE: the text of the request is that without caches
    n_checks=$((n_checks + 1))
    text_of "$1" >"$1.text"
    [ -s "$1.text" ] && cmp -s "$1.text" "$dir/want.$(basename "$1" | sed 's/.*\.//')" || fail "$(basename "$1"): $(head -c 200 "$1")"
}
end() { # PID
    kill "$1" 2>/dev/null
    wait "$1"
    code=$?
    check [ $code -eq 0 ]
}
warnings() { grep -v -e 'ready' -e 'serving' "$1" | grep -v 'expert'; }
requests='1-800 2-800 3-900 4-1300 1-1400'
wanted() { # the texts without caches
    server plain --no-kv-disk --no-cache
    address plain || fail 'no server'
    for r in $requests; do
        ask "$base" "${r%-*}" "${r#*-}" "$dir/plain.$r"
        text_of "$dir/plain.$r" >"$dir/want.$r"
        check [ -s "$dir/want.$r" ]
    done
    end "$server"
}
all() { # NAME: asks the server at $base for all texts, one after the other
    for r in $requests; do
        ask "$base" "${r%-*}" "${r#*-}" "$dir/$1.$r"
        expect "$dir/$1.$r"
    done
}
begin_all() { # NAME: the same in the background; `wait $writer`, then expect_all NAME
    for r in $requests; do ask "$base" "${r%-*}" "${r#*-}" "$dir/$1.$r"; done &
    writer=$!
}
expect_all() { for r in $requests; do expect "$dir/$1.$r"; done; }

two_servers() {
    claim="$family: two servers with one cache folder"
    server one
    pid_one=$server
    server two
    pid_two=$server
    address one || fail 'no first server'
    begin_all one
    writer_one=$writer
    address two || fail 'no second server'
    begin_all two
    wait "$writer" "$writer_one"
    expect_all one
    expect_all two
    claim="$family: one is killed while both write"
    server three
    pid_three=$server
    address three || fail 'no third server'
    rm -rf "$cache/kv"
    begin_all three
    address two || fail 'no second server'
    ask "$base" 5 1200 "$dir/two.5-1200"
    kill -9 "$pid_three"
    wait "$pid_three" "$writer" 2>/dev/null
    all two
    end "$pid_one"
    end "$pid_two"
    claim="$family: another one finds what they have stored"
    server four
    address four || fail 'no fourth server'
    all four
    check [ "$(found_in "$dir/four.4-1300")" -ge 640 ]
    end "$server"
    for name in one two four; do
        [ -z "$(warnings "$dir/$name.log")" ] || fail "$name: $(warnings "$dir/$name.log")"
    done
}

full_disk() {
    [ "$HAS_MOUNTS" = yes ] || { echo 'no full disk: mounting is not allowed here' && return; }
    claim="$family: a disk that is full while states are written"
    rm -rf "$cache"
    mkdir "$cache"
    mount -t tmpfs -o size=64M none "$cache"
    server full
    address full || fail 'no server'
    ask "$base" 1 800 "$dir/full.1-800"
    wait_until 20 [ -d "$cache/kv" ]
    head -c 100M /dev/zero >"$cache/filler" 2>/dev/null
    all full
    check [ "$(warnings "$dir/full.log" | wc -l)" -le 2 ] # of pages and of the tokens that they stand for
    says "$dir/full.log" 'a page of the KV cache was not stored, and others may not be: .*/kv: .*\(the disk is full\|No space left\)'
    end "$server"
    claim="$family: a start on a full disk, and room again while it runs"
    server again
    address again || fail 'no server'
    all again
    rm "$cache/filler"
    for seed in 6 7; do ask "$base" $seed 1500 "$dir/again.$seed-1500"; done
    end "$server"
    server later
    address later || fail 'no server'
    ask "$base" 7 1500 "$dir/later.7-1500"
    text_of "$dir/again.7-1500" >"$dir/again.text"
    text_of "$dir/later.7-1500" >"$dir/later.text"
    same "$dir/again.text" "$dir/later.text"
    check [ "$(found_in "$dir/later.7-1500")" -ge 640 ]
    all later
    end "$server"
    umount "$cache"
}

failing_calls() { # RULE...
    [ -e "$failing" ] || { echo "no failing calls: there is no $failing" && return; }
    for fails; do
        claim="$family: $fails"
        for turn in first second; do # what the first one stores, the second one reads
            server $turn
            if address $turn; then
                all $turn
                end "$server"
            else
                wait "$server"
                check [ $? -eq 1 ]
                check [ "$(grep -c . "$dir/$turn.log")" -le 3 ]
            fi
            check [ "$(warnings "$dir/$turn.log" | wc -l)" -le 2 ]
            case $turn-$fails in second-read:EIO:/kv/*) says "$dir/second.log" 'removed a damaged KV page.*Input/output error' ;; esac
            says_no_crash "$dir/$turn.log"
        done
        rm -rf "${cache:?}"/*
    done
    fails=
}
says_no_crash() { n_checks=$((n_checks + 1)) && ! grep -q -e 'assert' -e 'Sanitizer' -e 'core dumped' "$1" || fail "$(basename "$1"): $(tail -n 3 "$1")"; }

for model in "$dir/qwen35.gguf" "$(dirname "$0")/golden/lfm2.q8_0.gguf" "$(dirname "$0")/golden/kimi-linear.q8_0.gguf" \
    "$(dirname "$0")/golden/glm5next-sparse.f16.gguf"; do
    family=$(basename "$model" | cut -d . -f 1)
    rm -rf "${cache:?}"/*
    wanted
    two_servers
    rm -rf "${cache:?}"/*
    failing_calls read:EIO:/kv/:3 write:EIO:/kv/:4
    full_disk
done
model=$dir/qwen35.gguf family=qwen35
requests='1-800 4-1300 1-1400' # one that stores, one beside it, one that continues the first
wanted
failing_calls read:EIO:/kv/ open:EIO:/kv/ open:EIO:/kv/:5 write:EIO:/kv/ write:ENOSPC:/kv/:7 read:EIO:.pack write:EIO:.pack write:ENOSPC:.pack:2 \
    open:EIO:.pack
tally
