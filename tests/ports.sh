# shellcheck shell=sh disable=SC2034 # the tests use it
# Reserves $port and the two ports after it for the test that sources this, against other tests. They lie below the range from which Linux
# picks ephemeral ports. The test removes $port_lock at its end.
n=$(($$ % 3000))
until port=$((20000 + 4 * n)) port_lock=${TMPDIR:-/tmp}/kin-test-port-$port && ln -s $$ "$port_lock" 2>/dev/null; do
    n=$(((n + 1) % 3000))
done
