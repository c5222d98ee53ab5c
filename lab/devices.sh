# shellcheck shell=sh disable=SC2154
# devices.sh: makes the switch and the devices of a lab; lab/run sources it. Uses lab/run's variables lab, state, switch, work,
# out, build and disk_of_work, its `say` and `fail`, and cgroup.sh.
#
#     namespace kin-LAB-switch                                   namespace kin-LAB-NAME
#
#     br0 ── NAME ───────────────────────────────────────────────── eth0                    without delay
#     br0 ── NAME ══ NAME-out ◄─ lab/delay ─► NAME-in ───────────── eth0                    with delay
#
#        tbf at NAME: limits what the device receives                tbf at eth0: limits what it sends
#
# Variables that begin with _ belong to the lab and are short-lived; a scenario may use all other names.
#
# Several labs do not interfere: all links are inside the namespaces. Devices have the addresses 192.168.77.1, .2, ... in the
# order in which they are made.

subnet=192.168.77

namespace_make() { # NAME
    echo "$1" >>"$state/namespaces"
    ip netns add "$1"
    ip -n "$1" link set dev lo up
    # Linux's usual congestion control; this machine's own may fill queues differently.
    nsenter --net="/run/netns/$1" sh -c 'cd /proc/sys/net/ipv4 && ! grep -qw cubic tcp_allowed_congestion_control || echo cubic >tcp_congestion_control'
}
in_switch() { nsenter --net="/run/netns/$switch" "$@"; }

switch_make() {
    namespace_make "$switch"
    now_ms >"$state/marked"
    in_switch sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6' 2>/dev/null || true
    # Without a router that sends queries, snooping would only lose multicast.
    ip -n "$switch" link add name br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
    ip -n "$switch" link set dev br0 up
}

# Prints the value of KEY in FACTS, words key=value of `device` or `defaults`; a later word wins.
fact() { # KEY FACTS
    for _word in $2; do
        case $_word in
        "$1"=*) _fact_value=${_word#*=} ;;
        esac
    done
    echo "${_fact_value:-}"
    _fact_value=''
}
facts_of() { cat "$state/devices/$1" 2>/dev/null || fail "there is no device '$1'"; } # NAME
device_fact() { fact "$2" "$(facts_of "$1")"; }                                        # NAME KEY
devices() { find "$state/devices" -type f -printf '%f\n' | sort; }

# Limits the size of frames that the device leaves for the network to cut: at most what 1 Gbit/s carries in 0.2 ms, so that the
# receiver gets realistic bursts.
uncut_max=25000
uncut_set() { # NAMESPACE BYTES
    _uncut=$2
    [ "$_uncut" -lt $uncut_max ] || _uncut=$uncut_max
    ip -n "$1" link set dev eth0 gso_max_size $((_uncut - 200)) # minus the headers, one set for each frame that it is cut into
}

# The bucket holds what the link carries in 0.2 ms, at least two frames: so a message is never earlier than on a real link by more
# than that. It cannot be smaller: late timers would then reduce the rate (with 0.1 ms, 1 Gbit/s came out as 0.83). The device's
# own frames stay uncut up to that size; tbf cuts larger frames of others.
rate_set() { # NAMESPACE INTERFACE RATE QUEUE
    _bucket=$(echo "$3" | awk '
        !/^[0-9.]+[kmg]bit$/ { exit 1 }
        { n = $1 + 0; if (/k/) n *= 1e3; if (/m/) n *= 1e6; if (/g/) n *= 1e9; b = n / 8 * 2e-4; printf "%d\n", b < 3200 ? 3200 : b }') ||
        fail "'$3' is not a rate: 300mbit, 1gbit"
    [ "$2" != eth0 ] || uncut_set "$1" "$_bucket"
    tc -n "$1" qdisc replace dev "$2" root tbf rate "$3" burst "$_bucket" latency "${4:-50ms}"
}

cable_make() { # NAME FACTS
    _namespace=kin-$lab-$1
    _cable=$1
    if ! has_wire "$2"; then
        ip -n "$switch" link add name "$1" type veth peer name eth0 netns "$_namespace"
    else
        _cable=$1-in
        ip -n "$switch" link add name "$1-in" type veth peer name eth0 netns "$_namespace"
        ip -n "$switch" link add name "$1" type veth peer name "$1-out"
        ip -n "$switch" link set dev "$1-out" up
    fi
    ip -n "$switch" link set dev "$1" master br0 up
    ip -n "$switch" link set dev "$_cable" up
    uncut_set "$_namespace" $uncut_max
    rates_set "$1" "$2"
    [ "$_cable" = "$1" ] || wire_start "$1" "$2"
}

has_wire() { [ -n "$(fact delay "$1")$(fact jitter "$1")$(fact swallow "$1")" ]; } # FACTS
rates_set() {                                                  # NAME FACTS
    _rate=$(fact rate "$2") _up=$(fact up "$2") _down=$(fact down "$2")
    _up=${_up:-$_rate} _down=${_down:-$_rate}
    _queue=$(fact queue "$2")
    [ -z "$_up" ] || rate_set "kin-$lab-$1" eth0 "$_up" "$_queue"
    [ -z "$_down" ] || rate_set "$switch" "$1" "$_down" "$_queue"
}
wire_start() { # NAME FACTS
    _delay=$(fact delay "$2") _jitter=$(fact jitter "$2") _swallow=$(fact swallow "$2") _seed=$(fact address "$2")
    : >"$state/carrying"
    nsenter --net="/run/netns/$switch" "$build/delay" --delay "${_delay:-0us}" --jitter "${_jitter:-0us}" --seed "${_seed##*.}" \
        --swallow "${_swallow:-0}" "$1-in" "$1-out" >"$state/carrying" 2>>"$out/wires.log" </dev/null 8>&- 9>&- & # it must not keep a scenario's descriptors
    echo $! >"$state/wire.$1"
    until [ -s "$state/carrying" ]; do
        command kill -0 $! 2>/dev/null || fail "the wire of $1 did not start: $(tail -n 1 "$out/wires.log")"
        sleep 0.01
    done
}
wire_stop() { # NAME
    [ -e "$state/wire.$1" ] || return 0
    command kill -TERM "$(cat "$state/wire.$1")" 2>/dev/null || return 0
    wait "$(cat "$state/wire.$1")" || say "the wire of $1 broke: $(tail -n 1 "$out/wires.log")"
}

times_slower() { # "3x" -> 3
    echo "$1" | awk '!/^[0-9]+(\.[0-9]+)?x$/ || $1 + 0 < 1 { exit 1 } { print $1 + 0 }' ||
        fail "'$1' is not how many times slower than the real processor; try 3x"
}

group_of_device_make() { # NAME FACTS
    _controllers='memory blkio'
    [ -z "$(fact cpu "$2")" ] || _controllers="$_controllers cpu"
    [ -z "$(fact cpus "$2")" ] || _controllers="$_controllers cpuset"
    # shellcheck disable=SC2086 # words
    group_make "$state/groups/$1" "kin-lab.$lab.$1" $_controllers
    limits_set "$1" "$2"
}
limits_set() { # NAME FACTS
    _record=$state/groups/$1
    _memory=$(fact memory "$2") _cpu=$(fact cpu "$2") _cpus=$(fact cpus "$2") _disk_rate=$(fact disk "$2")
    [ -z "$_memory" ] || group_limit_memory "$_record" "$(bytes "$_memory" 1024)"
    [ -z "$_cpu" ] || group_limit_cpu "$_record" "$_cpu"
    [ -z "$_cpus" ] || group_limit_cpuset "$_record" "$_cpus"
    _reads_rate=$(fact reads "$2") _slower=$(fact computes "$2")
    [ -z "$_reads_rate" ] || bytes "$_reads_rate" 1000 >/dev/null
    [ -z "$_slower" ] || times_slower "$_slower" >"$state/slower.$1" || exit 1
    [ -z "$_disk_rate" ] || group_limit_disk "$_record" "$disk_of_work" "$(bytes "$_disk_rate" 1000)"
}

# Gives the home its own file system; clean-up finds it below $work.
home_mount() { # NAME SIZE
    mkdir -p "$work/$1"
    truncate -s "$(bytes "$2" 1024)" "$work/$1.disk"
    mkfs.ext4 -q -m 0 -O ^has_journal "$work/$1.disk" && mount -o loop "$work/$1.disk" "$work/$1" || fail "there is no disk of $2 for $1"
}

# One program slows down all devices that have a speed, because each check costs time. It is restarted when one of them changes.
brake_set() {
    brake_stop
    set --
    for _braked in $(devices); do
        _speed=$(device_fact "$_braked" speed)
        _braked_group=$(group_dir "$state/groups/$_braked" v2)
        [ -z "$_speed" ] || set -- "$@" "${_braked_group:-cgroup v2, which is not here}" "$_speed"
    done
    [ $# -gt 0 ] || return 0
    [ -x "$build/brake" ] || fail "there is no program $build/brake; make everything"
    : >"$state/holding"
    "$build/brake" "$@" >"$state/holding" 2>"$out/brake.log" </dev/null 9>&- &
    echo $! >"$state/brake"
    until [ -s "$state/holding" ]; do
        command kill -0 $! 2>/dev/null || fail "devices cannot be slowed down: $(tail -n 1 "$out/brake.log")"
        sleep 0.01
    done
}
brake_stop() {
    [ -e "$state/brake" ] || return 0
    command kill -TERM "$(cat "$state/brake")" 2>/dev/null || return 0
    wait "$(cat "$state/brake")" || say "the brake broke: $(tail -n 1 "$out/brake.log")"
    rm "$state/brake"
}

lab_defaults='' lab_n_devices=0
known_facts=' rate up down queue delay jitter swallow memory speed computes cpu cpus disk reads size gpu threads '

# Facts for the devices that follow.
defaults() { lab_defaults="$lab_defaults $*"; } # KEY=VALUE...

device() { # NAME KEY=VALUE...
    _name=$1
    shift
    case $_name in
    '' | *[!a-z0-9]* | ??????????*) fail "'$_name' is no name of a device: at most 9 small letters and digits" ;;
    switch) fail "'switch' is the lab's own" ;;
    esac
    [ ! -e "$state/devices/$_name" ] || fail "there are two devices '$_name'"
    for _word in $lab_defaults "$@"; do
        case $known_facts in
        *" ${_word%%=*} "*) ;;
        *) fail "device $_name: '$_word' is not known; these are:$known_facts" ;;
        esac
    done
    lab_n_devices=$((lab_n_devices + 1))
    _facts="$lab_defaults $* address=$subnet.$lab_n_devices"
    _namespace=kin-$lab-$_name
    : >"$out/$_name.out"
    : >"$out/$_name.log"
    namespace_make "$_namespace"
    group_of_device_make "$_name" "$_facts"
    cable_make "$_name" "$_facts"
    echo "$_facts" >"$state/devices/$_name"
    ip -n "$_namespace" address add "$subnet.$lab_n_devices/24" broadcast + dev eth0
    ip -n "$_namespace" link set dev eth0 up
    ip -n "$_namespace" route add default dev eth0
    [ -z "$(fact size "$_facts")" ] || home_mount "$_name" "$(fact size "$_facts")"
    for _folder in tmp .cache .config .local/share .run; do mkdir -p "$work/$_name/$_folder"; done
    [ -z "$(fact speed "$_facts")" ] || brake_set
}

# Changes limits from now on; kin reads most of them only at its start. `computes` takes effect at once, even for running
# programs. For all other limits the page cache of the device's files is freed.
limit() { # NAME KEY=VALUE...
    _name=$1
    shift
    for _word; do
        case ${_word%%=*} in
        memory | speed | computes | disk | reads | gpu | threads) ;;
        *) fail "limit $_name: '$_word' is not a limit that can change" ;;
        esac
    done
    _facts="$(facts_of "$_name") $*"
    case " $*" in
    *" memory="* | *" speed="* | *" disk="* | *" reads="* | *" gpu="* | *" threads="*) group_forget_pages "$state/groups/$_name" ;;
    esac
    limits_set "$_name" "$_facts"
    echo "$_facts" >"$state/devices/$_name"
    case " $*" in
    *" speed="*) brake_set ;;
    esac
}

# Changes rates, delay, jitter and what is swallowed, while everything runs. A link that was made without any of the last three
# cannot get them later.
link() { # NAME KEY=VALUE...
    _name=$1
    shift
    for _word; do
        case ${_word%%=*} in
        rate | up | down | queue | delay | jitter | swallow) ;;
        *) fail "link $_name: '$_word' is not of a link" ;;
        esac
    done
    _old=$(facts_of "$_name") _facts="$_old $*"
    has_wire "$_old" || ! has_wire "$_facts" || fail "link $_name: it was made without delay, jitter and swallow"
    echo "$_facts" >"$state/devices/$_name"
    rates_set "$_name" "$_facts"
    if has_wire "$_facts"; then
        wire_stop "$_name"
        wire_start "$_name" "$_facts"
    fi
}

# Runs COMMAND as on the device, with its network, name, limits and home, and without our environment. Replaces the calling shell.
# Does not use `ip netns exec`, which hides the cgroups where kin looks for its limits.
device_exec() { # NAME COMMAND...
    _name=$1
    shift
    _facts=$(facts_of "$_name") || exit 1
    _home=$work/$_name
    _threads=$(fact threads "$_facts") _gpu=$(fact gpu "$_facts") _reads=$(fact reads "$_facts") _computes=$(fact computes "$_facts")
    _preload=${_reads:+$build/slow_reads.so}${_computes:+ $build/slow_compute.so}
    set -- HOME="$_home" XDG_CACHE_HOME="$_home/.cache" XDG_CONFIG_HOME="$_home/.config" XDG_DATA_HOME="$_home/.local/share" \
        XDG_RUNTIME_DIR="$_home/.run" TMPDIR="$_home/tmp" PATH="$PATH" LANG="${LANG:-C.UTF-8}" USER=root LOGNAME=root \
        "$@"
    [ -z "$_threads" ] || set -- KIN_THREADS="$_threads" "$@"
    [ -z "$_reads" ] || set -- KIN_LAB_READS="$(bytes "$_reads" 1000)" "$@"
    [ -z "$_computes" ] || set -- KIN_LAB_COMPUTES="$state/slower.$_name" KIN_LAB_LATE="$out/$_name.late" \
        KIN_LAB_APART=sum KIN_LAB_TURN="$state/turn" KIN_LAB_TIMES="$build/lab/times-$(cat "$state/processor")-${_threads:-all}" "$@"
    # A sanitizer expects to be loaded first, but that is not necessary.
    [ -z "$_preload" ] || set -- LD_PRELOAD="$_preload" ASAN_OPTIONS=verify_asan_link_order=0 "$@"
    # Compiling the kernels of a software GPU takes two minutes, so they are shared by all labs.
    [ "$_gpu" != yes ] || set -- GGML_VK_VISIBLE_DEVICES=0 MESA_SHADER_CACHE_DIR="$build/lab/shaders" "$@"
    # shellcheck disable=SC2016 # for the inner shell
    group_exec "$state/groups/$_name" nsenter --net="/run/netns/kin-$lab-$_name" unshare --uts \
        sh -c 'echo "$1" >/proc/sys/kernel/hostname; cd "$2"; shift 2; exec env -i "$@"' sh "$_name" "$_home" "$@" 9>&-
}
