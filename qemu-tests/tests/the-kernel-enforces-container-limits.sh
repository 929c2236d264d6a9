# shellcheck shell=sh
# guests: x86_64 x86_64-systemd aarch64 armv7
# Not on other guests with systemd: systemd removes a cgroup at once, and containerd 1.6 may then miss the OOM kill.
start_agent
apply limited <<END
$(simple_pod limited "$STAY" "      resources:
        requests: {memory: 16Mi, cpu: 100m}
        limits: {memory: 32Mi, cpu: 250m}")
END
apply greedy <<END
$(simple_pod greedy "sleep 1; dd if=/dev/zero of=/dev/null bs=40M count=1" "      resources:
        limits: {memory: 16Mi}")
END
wait_ready limited
expect_equal "memory.max" "$(container_cgroup limited memory.max)" 33554432
expect_equal "cpu.max" "$(container_cgroup limited cpu.max)" "25000 100000"
expect_equal "cpu.weight" "$(container_cgroup limited cpu.weight)" 4
was_killed_for_memory() {
    [ "$(pod greedy '.status.containerStatuses[0] | .lastState.terminated // .state.terminated | .reason')" = OOMKilled ]
}
wait_for "the kernel kills the container that exceeds its limit" 60 was_killed_for_memory
expect_equal "restarts of the other pod" "$(restarts limited)" 0
