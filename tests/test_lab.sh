#!/bin/sh
# The lab builds what a scenario describes and leaves nothing behind. A stand-in replaces kin: it listens, answers and prints figures.
#
#   test_lab.sh PATH_TO_KIN      (delay, brake and probe are in the same folder)
# shellcheck disable=SC2016 # scenarios are texts of their own
set -u
build=$(CDPATH='' cd "$(dirname "$1")" && pwd)
source=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
lab=$source/lab/run
dir=$(mktemp -d -p /var/tmp) || exit 1
n_checks=0 n_failed=0 claim='' supervisor=''

finish() {
    [ -z "$supervisor" ] || kill -KILL "$supervisor" 2>/dev/null
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 143' TERM INT

"$lab" --check 2>"$dir/err" || {
    cat "$dir/err"
    exit 77
}

failed() {
    echo "FAILED: $claim: $*"
    tail -n 4 "$dir/err" 2>/dev/null
    n_failed=$((n_failed + 1))
}
check() { # COMMAND...
    n_checks=$((n_checks + 1))
    "$@" || failed "$*"
}
is_not() { ! "$@"; }
says() { grep -q -e "$2" "$1"; } # FILE PATTERN
between() { awk -v low="$1" -v value="$2" -v high="$3" 'BEGIN { exit !(value != "" && low <= value && value <= high) }'; }
column() { awk -F, -v row="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } $1 == row { print $c; exit }' "$dir/out/$1.csv"; }
labelled() { awk -F, -v row="$2" -v by="$3" -v name="$4" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } $1 == row && $2 == by { print $c; exit }' "$dir/out/$1.csv"; }
until_there() { # FILE PATTERN
    for _ in $(seq 200); do
        grep -q -s -e "$2" "$1" && return 0
        sleep 0.05
    done
    return 1
}

# scenario TEXT [OPTION...]: runs it and returns the lab's status.
scenario() {
    echo "$1" >"$dir/test.lab"
    shift
    "$lab" "$dir/test.lab" --kin "$dir/kin" --build "$build" --out "$dir/out" --work "$dir" --sample 0 "$@" >"$dir/said" 2>"$dir/err"
}
# left_of PID: prints what the lab of that process may have left: records, namespaces, groups, files, and processes in them.
left_of() { # PID
    find /run/kin-lab -maxdepth 1 -name "$1" 2>/dev/null
    find /run/netns -name "kin-$1-*" 2>/dev/null
    find /sys/fs/cgroup -name "kin-lab.$1.*" 2>/dev/null
    find "$dir" -maxdepth 1 -name "kin-lab.$1"
    grep -l -s "kin-lab.$1/" /proc/[0-9]*/environ 2>/dev/null
}
nothing_left_of() { [ -n "$1" ] && [ -z "$(left_of "$1")" ]; }
lab_number() { sed -n 's/^number //p' "$dir/said" | head -n 1; }

# ---- the stand-in

cat >"$dir/kin" <<STAND_IN
#!/bin/sh
command=\$1
shift
case \$command in
join)
    echo "kin: working for the head 'desk'" >&2
    exec "$build/probe" serve 7000
    ;;
run)
    sleep 0.8 && until "$build/probe" send 192.168.77.2 7000 2000000 2>/dev/null; do sleep 0.1; done
    echo 'Once upon a time there was a lab.'
    ;;
bench)
    sleep 0.2
    echo '{ "tpot_ms": 12.5,'
    echo '  "ttft_ms": 80.25 }'
    ;;
esac
STAND_IN
chmod +x "$dir/kin"
head -c 3000000 /dev/urandom >"$dir/small.gguf"

# ---- devices

claim='a device has a network, a name, a home and limits of its own, and nothing of our environment'
export KIN_MEMORY=1 UNWANTED=yes
scenario '
echo "number $lab"
device one memory=64M cpu=0.5 cpus=0 threads=3 gpu=yes
device two
run one sh -c "cat /proc/sys/kernel/hostname; env; pwd"
run two env
echo "processors $(run one nproc)"
run one "$build/probe" ping "$(address two)" 7000 1 || echo unanswered'
check [ $? -eq 0 ]
check says "$dir/said" '^one$'
check says "$dir/said" '^processors 1$'
check says "$dir/said" '^KIN_THREADS=3$'
check says "$dir/said" '^GGML_VK_VISIBLE_DEVICES=0$'
check says "$dir/said" "^XDG_CACHE_HOME=$dir/kin-lab.*/two/.cache$"
check is_not says "$dir/said" 'UNWANTED\|KIN_MEMORY'
check says "$dir/said" unanswered
check nothing_left_of "$(lab_number)"
unset KIN_MEMORY UNWANTED

claim='memory, processor time and disk rate are limited, and the figures say what was used'
head -c 60000000 /dev/zero >"$dir/60MB"
scenario '
device slow memory=24M cpu=0.25 disk=40M
file=$(give slow "'"$dir"'/60MB")
mark
run slow dd if="$file" of=/dev/null bs=1M
collect read
mark
run slow sh -c "i=0; while [ \$i -lt 200000 ]; do i=\$((i + 1)); done"
collect compute
forget slow
mark
run slow true
collect nothing
run slow sh -c "head -c 60000000 /dev/zero | tail -c 50000000 >/dev/null" || echo "not in 24M"' --sample 100
check [ $? -eq 0 ]
check between 60000000 "$(labelled figures read slow disk_read_bytes)" 64000000
check between 1.3 "$(labelled figures read slow seconds)" 4
check between 12000000 "$(labelled figures read slow memory_peak_bytes)" 25165824
check [ "$(labelled figures read slow memory_limit_bytes)" = 25165824 ]
check between 12000000 "$(labelled figures read slow memory_used_bytes)" 25165824
check between 0 "$(labelled figures compute slow memory_used_bytes)" "$(labelled figures compute slow memory_peak_bytes)"
check between 0.15 "$(awk "BEGIN { print $(labelled figures compute slow cpu_ms) / 1000 / $(labelled figures compute slow seconds) }")" 0.3
check between 0 "$(labelled figures nothing slow memory_peak_bytes)" 3000000
check says "$dir/said" 'not in 24M'
rm "$dir/60MB"

claim='a disk of its own is full, has room again, and goes with the lab'
scenario '
echo "number $lab"
device small size=64M
run small sh -c "echo before >one"
fill small
run small sh -c "head -c 8192 /dev/zero >two" || echo "no room"
empty small
run small sh -c "head -c 8000000 /dev/zero >three && cat one" && echo "room"'
check [ $? -eq 0 ]
check says "$dir/said" 'no room'
check says "$dir/said" '^before'
check says "$dir/said" '^room'
check is_not grep -q "kin-lab.$(lab_number)/" /proc/mounts
check nothing_left_of "$(lab_number)"

claim='programs beside the one that was started take memory, processor, disk and network as they are told, until they should end'
scenario '
device one
device two
beside two "$build/hog" --serve 7001@4M
beside one "$build/hog" --bytes 20M --wait-ms 0 --every-ms 1 --hold-ms 99999 --cpu 20 --write "$(home one)/written@3M" --call "$(address two):7001@1M"
mark
written=$(wc -c <"$(home one)/written")
sleep 2
collect loaded
echo "written $(($(wc -c <"$(home one)/written") - written))"
alone one
mark
sleep 1
collect quiet
alone two
for name in one two; do [ -n "$(group_members "$state/groups/$name")" ] || echo "$name is empty"; done
run one "$build/hog" --cpu 0 || echo "no share"
run one "$build/hog" --call "$(address two):7001@1M" || echo "no server"'
check [ $? -eq 0 ]
check between 21000000 "$(labelled figures loaded one memory_peak_bytes)" 100000000
# Other programs on this machine may stretch the time between two samples, but for all loads alike.
sent=$(labelled figures loaded one sent_bytes)
of_sent() { awk "BEGIN { print $1 / $sent }"; }
check between 500000 "$sent" 20000000
check between 2.5 "$(of_sent "$(labelled figures loaded one received_bytes)")" 6
check between 1.8 "$(of_sent "$(sed -n 's/^written //p' "$dir/said")")" 4.5
check between 100 "$(labelled figures loaded one cpu_ms)" "$(awk "BEGIN { print 600 * $(labelled figures loaded one seconds) }")"
check between 0 "$(labelled figures quiet one cpu_ms)" 100
check between 0 "$(labelled figures quiet one received_bytes)" 200000
check says "$dir/said" 'one is empty'
check says "$dir/said" 'two is empty'
check says "$dir/said" 'no share'
check says "$dir/said" 'no server'

claim='a plot over words has a bar for each at the median of its rows, between their quartiles'
printf 'what,cost\nquiet,-1\nbusy,30\nbusy,10\nbusy,20\nbusy,50\nbusy,40\nbusy,\n' >"$dir/words.csv"
"$source/lab/plot" "$dir/words.csv" what cost >"$dir/words.svg"
check [ $? -eq 0 ]
check [ "$(grep -c '#9bd' "$dir/words.svg")" = 1 ]
check says "$dir/words.svg" '>30</text>'
check says "$dir/words.svg" 'M550.0 170.0V40.0'
check says "$dir/words.svg" '>quiet</text>'

claim='a slow processor is as slow for a millisecond of work as for more of it, and a limit can change while all stands'
scenario '
device slow speed=0.25 memory=24M
device quick
for ms in 1 3 10; do row bursts ms,n,least,median,p99,max "$ms,$(run slow "$build/probe" burst 1 $ms 15)"; done
row bursts - "quick,$(run quick "$build/probe" burst 1 10 15)"
limit slow speed=1 memory=80M
row bursts - "freed,$(run slow "$build/probe" burst 1 10 15)"
run slow sh -c "head -c 60000000 /dev/zero | tail -c 50000000 >/dev/null" && echo "fits into it"
limit slow rate=1mbit'
check [ $? -eq 1 ]
check says "$dir/err" "'rate=1mbit' is not a limit that can change"
check between 3000 "$(column bursts 1 median)" 1000000
check between 11000 "$(column bursts 3 median)" 1000000
check between 37000 "$(column bursts 10 median)" 1000000
check between 10000 "$(column bursts quick least)" "$(column bursts 10 least)"
check between 10000 "$(column bursts freed least)" "$(column bursts 10 least)"
check says "$dir/said" 'fits into it'

claim='a direct read after a rest takes as long as its bytes need, and the same work is asked for until the machine is calm'
head -c 20000000 /dev/urandom >"$dir/20MB"
scenario '
device slow reads=50M
device quick
n=0
tries=2 calm_seconds=1
asked() { n=$((n + 1)); }
for name in slow quick; do row reads device,n,least,median,p99,max "$name,$(run $name "$build/probe" read "$(give $name '"$dir"'/20MB)" 15)"; done
calmly asked
[ $n = $n_tries ] && echo "asked as often as counted"
calmly false || echo "failed at once"
[ "$(wc -l <"$state/pace")" = "$(nproc)" ] && echo "all processors"'
check [ $? -eq 0 ]
check between 20900 "$(column reads slow least)" 1000000
check between 0 "$(column reads quick least)" 20900
check says "$dir/said" 'asked as often as counted'
check says "$dir/said" 'failed at once'
check says "$dir/said" 'all processors'
rm "$dir/20MB"

claim='what a device computes takes as many times longer as it is told, of the least time that was ever seen'
scenario '
defaults memory=1G threads=1
device quick computes=2x
device slow computes=8x
computed() { run $1 "$build/kin" bench --json --prompt 1 --gen 4 --reps 1 --gpu-layers 0 --weights mmap >"$out/$1.json"; }
computed quick; computed quick; rm "$out/quick.late"; computed quick
computed slow; row computing device,tpot_ms "slow,$(json tpot_ms <"$out/slow.json")"'
check [ $? -eq 0 ]
quick=$(cut -d, -f2 "$dir/out/quick.late") slow=$(cut -d, -f2 "$dir/out/slow.late")
check [ "$(cut -d, -f1 "$dir/out/quick.late")" = "$(cut -d, -f1 "$dir/out/slow.late")" ]
check between "$(awk "BEGIN { print 1.5 * $quick }")" "$slow" "$(awk "BEGIN { print 4.01 * $quick + 0.01 }")"
graphs=$(cut -d, -f1 "$dir/out/slow.late")
check between "$(awk "BEGIN { print 0.9 * 1000 * $slow / $graphs }")" "$(column computing slow tpot_ms)" 1000000

# ---- links

# The bounds are wide: a busy machine makes frames late but never early.
claim='links have the delay and the rate that they are given, and calls to everybody reach everybody'
scenario '
device near
device slow rate=50mbit delay=10ms
device shaky delay=1ms jitter=5ms
for name in slow shaky; do start $name "$build/probe" serve 7000; until_says $name serving; done
row pings device,n,min,median,p99,max "slow,$(run near "$build/probe" ping "$(address slow)" 7000 20)"
row pings - "shaky,$(run near "$build/probe" ping "$(address shaky)" 7000 40)"
row rates device,bytes_per_s "slow,$(run near "$build/probe" send "$(address slow)" 7000 5000000)"
row heard how,answers "multicast,$(run near "$build/probe" call multicast 7000 | sort -u | wc -l)"
row heard - "broadcast,$(run near "$build/probe" call broadcast 7000 | sort -u | wc -l)"
link slow delay=1ms rate=10mbit
row pings - "faster,$(run near "$build/probe" ping "$(address slow)" 7000 20)"
row rates - "slower,$(run near "$build/probe" send "$(address slow)" 7000 1000000)"
plot pings n median device'
check [ $? -eq 0 ]
check between 20000 "$(column pings slow min)" 22000
check between 2000 "$(column pings shaky min)" 9000
check between 3500 "$(column pings shaky median)" 14000
check between 3000000 "$(column rates slow bytes_per_s)" 6300000
check between 2000 "$(column pings faster min)" 4000
check between 700000 "$(column rates slower bytes_per_s)" 1300000
check [ "$(column heard multicast answers)" = 2 ]
check [ "$(column heard broadcast answers)" = 2 ]
check says "$dir/out/pings.svg" '<polyline'

claim='a killed, stopped or cut device answers no more; a continued or mended one does'
scenario '
device near
device far delay=1ms
start far "$build/probe" serve 7000
until_says far serving
asked() { if run near "$build/probe" ping "$(address far)" 7000 2 >/dev/null; then echo "$1: answers"; else echo "$1: silent"; fi; }
asked whole
stop far; asked stopped
cont far; sleep 0.2; asked continued
cut far; asked cut
mend far; sleep 0.2; asked mended
mute far; asked mute
unmute far; sleep 0.2; asked heard
kill far; until_ends far 5 || true; asked killed'
check [ $? -eq 0 ]
for state in whole continued mended heard; do check says "$dir/said" "^$state: answers"; done
for state in stopped cut mute killed; do check says "$dir/said" "^$state: silent"; done

# ---- the built-in scenarios, with the stand-in

for name in two four-equal four-300 table3 wifi predict schedulers select; do
    claim="the scenario $name runs from its beginning to its end"
    "$lab" "$name" --kin "$dir/kin" --build "$build" --model "$dir/small.gguf" --out "$dir/$name" --work "$dir" --sample 200 \
        --set rounds='1 2' --set rates='50 300' --set rtts='94' --set n_devices=6 \
        --set only='m1-400 s2gpu' --set gpus=yes --set calm_seconds=0 --set tries=1 --set sizes='8b 70b' >"$dir/said" 2>"$dir/err"
    check [ $? -eq 0 ]
    check says "$dir/$name/figures.csv" '^[^,]*,[a-z0-9]*,[0-9.]*,[0-9]'
    check says "$dir/$name/memory_mib.svg" '<polyline'
done
check says "$dir/four-equal/rounds.csv" "^2,mmap,1,12.5,80.25,"
check says "$dir/four-equal/rounds.svg" '<polyline'
check says "$dir/predict/predict.csv" '^s2gpu,1,ring gpu,s,2,1ms,1gbit,100G,gpu 1,12.5,'
check says "$dir/schedulers/table4.csv" '^70b,12.5,12.5,12.5,12.5$'
check says "$dir/select/steps.csv" '^6,without d2,d1 d3 d4 d5,'

# ---- clean-up

claim='a scenario that fails leaves nothing'
scenario 'echo "number $lab"
device one
start one sleep 1000
until_says one never 1'
check [ $? -eq 1 ]
check says "$dir/err" "one did not say 'never' in 1 s"
check nothing_left_of "$(lab_number)"

claim='what a scenario says wrongly is refused with a sentence'
for wrong in 'device Big' 'device one colour=red' 'device one rate=fast' 'device one memory=much' 'device one cpu=-1' 'run nobody true' \
    'device one speed=0' 'device one; limit one colour=red' 'device one computes=8G' 'device one computes=0.5x' 'device one; limit one reads=8g' \
    'device one; device one' 'device one; link one delay=1ms' 'device one delay=soon'; do
    scenario "$wrong"
    check [ $? -eq 1 ]
    check says "$dir/err" '^lab: .* .* '
done
"$lab" nowhere 2>"$dir/err"
check [ $? -eq 1 ]
"$lab" --wrong 2>"$dir/err"
check [ $? -eq 2 ]

# in_background OPTION...: starts a lab with a link and processes that ignore SIGTERM; $supervisor is lab/run.
in_background() { # OPTION...
    echo 'echo "number $lab"
device one delay=1ms memory=100M
device two
start one sh -c "trap : TERM; setsid sleep 1000 & while :; do sleep 1; done"
start two sleep 1000
stop two
echo built
[ -n "${short:-}" ] || sleep 1000' >"$dir/test.lab"
    : >"$dir/said"
    "$lab" "$dir/test.lab" --kin "$dir/kin" --build "$build" --out "$dir/out" --work "$dir" "$@" >"$dir/said" 2>"$dir/err" &
    supervisor=$!
    until_there "$dir/said" built || failed "no lab was built"
}

claim='a lab that is told to end leaves nothing'
for signal in TERM HUP; do # background processes of a shell ignore INT
    in_background
    kill -$signal "$supervisor"
    wait "$supervisor"
    check [ $? -ge 129 ]
    check nothing_left_of "$supervisor"
done

claim='a lab that is killed outright is still there, and --clean removes all of it'
in_background
kill -KILL "$supervisor"
wait "$supervisor" 2>/dev/null
check [ -n "$(left_of "$supervisor")" ]
check says /sys/fs/cgroup/*/"$(find /sys/fs/cgroup -name "kin-lab.$supervisor.two" -printf '%P\n' -quit | sed 's,^[^/]*/,,')/cgroup.procs" '[0-9]'
"$lab" --list >"$dir/said"
check says "$dir/said" "^$supervisor dead test: one two"
"$lab" --clean 2>"$dir/err"
check [ $? -eq 0 ]
check nothing_left_of "$supervisor"

claim='the next lab removes a dead one, and lets a living and a kept one be'
in_background
dead=$supervisor
kill -KILL "$dead"
wait "$dead" 2>/dev/null
in_background --set short=1 --keep
wait "$supervisor"
kept=$supervisor
check nothing_left_of "$dead"
in_background
living=$supervisor
check [ -n "$(left_of "$kept")" ]
"$lab" --at "$kept" run two true 2>"$dir/err"
check [ $? -eq 0 ]
"$lab" --clean 2>"$dir/err"
check [ $? -eq 0 ]
check nothing_left_of "$kept"
check [ -d "/run/kin-lab/$living" ]
check kill -0 "$living"
"$lab" --clean "$living" 2>"$dir/err"
wait "$living" 2>/dev/null
check nothing_left_of "$living"

echo "test_lab: $n_checks checks, $n_failed failed"
[ $n_failed -eq 0 ]
