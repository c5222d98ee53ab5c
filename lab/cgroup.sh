# shellcheck shell=sh disable=SC2154
# cgroup.sh: control groups, sourced by lab/limit and lab/run. cgroup v1, v2, or both side by side. Needs root, and a function
# `fail SENTENCE` in the script that sources it.
#
# A group is a RECORD: a file with a line "CONTROLLER DIRECTORY" for each directory of the group; "v2" is a controller too. A line
# is written before its directory is made, so the record is enough to remove the group, also after a kill. Controllers have their
# v1 names here: memory cpu cpuset blkio.

# SIZE BASE -> bytes
bytes() {
    echo "$1" | awk -v base="$2" '
        !/^[0-9]+(\.[0-9]+)?[KMG]?(i?B)?$/ { exit 1 }
        { n = $1 + 0; if (/K/) n *= base; if (/M/) n *= base^2; if (/G/) n *= base^3; printf "%.0f\n", n }' ||
        fail "'$1' is not a size"
}

# Prints the whole disk under PATH as MAJOR:MINOR: limits do not work on partitions.
disk_number() { # PATH
    disk_source=$(df -P "$1" | awk 'NR == 2 { print $1 }')
    [ -b "$disk_source" ] || fail "$1 is on '$disk_source', which is not a disk"
    disk=$(printf '%d:%d' "0x$(stat -Lc %t "$disk_source")" "0x$(stat -Lc %T "$disk_source")")
    if [ -e "/sys/dev/block/$disk/partition" ]; then
        cat "/sys/dev/block/$disk/../dev"
    else
        echo "$disk"
    fi
}

# Makes the kernel drop FILE's pages. Prints the bytes that stayed in memory, because a process has them mapped or locked.
drop_file() { # FILE
    sync "$1"
    dd if="$1" iflag=nocache count=0 2>/dev/null
    drop_left=$(fincore -bnro RES "$1" 2>/dev/null || echo 0)
    echo "${drop_left:-0}"
}

# ---- hierarchies of the controllers

v1_mount() { awk -v c="$1" '$3 == "cgroup" && ("," $4 ",") ~ ("," c ",") { print $2; exit }' /proc/mounts; }
v1_path() { awk -F: -v c="$1" '("," $2 ",") ~ ("," c ",") { print $3 }' /proc/self/cgroup; }

group_dir() { sed -n "s/^$2 //p" "$1"; }                             # RECORD CONTROLLER
group_dirs() { awk '!seen[$2]++ { print $2 }' "$1" 2>/dev/null || true; } # RECORD; controllers mounted together share one

group_add() { # RECORD CONTROLLER DIR
    echo "$2 $3" >>"$1"
    [ -d "$3" ] || mkdir "$3"
}

# Under v2 a group with processes cannot pass controllers on, so the nearest ancestor that can is the parent. Without controllers
# (if v1 has them) the group still counts stalls and processor time.
group_add_v2() { # RECORD NAME CONTROLLER...
    v2_mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    v2_record=$1 v2_name=$2
    shift 2
    if [ -z "$v2_mount" ]; then
        [ $# = 0 ] || fail "no cgroup controller for: $*"
        return 0
    fi
    v2_parent=$v2_mount$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup)
    v2_parent=${v2_parent%/}
    until group_pass_on "$v2_parent" "$@"; do
        [ "$v2_parent" != "$v2_mount" ] || fail "no cgroup here can limit: $*"
        v2_parent=${v2_parent%/*}
    done
    group_add "$v2_record" v2 "$v2_parent/$v2_name"
}
group_pass_on() { # DIR CONTROLLER...: enables them for its children
    v2_control=$1/cgroup.subtree_control
    shift
    for _controller; do
        [ "$_controller" != blkio ] || _controller=io
        grep -qw "$_controller" "$v2_control" 2>/dev/null || (echo "+$_controller" >"$v2_control") 2>/dev/null || return 1
    done
}

# Under v1 a controller's group is made below our own, so limits further up still apply.
group_make() { # RECORD NAME CONTROLLER...
    group_record=$1 group_name=$2 group_for_v2=''
    : >>"$group_record"
    shift 2
    for _controller; do
        group_parent=$(v1_mount "$_controller")
        if [ -z "$group_parent" ]; then
            group_for_v2="$group_for_v2 $_controller"
            continue
        fi
        group_path=$(v1_path "$_controller")
        [ ! -d "$group_parent$group_path" ] || group_parent=$group_parent$group_path # else the container sees its group as the root
        group_add "$group_record" "$_controller" "${group_parent%/}/$group_name"
    done
    # shellcheck disable=SC2086 # words
    group_add_v2 "$group_record" "$group_name" $group_for_v2
    group_cpuset=$(group_dir "$group_record" cpuset)
    [ -z "$group_cpuset" ] || for _file in cpuset.mems cpuset.cpus; do # they are empty, and then no process can enter
        cat "${group_cpuset%/*}/$_file" >"$group_cpuset/$_file"
    done
}

# ---- limits

group_limit_memory() { # RECORD BYTES; swapping is off
    memory_dir=$(group_dir "$1" memory)
    if [ -n "$memory_dir" ]; then
        [ ! -e "$memory_dir/memory.memsw.limit_in_bytes" ] || echo -1 >"$memory_dir/memory.memsw.limit_in_bytes" # it must not be lower
        echo "$2" >"$memory_dir/memory.limit_in_bytes"
        [ ! -e "$memory_dir/memory.memsw.limit_in_bytes" ] || echo "$2" >"$memory_dir/memory.memsw.limit_in_bytes"
    else
        memory_dir=$(group_dir "$1" v2)
        echo "$2" >"$memory_dir/memory.max"
        [ ! -e "$memory_dir/memory.swap.max" ] || echo 0 >"$memory_dir/memory.swap.max"
    fi
}
group_limit_cpu() { # RECORD PROCESSORS; granted every 10 ms
    cpu_us=$(echo "$2" | awk '!/^[0-9]*\.?[0-9]+$/ || $1 <= 0 { exit 1 } { printf "%.0f\n", $1 * 10000 }') || fail "'$2' is not a number of processors"
    cpu_dir=$(group_dir "$1" cpu)
    if [ -n "$cpu_dir" ]; then
        echo 10000 >"$cpu_dir/cpu.cfs_period_us"
        echo "$cpu_us" >"$cpu_dir/cpu.cfs_quota_us"
    else
        echo "$cpu_us 10000" >"$(group_dir "$1" v2)/cpu.max"
    fi
}
group_limit_cpuset() { # RECORD LIST
    cpuset_dir=$(group_dir "$1" cpuset)
    echo "$2" >"${cpuset_dir:-$(group_dir "$1" v2)}/cpuset.cpus" || fail "there are no processors '$2' here"
}
group_limit_disk() { # RECORD DISK BYTES per second read
    blkio_dir=$(group_dir "$1" blkio)
    if [ -n "$blkio_dir" ]; then
        echo "$2 $3" >"$blkio_dir/blkio.throttle.read_bps_device"
    else
        echo "$2 rbps=$3" >"$(group_dir "$1" v2)/io.max"
    fi
}

# ---- processes

# Replaces the calling shell: for subshells. Writing "0" moves the writing process.
group_exec() { # RECORD COMMAND...
    group_entered=$(group_dirs "$1")
    shift
    # shellcheck disable=SC2016 # for the inner shell
    exec sh -c 'groups=$1; shift; for _g in $groups; do echo 0 >"$_g/cgroup.procs" || exit 1; done; exec "$@"' sh "$group_entered" "$@"
}

# 0 stands for a process of another PID namespace; for kill it would mean our own group.
group_members() { for _g in $(group_dirs "$1"); do grep -v '^0$' "$_g/cgroup.procs" 2>/dev/null || true; done | sort -u; } # RECORD
group_signal() { for _pid in $(group_members "$1"); do command kill "-$2" "$_pid" 2>/dev/null || true; done; }             # RECORD SIGNAL
group_wait_gone() { # RECORD TENTHS of a second
    for _ in $(seq "$2"); do
        [ -n "$(group_members "$1")" ] || return 0
        sleep 0.1
    done
}

# Frees the group's page cache; otherwise it would stay when the group ends, charged to no group.
group_forget_pages() { # RECORD
    for _g in $(group_dirs "$1"); do
        [ ! -e "$_g/memory.force_empty" ] || echo 0 2>/dev/null >"$_g/memory.force_empty" || true
        [ ! -e "$_g/memory.reclaim" ] || cat "$_g/memory.current" 2>/dev/null >"$_g/memory.reclaim" || true
    done
}

# Ends the processes of the group, first with SIGTERM for that time, and removes it. Also waits for a process that is about to
# enter.
group_end() { # RECORD TENTHS
    if [ "$2" != 0 ] && [ -n "$(group_members "$1")" ]; then
        group_signal "$1" TERM
        group_wait_gone "$1" "$2"
    fi
    for _ in $(seq 100); do
        group_signal "$1" KILL
        [ -n "$(group_members "$1")" ] || {
            group_forget_pages "$1"
            group_left=''
            for _g in $(group_dirs "$1"); do [ ! -d "$_g" ] || rmdir "$_g" 2>/dev/null || group_left="$group_left $_g"; done
            [ -n "$group_left" ] || return 0
        }
        sleep 0.1
    done
    echo "cgroup: could not remove:${group_left:- the processes $(group_members "$1" | tr '\n' ' ')}" >&2
    return 1
}

# ---- figures

group_keyed() { awk -v k="$2" '$1 == k { print $2; found = 1; exit } END { if (!found) print -1 }' "$1" 2>/dev/null || echo -1; } # FILE KEY
group_number() { cat "$1" 2>/dev/null || echo -1; }
group_stalled() { # DIR some|full
    [ -e "$1/memory.pressure" ] || { echo -1; return; }
    sed -n "s/^$2 .*total=//p" "$1/memory.pressure"
}
group_read_bytes() { # RECORD DISK
    blkio_dir=$(group_dir "$1" blkio)
    if [ -n "$blkio_dir" ]; then
        awk -v d="$2" '$1 == d && $2 == "Read" { n = $3 } END { printf "%.0f\n", n }' "$blkio_dir/blkio.throttle.io_service_bytes"
    else
        awk -v d="$2" '$1 == d { for (i = 2; i <= NF; i++) if (sub(/^rbytes=/, "", $i)) n = $i } END { printf "%.0f\n", n }' "$(group_dir "$1" v2)/io.stat"
    fi
}
# Prints key=value lines; lab/limit explains them.
group_figures() { # RECORD DISK
    memory_dir=$(group_dir "$1" memory) v2_dir=$(group_dir "$1" v2)
    [ -z "$v2_dir" ] || echo "cpu_ms=$(($(group_keyed "$v2_dir/cpu.stat" usage_usec) / 1000))"
    echo "disk_read_bytes=$(group_read_bytes "$1" "$2")"
    if [ -n "$memory_dir" ]; then
        echo "memory_peak_bytes=$(group_number "$memory_dir/memory.max_usage_in_bytes")"
        echo "memory_limit_hits=$(group_number "$memory_dir/memory.failcnt")"
        echo "oom_kills=$(group_keyed "$memory_dir/memory.oom_control" oom_kill)"
        echo "major_faults=$(group_keyed "$memory_dir/memory.stat" pgmajfault)"
    else
        echo "memory_peak_bytes=$(group_number "$v2_dir/memory.peak")"
        echo "memory_limit_hits=$(group_keyed "$v2_dir/memory.events" max)"
        echo "oom_kills=$(group_keyed "$v2_dir/memory.events" oom_kill)"
        echo "major_faults=$(group_keyed "$v2_dir/memory.stat" pgmajfault)"
    fi
    echo "memory_stall_some_us=$(group_stalled "$v2_dir" some)"
    echo "memory_stall_full_us=$(group_stalled "$v2_dir" full)"
}
# Restarts the peak from now on. v2 counts it from the group's beginning.
group_forget_peak() { # RECORD
    memory_dir=$(group_dir "$1" memory)
    [ -z "$memory_dir" ] || echo 0 >"$memory_dir/memory.max_usage_in_bytes"
}
