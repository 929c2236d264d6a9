# shellcheck shell=sh
# guests: x86_64 x86_64-systemd armv7
# limit: 240
# sized NAME CPU MEMORY [LINE]: a pod with these limits and half of them as requests.
sized() {
    apply "$1" <<END
$(simple_pod "$1" "$STAY" "      resources:
        requests: {cpu: $(($2 / 2))m, memory: $(($3 / 2))Mi}
        limits: {cpu: $2m, memory: $3Mi}
      ${4-}")
END
}
# has POD CPU MEMORY: whether the cgroups of the container and of the pod have these limits.
has() {
    for group in "$(pod_group "$1")" "$(dirname "$(container_group "$1")/x")"; do
        [ "$(cat "$group/cpu.max")" = "$2 100000" ] && [ "$(cat "$group/memory.max")" = $(($3 * 1048576)) ] || return 1
    done
}
container_group() { echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(container_pid "$1")/cgroup")"; }
condition() { pod "$1" ".status.conditions[] | select(.type == \"$2\") | .$3"; }

start_agent
sized grows 200 32
wait_ready grows
id=$(container_id grows) uid=$(pod grows .metadata.uid)
has grows 20000 32 || fail "the pod does not start with its manifest's resources"
sized grows 400 64
wait_for "the limits have grown" 60 has grows 40000 64
expect_equal "its cpu.weight" "$(cat "$(pod_group grows)/cpu.weight")" 8
sized grows 100 24
wait_for "the limits have shrunk" 60 has grows 10000 24
expect_equal "its container" "$(container_id grows)" "$id"
expect_equal "its uid" "$(pod grows .metadata.uid)" "$uid"
expect_equal "its restarts" "$(restarts grows)" 0
is_reported() { [ "$(pod grows '.status.containerStatuses[0] | "\(.allocatedResources.cpu) \(.resources.limits.memory)"')" = "50m 24Mi" ]; }
wait_for "the status has the actual resources" 30 is_reported

# The node does not have enough resources: the running pod stays unchanged.
sized grows 900000 24
is_deferred() { [ "$(condition grows PodResizePending reason)" = Deferred ]; }
wait_for "the status shows the deferred resize" 30 is_deferred
has grows 10000 24 || fail "the pod was resized although the resize is deferred"
sized grows 100 24
is_settled() { [ -z "$(condition grows PodResizePending reason)" ]; }
wait_for "the resize is withdrawn" 30 is_settled

# A change while no agent runs.
kill_agent
sized grows 200 32
start_agent
wait_for "the next agent has resized the pod" 60 has grows 20000 32
expect_equal "its container" "$(container_id grows)" "$id"

# A container with resizePolicy RestartContainer is restarted.
sized restarts 100 24 "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"
wait_ready restarts
sized restarts 200 24 "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"
wait_for "the CPU is resized without a restart" 60 has restarts 20000 24
expect_equal "its restarts" "$(restarts restarts)" 0
sized restarts 200 48 "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"
wait_restarts restarts 1
has restarts 20000 48 || fail "the new container does not have its manifest's resources"
