# shellcheck shell=sh disable=SC2154
# verbs.sh: the verbs of a scenario besides `device`, `defaults`, `link` and `limit` (devices.sh); lab/run sources it.
#
#   start NAME COMMAND...          runs it in the background; stdout goes to OUT/NAME.out, stderr to OUT/NAME.log
#   beside NAME COMMAND...         runs it in the background beside what was started there, until `alone NAME`; stderr goes to OUT/NAME.log
#   run NAME COMMAND...            runs it and waits; stdout is ours, stderr goes to OUT/NAME.log. Ended after run_seconds (600)
#   until_says NAME TEXT [SECONDS] waits for a line with TEXT (a grep pattern) since the last `start` there (default: 60 s)
#   until_ends NAME [SECONDS]      waits for the last `start` there to end; returns its status
#
#   give NAME FILE                 puts a copy of FILE into NAME's home, not in memory; prints its path
#   make_model NAME OPTION...      sets $model, if there was no --model: BUILD/bench/NAME.gguf by mkmodel OPTION..., made once
#   forget [NAME...]               makes the kernel drop the pages of these devices' files (default: of all)
#   address NAME   home NAME       prints 192.168.77.N; prints the folder
#
#   mark                           restarts the figures
#   collect LABEL                  writes a line for each device to OUT/figures.csv: what it used since `mark`
#   calm                           waits until the machine is as fast as it has ever been; false: not in calm_seconds (60)
#   calmly COMMAND...              runs it when calm, and again, at most `tries` (4) times, if that has changed at its end; $n_tries
#   steadily COMMAND...            runs it again, at most `tries` (4) times, until the machine was equally fast before, after and
#                                  wherever COMMAND calls `pace`; sets $n_tries, and $steady: yes or no
#   row TABLE COLUMNS VALUES       writes a line to OUT/TABLE.csv; values and columns are separated by commas
#   plot TABLE X Y BY              makes OUT/TABLE.svg: column Y over column X, a line for each value of column BY
#   json KEY                       prints a number from kin's --json on stdin
#
#   end NAME                       sends SIGTERM to what was last started there, and waits for it
#   kill NAME                      sends SIGKILL to everything that runs there
#   stop NAME   cont NAME          sends SIGSTOP; SIGCONT
#   cut NAME    mend NAME          takes its link down; brings it up
#   mute NAME   unmute NAME        drops what it sends, while it still receives; ends that
#   fill NAME   empty NAME         fills the disk of its home (size=...); makes room again
#   hog NAME BYTES SECONDS         in the background, a program there takes that much memory within a second, and holds it that long
#
# A verb that fails ends the scenario, unless it is in a condition: `if until_says ...`.

run_seconds=600

now_ms() { date +%s%N | sed 's/......$//'; }
address() { device_fact "$1" address; }
home() { facts_of "$1" >/dev/null && echo "$work/$1"; }

# ---- commands

start() { # NAME COMMAND...
    sample_start
    facts_of "$1" >/dev/null
    for _stream in out log; do
        : >>"$out/$1.$_stream"
        wc -c <"$out/$1.$_stream" >"$state/said.$1.$_stream"
    done
    device_exec "$@" >>"$out/$1.out" 2>>"$out/$1.log" </dev/null &
    echo $! >"$state/started.$1"
}
beside() { # NAME COMMAND...
    facts_of "$1" >/dev/null
    device_exec "$@" >/dev/null 2>>"$out/$1.log" </dev/null 8>&- & # it must not keep a scenario's descriptors
    echo $! >>"$state/beside.$1"
}
# A program that has ended before is no failure: the scenario notices that its load is missing.
alone() { # NAME
    for _pid in $(cat "$state/beside.$1" 2>/dev/null); do
        command kill -TERM "$_pid" 2>/dev/null || true
        wait "$_pid" 2>/dev/null || true
    done
    rm -f "$state/beside.$1"
}
run() { # NAME COMMAND...
    sample_start
    facts_of "$1" >/dev/null
    _run_name=$1
    shift
    (device_exec "$_run_name" timeout --foreground -k 5 "$run_seconds" "$@") 2>>"$out/$_run_name.log"
}
said() { # NAME TEXT
    for _stream in out log; do
        tail -c +$(($(cat "$state/said.$1.$_stream") + 1)) "$out/$1.$_stream" | grep -q -e "$2" && return 0
    done
    return 1
}
is_running() { command kill -0 "$(cat "$state/started.$1")" 2>/dev/null; } # NAME
until_says() { # NAME TEXT [SECONDS]
    [ -e "$state/started.$1" ] || fail "nothing was started on $1"
    _until_ms=$(($(now_ms) + ${3:-60} * 1000))
    while is_running "$1"; do
        ! said "$1" "$2" || return 0
        [ "$(now_ms)" -lt $_until_ms ] || {
            say "$1 did not say '$2' in ${3:-60} s"
            return 1
        }
        sleep 0.05
    done
    said "$1" "$2" || {
        say "$1 ended without saying '$2'; last: $(tail -n 1 "$out/$1.log")"
        return 1
    }
}
until_ends() { # NAME [SECONDS]
    _until_ms=$(($(now_ms) + ${2:-60} * 1000))
    while is_running "$1"; do
        [ "$(now_ms)" -lt $_until_ms ] || {
            say "$1 still runs after ${2:-60} s"
            return 1
        }
        sleep 0.05
    done
    wait "$(cat "$state/started.$1")"
}

end() { # NAME
    group_signal "$state/groups/$1" TERM
    until_ends "$1" 60 || true
}

# ---- files

give() { # NAME FILE
    _given=$(home "$1")/$(basename "$2")
    [ -f "$_given" ] || cp --reflink=never "$2" "$_given"
    [ "$(drop_file "$_given")" = 0 ] || say "some of $_given stayed in memory"
    echo "$_given"
}
make_model() { # NAME OPTION...
    [ -z "$model" ] || return 0
    model=$build/bench/$1.gguf
    shift
    mkdir -p "$build/bench"
    [ -f "$model" ] || {
        say "making $model"
        "$build/mkmodel" "$@" -o "$model.part" >&2 && mv "$model.part" "$model"
    }
}
forget() { # [NAME...]
    # shellcheck disable=SC2046 # names
    [ $# -gt 0 ] || set -- $(devices)
    for _forgetful; do
        find "$(home "$_forgetful")" -type f -size +64k | while read -r _file; do drop_file "$_file" >/dev/null; done
        group_forget_pages "$state/groups/$_forgetful"
    done
}

# ---- other programs on the machine

# An idle processor wakes up late, and on a rented machine a neighbour may get it first: rings of devices that take turns then
# lose a tenth to a third. While this file is open, the kernel's idle loop does not enter deep sleep.
stay_awake() { # closed (9>&-) for everything that may outlive the lab's own process, with --keep
    (: >/dev/cpu_dma_latency) 2>/dev/null || return 0
    exec 9>/dev/cpu_dma_latency
    printf '\0\0\0\0' >&9 || exec 9>&-
}

# On rented machines neighbours come and go, for seconds or minutes, and memory-bound work then takes a quarter to twice as long.
# Repeating the same work shows it: up to 1.15 times the least time ever measured here counts as calm.
is_calm() {
    _pace=$build/lab/pace # kept from lab to lab
    "$build/probe" work 15 >"$state/pace" || fail "the machine's pace is not to be known"
    [ -e "$_pace" ] || { mkdir -p "$build/lab" && cp "$state/pace" "$_pace"; }
    awk -F, -v best="$_pace" '
        function least(a, b) { return a == "" || b < a ? b : a }
        FNR == NR { a[$1] = $2; b[$1] = $3; next }
        { a[$1] = least(a[$1], $2); b[$1] = least(b[$1], $3); if ($2 > 1.15 * a[$1] || $3 > 1.15 * b[$1]) slow = 1 }
        END { for (cpu in a) printf "%s,%s,%s\n", cpu, a[cpu], b[cpu] >best; exit slow }' "$_pace" "$state/pace"
}
calm() {
    _calm_until=$(($(now_ms) + ${calm_seconds:-60} * 1000))
    until is_calm; do
        [ "$(now_ms)" -lt $_calm_until ] || return 1
        sleep 0.5
    done
}
# shellcheck disable=SC2034 # n_tries is for the scenario
calmly() { # COMMAND...
    for n_tries in $(seq "${tries:-4}"); do
        calm || say "others keep the machine busy"
        "$@" || return
        ! is_calm || return 0
    done
}

# Values that are compared must be measured while the machine is equally fast.
pace() { "$build/probe" work 15 >>"$state/paces" || fail "the machine's pace is not to be known"; }
# shellcheck disable=SC2034 # n_tries and steady are for the scenario
steadily() { # COMMAND...
    steady=no
    for n_tries in $(seq "${tries:-4}"); do
        : >"$state/paces"
        pace
        "$@" || return
        pace
        if awk -F, '
            !($1 in least) || $3 < least[$1] { least[$1] = $3 }
            $3 > most[$1] { most[$1] = $3 }
            END { for (cpu in least) if (most[cpu] > 1.15 * least[cpu]) exit 1 }' "$state/paces"; then
            steady=yes
            return 0
        fi
    done
}

# ---- faults

cable_of() { # NAME
    if has_wire "$(facts_of "$1")"; then echo "$1-in"; else echo "$1"; fi
}
kill() { facts_of "$1" >/dev/null && group_signal "$state/groups/$1" KILL; }
stop() { facts_of "$1" >/dev/null && group_signal "$state/groups/$1" STOP; }
cont() { facts_of "$1" >/dev/null && group_signal "$state/groups/$1" CONT; }
cut() { ip -n "$switch" link set dev "$(cable_of "$1")" down; }
mend() { ip -n "$switch" link set dev "$(cable_of "$1")" up; }
# The queue silently loses all frames, while the link stays up.
mute() { tc -n "kin-$lab-$1" qdisc replace dev eth0 root blackhole; }
unmute() {
    tc -n "kin-$lab-$1" qdisc del dev eth0 root
    rates_set "$1" "$(facts_of "$1")"
}
fill() {
    [ -n "$(device_fact "$1" size)" ] || fail "$1 has no disk of its own: device $1 size=..."
    for _filler in 1 2 3; do # one file may get less than the free space, and tables of blocks need some too
        fallocate -l "$(df --output=avail -B 1 "$(home "$1")" | tail -n 1)" "$(home "$1")/filler.$_filler" 2>/dev/null || true
    done
    dd if=/dev/zero of="$(home "$1")/filler.rest" bs=4k 2>/dev/null || true
}
empty() { rm -f "$(home "$1")"/filler.*; }
hog() { # NAME BYTES SECONDS
    device_exec "$1" "$build/hog" --bytes "$2" --step "$(($(bytes "$2" 1024) / 16))" --every-ms 50 --wait-ms 0 --hold-ms "$(($3 * 1000))" \
        >/dev/null 2>>"$out/$1.log" </dev/null &
}

# ---- figures

# Prints lines NAME SENT RECEIVED: bytes of all devices, counted at the switch.
# shellcheck disable=SC2016 # for awk
network_bytes() { in_switch awk '{ sub(/:/, " ") } $1 !~ /-in$|-out$/ { print $1, $2, $10 }' /proc/net/dev; }

# Prints how long all of this machine's processors together had work while the host ran something else.
stolen_ms() { awk -v per_s="$(getconf CLK_TCK)" '$1 == "cpu" { printf "%.0f\n", $9 * 1000 / per_s }' /proc/stat; }

figures_now() { # NAME -> key=value words
    group_figures "$state/groups/$1" "$disk_of_work" | tr '\n' ' '
    echo "stolen_ms=$(stolen_ms)" | tr '\n' ' '
    network_bytes | awk -v name="$1" '$1 == name { printf "sent_bytes=%.0f received_bytes=%.0f\n", $2, $3 }'
}
mark() {
    sample_start
    for _marked in $(devices); do
        group_forget_peak "$state/groups/$_marked"
        figures_now "$_marked" >"$state/mark.$_marked"
    done
    now_ms >"$state/marked"
    n_samples >"$state/sampled"
}
n_samples() { if [ -s "$out/samples.csv" ]; then wc -l <"$out/samples.csv"; else echo 0; fi; }
# Prints the largest memory use at a sample since the mark, in bytes: as the control group counts, except pages that the kernel
# counts ahead, up to 64 per processor.
used_since_mark() { # NAME
    [ ! -s "$out/samples.csv" ] || tail -n "+$(($(cat "$state/sampled" 2>/dev/null || echo 0) + 1))" "$out/samples.csv" |
        awk -F, -v name="$1" '$2 == name && $4 + $5 + $6 > most { most = $4 + $5 + $6 } END { printf "%.0f", most * 1048576 }'
}
since_mark() { # KEY WORDS MARK-WORDS
    echo $(($(fact "$1" "$2") - $(fact "$1" "$3" | sed 's/^$/0/')))
}
collect() { # LABEL
    _columns=label,device,seconds,memory_peak_bytes,memory_limit_bytes,disk_read_bytes,cpu_ms,sent_bytes,received_bytes
    _columns=$_columns,major_faults,memory_limit_hits,oom_kills,memory_used_bytes,stolen_ms
    _collect_now=$(now_ms)
    _collect_then=$(cat "$state/marked" 2>/dev/null || echo "$_collect_now")
    for _collected in $(devices); do
        _now_words=$(figures_now "$_collected") _then_words=$(cat "$state/mark.$_collected" 2>/dev/null || true)
        _limit=$(device_fact "$_collected" memory)
        _line="$1,$_collected,$(awk "BEGIN { print ($_collect_now - $_collect_then) / 1000 }")"
        _line="$_line,$(fact memory_peak_bytes "$_now_words"),$([ -z "$_limit" ] || bytes "$_limit" 1024)"
        for _key in disk_read_bytes cpu_ms sent_bytes received_bytes major_faults memory_limit_hits oom_kills; do
            _line="$_line,$(since_mark $_key "$_now_words" "$_then_words")"
        done
        row figures "$_columns" "$_line,$(used_since_mark "$_collected"),$(since_mark stolen_ms "$_now_words" "$_then_words")"
    done
}
row() { # TABLE COLUMNS VALUES
    [ -s "$out/$1.csv" ] && [ -e "$state/table.$1" ] || echo "$2" >"$out/$1.csv"
    : >"$state/table.$1"
    echo "$3" >>"$out/$1.csv"
}
plot() { "$here/plot" "$out/$1.csv" "$2" "$3" "$4" >"$out/$1.svg"; } # TABLE X Y BY
json() { sed -n "s/.*\"$1\": \([-0-9.e]*\).*/\1/p" | head -n 1; }

# samples.csv: use of memory, processors, disk and network over time. One process watches all devices from the switch.
sample_start() {
    [ "$sample_ms" != 0 ] && [ ! -e "$state/sampling" ] || return 0
    : >"$state/sampling"
    _watched=$(for _watched in $(devices); do
        _record=$state/groups/$_watched
        echo "$_watched $(group_dir "$_record" memory | sed 's/^$/-/') $(group_dir "$_record" blkio) $(group_dir "$_record" v2)"
    done)
    nsenter --net="/run/netns/$switch" awk -v watched="$_watched" -v disk="$disk_of_work" -v pause="$(awk "BEGIN { print $sample_ms / 1000 }")" \
        -f "$here/sample.awk" >"$out/samples.csv" 2>/dev/null </dev/null 9>&- &
}

# ---- the end

# Output at the end counts too: every device gets time for it.
finish() {
    [ -e "$state/table.figures" ] || collect all
    if [ "$sample_ms" != 0 ] && [ -s "$out/samples.csv" ]; then
        for _column in memory_mib cpu disk_mb_s sent_mbit_s; do "$here/plot" "$out/samples.csv" s $_column device >"$out/$_column.svg"; done
    fi
    if [ -z "$keep" ]; then
        for _ended in $(devices); do group_signal "$state/groups/$_ended" CONT; group_signal "$state/groups/$_ended" TERM; done
        for _ended in $(devices); do group_wait_gone "$state/groups/$_ended" 20; done
        for _ended in $(devices); do wire_stop "$_ended"; done
        brake_stop
    fi
    say "$title: $out"
}

# lab/run --at PID VERB ARG...
verb_at() { # VERB ARG...
    case $1 in
    run | start | kill | stop | cont | cut | mend | mute | unmute | fill | empty | forget | address | home) "$@" ;;
    *) fail "'$1' cannot be said from outside; these can: run start kill stop cont cut mend mute unmute fill empty forget address home" ;;
    esac
}
