# shellcheck shell=sh
# guests: x86_64 x86_64-systemd
# limit: 180
# All memory but 128 MiB is reserved. The pods together cannot use more than that, although none has a limit.
total=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)
start_agent "--system-reserved=memory=$((total - 131072))Ki"
simple_pod small | apply small
wait_ready small
above=$(pod_group small)
expect_equal "memory.max of all pods" "$(cat "${above%/*/*}/memory.max")" 134217728
simple_pod greedy "dd if=/dev/zero of=/dev/null bs=200M count=1" | apply greedy
was_killed_for_memory() {
    [ "$(pod greedy '.status.containerStatuses[0] | .lastState.terminated // .state.terminated | .reason')" = OOMKilled ]
}
wait_for "the kernel kills the pod that exceeds the limit" 90 was_killed_for_memory
