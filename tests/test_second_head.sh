#!/bin/sh
# Two heads on one machine, with the ports that a user has: the second one says that the first one has the port, and how to go on.
#
#   test_second_head.sh PATH_TO_KIN
set -u
unshare -rn true 2>/dev/null || { echo 'skipped: this kernel, or this container, makes no network namespaces' && exit 77; }
command -v python3 >/dev/null || { echo 'skipped: no python3' && exit 77; }
[ -n "${KIN_TEST_INSIDE:-}" ] || KIN_TEST_INSIDE=1 exec unshare -rn "$0" "$@" # nothing else has the default ports there
python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, struct.pack("16sH14x", b"lo", 1)) # SIOCSIFFLAGS, IFF_UP' ||
    { echo 'skipped: the loopback interface of a new network namespace does not start' && exit 77; }
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"

key head
model=$(dirname "$0")/../assets/demo.gguf
kin_at_head() { # COMMAND OPTION...: neither a port nor an address is given
    what=$1
    shift
    HOME=$dir/head exec "$kin" "$what" --cluster --name desk --key-file "$dir/head/key" -t 1 -m "$model" "$@"
}

claim='a head serves on the default ports'
(kin_at_head serve >"$dir/serve.log" 2>&1) &
pids="$pids $!"
wait_for 60 "$dir/serve.log" ': ready$'

claim='kin run --cluster beside it says whose port it would need and how to use that head; it ends when it is told to'
(kin_at_head run -p x >"$dir/second" 2>"$dir/run.log") &
pid_run=$!
pids="$pids $pid_run"
wait_for 60 "$dir/run.log" 'waiting for devices to join: no device has joined yet'
says "$dir/run.log" "port 7577 is in use, perhaps by another head on this machine.*'kin status'.*over HTTP if it is 'kin serve'"
kill -TERM $pid_run
wait $pid_run
check [ $? -eq 130 ]

claim='a second server on the same port says which option changes it'
(kin_at_head serve >"$dir/again.log" 2>&1)
check [ $? -ne 0 ]
says "$dir/again.log" '--port'

tally
