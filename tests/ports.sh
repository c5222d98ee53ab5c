# shellcheck shell=sh disable=SC2034 # the tests use it
# For the test that sources this: $port, and the two ports behind it, which no other test has meanwhile. They are below those that Linux
# gives to who asks for any. The test removes $port_lock at its end.
n=$(($$ % 3000))
until port=$((20000 + 4 * n)) port_lock=${TMPDIR:-/tmp}/kin-test-port-$port && ln -s $$ "$port_lock" 2>/dev/null; do
    n=$(((n + 1) % 3000))
done
