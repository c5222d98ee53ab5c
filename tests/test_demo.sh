#!/bin/sh
# kin demo: a ring of processes tells a story. Whichever process is killed, no process and no file is left behind.
#
#   test_demo.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
mkdir "$dir/tmp" "$dir/home"
ln -s "$(realpath "$kin")" "$dir/kin-of-the-demo" # gives its processes a name to search for
demo=$dir/kin-of-the-demo
export TMPDIR="$dir/tmp"

echo "$demo" >"$dir/name"
running() { # prints the demo's process ids
    grep -lasxzF -f "$dir/name" /proc/[0-9]*/cmdline | cut -d / -f 3
}
nothing_is_left() {
    n=0
    while [ -n "$(running)$(ls "$dir/tmp")" ] && [ $n -lt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    n_checks=$((n_checks + 1))
    [ -z "$(running)" ] || fail "processes are left: $(running)"
    [ -z "$(ls "$dir/tmp")" ] || fail "files are left: $(ls "$dir/tmp")"
}

claim='a ring of three devices and the head tells a story, and each computes its layers'
status 0 "$demo" demo
says "$out" '^Once upon a time, .*'
[ "$(wc -w <"$out")" -gt 50 ] || fail 'a short story'
for row in 'attic  *[0-7]-[0-7] ' 'kitchen  *[0-7]-[0-7] ' 'cellar  *[0-7]-[0-7] ' 'desk  *6-7 ' 'transfer ' 'all '; do
    says "$err" "^$row *[0-9.]* ms  *[0-9]* %"
done
layers=$(sed -n 's/^\(attic\|kitchen\|cellar\|desk\)  *\([0-7]-[0-7]\) .*/\2/p' "$err" | sort | tr '\n' ' ')
[ "$layers" = '0-1 2-3 4-5 6-7 ' ] || fail "layers $layers"
cp "$out" "$dir/story"

claim='it ends with three commands to try'
for words in 'chat qwen3-4b' 'run -m model.gguf' 'chat --cluster -m'; do says "$err" "^ *$demo $words"; done
[ -d /proc/self ] && nothing_is_left

claim='it tells the same story without a home, with one that cannot be written, and whatever is set in the environment'
status 0 env -u HOME -u XDG_CACHE_HOME "$demo" demo
same "$out" "$dir/story"
status 0 env HOME=/proc KIN_PLAN=nonsense.json KIN_MODEL=none.gguf KIN_PORT=1 KIN_LISTEN=10.0.0.1 "$demo" demo
same "$out" "$dir/story"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && chmod -R a+rx "$dir" && chmod 1777 "$dir/tmp" &&
    setpriv --reuid=65534 --regid=65534 --clear-groups "$demo" --version >/dev/null 2>&1; then
    claim='it tells it for any user'
    status 0 setpriv --reuid=65534 --regid=65534 --clear-groups "$demo" demo
    same "$out" "$dir/story"
fi

claim='wrong words are usage errors, and start nothing'
for words in '--devices 0' '--devices 8' '--devices x' '--seed x' '--plan even' 'word'; do
    # shellcheck disable=SC2086 # words
    status 2 "$demo" demo $words
    says "$err" "kin help demo"
done
status 1 env TMPDIR=/none "$demo" demo
says "$err" '^kin: cannot create a directory in /none (TMPDIR): No such file'
lines "$err" 1

if [ ! -r /proc/self/task/self/children ] && [ ! -r "/proc/$$/task/$$/children" ]; then
    echo 'no /proc with children: what is killed is not tested'
    tally
    exit
fi

# ---- a process is killed. One device is stopped before, so that the story cannot be over by then

children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
begin() { # stops a device as soon as the devices run
    "$demo" demo >"$out" 2>"$err" </dev/null &
    pid=$!
    device='' n=0
    while [ -z "$device" ] && [ $n -lt 3000 ]; do
        supervisor=$(children $pid | cut -d ' ' -f 1)
        [ -z "$supervisor" ] || device=$(children "$supervisor" | cut -d ' ' -f 3)
        [ -n "$device" ] || sleep 0.01
        n=$((n + 1))
    done
    kill -STOP "$device" || fail 'no device'
}
ends() { # STATUS PATTERN: waits for the demo's end and checks its status
    wait $pid
    got=$?
    n_checks=$((n_checks + 1))
    [ $got -eq "$1" ] || fail "status $got, not $1"
    [ -z "$2" ] || says "$err" "$2"
    nothing_is_left
}

claim='Ctrl-C ends it'
begin
kill -INT $pid
ends 130 ''
# Under nohup SIGHUP is ignored here and in all child processes.
if ! [ -r /proc/self/status ] || [ $((0x$(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/$$/status) & 1)) = 0 ]; then
    claim='a terminal that goes away ends it'
    begin
    kill -HUP $pid
    ends 130 ''
fi
claim='stopped in its first moments it blames no device and leaves nothing behind'
for wait in 0 0.01 0.02 0.04 0.08 0.15 0.3; do
    "$demo" demo >"$out" 2>"$err" </dev/null &
    pid=$!
    sleep $wait
    kill -TERM $pid
    wait $pid
    got=$?
    n_checks=$((n_checks + 1))
    case $got in
    130 | 143) ;; # 143: the signal came before the program had begun
    *) fail "status $got after $wait s: $(cat "$err")" ;;
    esac
    nothing_is_left
done
claim='it is killed'
begin
kill -KILL $pid
ends 137 ''
claim='a device is killed: said'
begin
kill -KILL "$device"
ends 1 "^kin: the device '[a-z]*' was killed by signal 9; the story is incomplete"
claim='the supervisor is killed: said'
begin
kill -KILL "$supervisor"
ends 1 '^kin: the supervisor process was killed'

tally
