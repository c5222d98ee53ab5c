# shellcheck shell=sh disable=SC2154
# ring.sh: the commands of a ring as scenarios use them, in one place; lab/run sources it. The first device is the head unless a
# scenario says otherwise.
#
#   ring_join NAME OPTION...    kin join in the background
#   ring_run NAME OPTION...     kin run over the ring, on the head: text on stdout
#   ring_bench NAME OPTION...   kin bench over the ring, on the head: JSON on stdout
#   ring_profile NAME...        kin profile on one after the other, stored in their homes: OUT/NAME.profile.json. Run nothing else
#
# All devices share one key. It is made once per lab and copied to every device's home.

ring_key() { # NAME -> the path of the key file there
    [ -e "$state/key" ] || (umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$state/key")
    _ring_key_path=$(home "$1")/cluster.key
    [ -e "$_ring_key_path" ] || install -m 600 "$state/key" "$_ring_key_path"
    echo "$_ring_key_path"
}
ring_join() { # NAME OPTION...
    _ring_name=$1
    shift
    start "$_ring_name" "$kin" join --name "$_ring_name" --key-file "$(ring_key "$_ring_name")" "$@"
}
ring_run() { # NAME OPTION...
    _ring_name=$1
    shift
    run "$_ring_name" "$kin" run --cluster --name "$_ring_name" --key-file "$(ring_key "$_ring_name")" "$@"
}
ring_bench() { # NAME OPTION...
    _ring_name=$1
    shift
    run "$_ring_name" "$kin" bench --cluster --name "$_ring_name" --key-file "$(ring_key "$_ring_name")" --json "$@"
}

ring_profile() { # NAME...
    for _ring_name; do run "$_ring_name" "$kin" profile --refresh --json >"$out/$_ring_name.profile.json"; done
}

# Gives each device its own copy of the model; prints the path of the first device's copy.
ring_files() { # NAME...
    _ring_first=''
    for _ring_name; do
        _ring_copy=$(give "$_ring_name" "$model")
        _ring_first=${_ring_first:-$_ring_copy}
    done
    echo "$_ring_first"
}

# Measures time per token over `rounds` for each of `modes`, alternately, `repeats` times: rounds.csv, rounds.svg. Every device
# has a copy of the model, layers are spread evenly, and each measurement begins with none of the devices' files in memory.
rounds_over_modes() { # HEAD NAME...
    _ring_model=$(ring_files "$@")
    _ring_head=$1
    shift
    for _repeat in $(seq "$repeats"); do
        for _mode in $modes; do
            for _k in $rounds; do
                forget
                for _member; do ring_join "$_member" -m "$(home "$_member")/$(basename "$model")"; done
                mark
                ring_bench "$_ring_head" -m "$_ring_model" --devices $# --plan even --rounds "$_k" --weights "$_mode" --ctx 256 --batch 32 --prompt 4 \
                    --gen "${n_tokens:-8}" --reps 1 >"$out/bench.json"
                collect "$_mode k=$_k repeat=$_repeat"
                row rounds k,mode,repeat,tpot_ms,ttft_ms,head_streams_bytes "$_k,$_mode,$_repeat,$(json tpot_ms <"$out/bench.json"),$(
                    json ttft_ms <"$out/bench.json"),$(json streamed_bytes_per_token <"$out/bench.json")"
                for _member; do
                    kill "$_member"
                    until_ends "$_member" 10 || true
                done
            done
        done
    done
    plot rounds k tpot_ms mode
}
