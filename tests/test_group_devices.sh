#!/bin/sh
# Groups of real processes on loopback, which share each layer: alone, inside of a ring, and when a device dies in the middle.
#
#   test_group_devices.sh PATH_TO_KIN      (mkmodel lies beside it)
set -u
kin=$1
mkmodel=$(dirname "$kin")/mkmodel
[ -x "$mkmodel" ] || { echo "test_group_devices: skipped: there is no $mkmodel" && exit 77; }
dir=$(mktemp -d) || exit 1
pids=
stop_all() {
    [ -z "${KEEP:-}" ] || cp -r "$dir" "$KEEP"
    for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$dir"
}
trap stop_all EXIT
trap 'exit 130' INT TERM
for name in $(env | sed -n 's/^\(KIN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
unset XDG_CACHE_HOME XDG_CONFIG_HOME
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
port=$((20000 + $$ % 20000))
n_checks=0 n_failed=0 claim=

fail() {
    echo "FAILED: $claim: $*"
    tail -n 3 "$dir"/*.log
    n_failed=$((n_failed + 1))
}
check() { # COMMAND...
    n_checks=$((n_checks + 1))
    "$@" || fail "$*"
}
says() { n_checks=$((n_checks + 1)) && grep -q -e "$2" "$1" || fail "no '$2' in $(basename "$1")"; } # FILE PATTERN
same() { n_checks=$((n_checks + 1)) && cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }
seen=0
mark() { seen=$(wc -l <"$1"); } # FILE: from now on wait_for looks at new lines of it only
wait_for() { # SECONDS FILE PATTERN
    n=0
    n_checks=$((n_checks + 1))
    while [ $n -lt $(($1 * 20)) ]; do
        tail -n +$((seen + 1)) "$2" 2>/dev/null | grep -q -e "$3" && return 0
        sleep 0.05
        n=$((n + 1))
    done
    fail "no '$3' in $(basename "$2") within $1 s"
    return 1
}

key() { # NAME [DIGIT]: a home with the cluster's key
    mkdir -p "$dir/$1"
    [ -f "$dir/$1/key" ] || (umask 077 && printf '%064d\n' "${2:-7}" >"$dir/$1/key")
}
join() { # NAME OPTION...
    who=$1
    key "$who"
    shift
    HOME=$dir/$who "$kin" join "127.0.0.1:$port" --name "$who" --key-file "$dir/$who/key" --listen 127.0.0.1 -t 1 "$@" \
        >>"$dir/$who.log" 2>&1 &
    pids="$pids $!"
    eval "pid_$who=$!"
}
head() { # COMMAND OPTION...: to the end
    what=$1
    key head
    shift
    HOME=$dir/head timeout 60 "$kin" "$what" --cluster --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" \
        --hidden -t 1 "$@" 2>>"$dir/head.log"
}
alone() {
    what=$1
    shift
    HOME=$dir/head "$kin" "$what" -t 1 "$@" 2>>"$dir/head.log"
}
"$mkmodel" --preset tiny --type f16 --heads 8 --heads-kv 4 --layers 3 -o "$dir/model.gguf" 2>"$dir/log" || exit 1
export KIN_MODEL="$dir/model.gguf"
# Plans by rule, unless a check says otherwise; and nobody measures its machine, which takes seconds.
"$kin" profile --no-gpu --cache "$dir" -t 1 --json >"$dir/profile.json" 2>"$dir/head.log" || fail 'no profile'
export KIN_PLAN=tp KIN_PROFILE="$dir/profile.json"
tokens='1 50 60 70 80 90 100 110 120 130 140 150 160 170 180 190 200'

claim='a group of two gives what one machine gives, and the same bits twice and by every way'
alone eval --tokens "$tokens" --batch 8 --greedy 16 >"$dir/want.ids"
join anna
head eval --devices 1 --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/first" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
for way in mesh star tree ring; do
    head eval --devices 1 --allreduce $way --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/got" >"$dir/got.ids"
    same "$dir/want.ids" "$dir/got.ids"
    same "$dir/first" "$dir/got" # of two numbers there is one sum
done
claim='what is on the wire may be rounded'
head eval --devices 1 --wire f16 --batch 8 --tokens "$tokens" --greedy 16 >"$dir/got.ids"
check [ -s "$dir/got.ids" ]

claim='a group inside of a ring: before, with and after others'
join ben
cat >"$dir/plan.json" <<END
{"devices": [{"group": ["anna", "ben"], "window": 3, "shares": [2, 1]}, {"device": "head", "window": 2}]}
END
head eval --plan "$dir/plan.json" --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/got" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
cat >"$dir/plan.json" <<END
{"devices": [{"device": "anna", "window": 1}, {"group": ["ben", "head"], "window": 2}]}
END
head eval --plan "$dir/plan.json" --batch 8 --tokens "$tokens" --greedy 16 >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"

claim='a plan that cannot be is refused with a sentence'
cat >"$dir/wrong.json" <<END
{"devices": [{"group": ["head", "ben"], "window": 2}, {"device": "anna", "window": 1}]}
END
head run --plan "$dir/wrong.json" -p x && fail "it ran"
says "$dir/head.log" 'a group with the head comes last'
head run --allreduce cube -p x && fail "it ran"
says "$dir/head.log" 'must be mesh, star, tree or ring'

claim='when a device dies in the middle of a text, the others finish it'
kill "$pid_ben"
mark "$dir/head.log"
head run --devices 1 -p 'Once upon a time' --temp 0 -n 400 --ignore-eos >"$dir/text" &
pid_head=$!
wait_for 20 "$dir/head.log" 'serving on 1 device'
n=0
while [ ! -s "$dir/text" ] && [ $n -lt 400 ]; do sleep 0.05; n=$((n + 1)); done
kill -9 "$pid_anna"
wait "$pid_head" || fail "it gave up"
check [ "$(wc -c <"$dir/text")" -gt 400 ]

[ $n_failed -eq 0 ] && echo "test_group_devices: $n_checks checks" && exit 0
exit 1
