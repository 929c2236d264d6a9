# shellcheck shell=sh
# guests: x86_64-systemd
# boots: 2
# The kernel's software watchdog replaces the board's.
modprobe softdog soft_margin=10
wait_for "the watchdog is there" 10 test -c /dev/watchdog0
start_agent --watchdog-device /dev/watchdog
if [ "$BOOT" = 1 ]; then
    simple_pod web | apply web
    wait_ready web
    expect_equal "the watchdog" "$(coracle status -o json | jq -c '.watchdog.device | [.armed, .timeoutSeconds]')" '[true,10]'
    expect_equal "its state" "$(cat /sys/class/watchdog/watchdog0/state)" active
    # A clean shutdown stops the watchdog.
    stop_agent
    expect_equal "its state" "$(cat /sys/class/watchdog/watchdog0/state)" inactive
    start_agent --watchdog-device /dev/watchdog
    wait_ready web
    stall_agent
    wait_for "the stall is recorded" 20 test -e /var/lib/kubelet/coracle/last-stall.json
    say "pass $TEST $(uptime_seconds)"
    sleep 20
    fail "the board was not reset within two intervals"
fi
wait_ready web
expect_equal "restarts of the pod" "$(restarts web)" 1
expect_equal "what the agent was about" "$(last_stall .doing)" 'another task held its thread'
[ "$(last_stall .nextStart)" != null ] || fail "the record of the stall has no next start"
remove web
wait_for "the pod is gone" 60 is_gone web
