# shellcheck shell=sh
# guests: x86_64-systemd
# alone
short_watchdog 10
start_agent
simple_pod web | apply web
wait_ready web
pid=$(agent_pid) container=$(container_id web)

kill -STOP "$pid"
wait_for "systemd ends the stopped agent, within two intervals" 20 is_not "$pid"
wait_for "another one runs" 30 is_another "$pid"
wait_ready web
expect_equal "the container" "$(container_id web)" "$container"
expect_equal "restarts of the service" "$(systemctl show --property NRestarts --value coracle)" 1
# The stopped process could not record a reason.
expect_equal "what it was about" "$(last_stall .doing)" ''
[ "$(last_stall .seconds)" -ge 10 ] || fail "the recorded stall is only $(last_stall .seconds) s long"

pid=$(agent_pid)
stall_agent
wait_for "systemd ends the stalled agent, within two intervals" 20 is_not "$pid"
wait_for "another one runs" 30 is_another "$pid"
wait_ready web
expect_equal "the container" "$(container_id web)" "$container"
expect_equal "what it was about" "$(last_stall .doing)" 'another task held its thread'
coracle status | grep -A2 '^Last stall:'
