# shellcheck shell=sh
start_agent
simple_pod victim | apply victim
wait_ready victim
before=$(container_id victim)
kill -KILL "$(container_pid victim)"
wait_restarts victim 1
[ "$(container_id victim)" != "$before" ] || fail "the container was not replaced"
expect_equal "the exit code" "$(pod victim '.status.containerStatuses[0].lastState.terminated.exitCode')" 137
