# shellcheck shell=sh
# memory: 256
# guests: x86_64 armv7
# short: armv7
# limit: 400
# The commands of docs/boards-and-memory.md. Compare memory-available with that of ten-pods-fit-into-256-megabytes.
containerd=$(pidof containerd)
coracle runtime-config containerd >/tmp/config.toml
coracle runtime-config containerd --unit | sed -n 's/^Environment=/export /p' >/tmp/lean
grep -q GOMEMLIMIT /tmp/lean || fail "the unit has no memory limit: $(cat /tmp/lean)"
kill "$containerd"
wait_for "containerd ends" 20 test ! -e "/proc/$containerd"
# shellcheck source=/dev/null
. /tmp/lean
containerd --config /tmp/config.toml >>"$LOGS/containerd.log" 2>&1 &
within 60 containerd_answers || fail "containerd does not answer: $(tail -n1 "$LOGS/containerd.log")"

start_agent --runtime-profile=lean
for number in 1 2 3 4 5 6 7 8 9 10; do simple_pod "pod$number" | apply "pod$number"; done
wait_all_ready 10 200
expect_equal "number of shims" "$(pidof containerd-shim-runc-v2 | wc -w)" 1
kill -KILL "$(container_pid pod3)"
wait_restarts pod3 1
figure memory-available "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" - KiB
! dmesg | grep -i 'out of memory' || fail "the kernel ran out of memory"
