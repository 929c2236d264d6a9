# shellcheck shell=sh
# guests: x86_64 aarch64 armv7
# short: x86_64
# clock: 100
start_agent
for number in 1 2 3; do simple_pod "pod$number" | apply "pod$number"; done
wait_all_ready 3 60
stepped=0
for step in +946684800 -946684800 -946684800 +946684800; do
    set-clock $step 2>/dev/null || continue
    stepped=$((stepped + 1))
    sleep 3
    wait_all_ready 3 30
done
[ $stepped -ge 2 ] || fail "the clock could not be set"
for number in 1 2 3; do expect_equal "restarts of pod$number" "$(restarts "pod$number")" 0; done
kill -KILL "$(container_pid pod2)"
wait_restarts pod2 1
