# shellcheck shell=sh
# guests: x86_64
# nodes: 2
# limit: 300
# Four CPUs in two NUMA nodes; CPU 0 is reserved for the system. Checks the exclusive CPUs of guaranteed pods and the
# shared CPUs of the others, also after a restart and with a corrupt state file.
cat >/etc/kubernetes/processors.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
topologyManagerPolicy: single-numa-node
memoryManagerPolicy: Static
evictionHard: {memory.available: 64Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 64Mi}}]
END
# own NAME CPUS: a guaranteed pod.
own() {
    apply "$1" <<END
$(simple_pod "$1" "$STAY" "      resources:
        limits: {cpu: $2, memory: 32Mi}")
END
}
runs_on() { [ "$(container_cgroup "$1" cpuset.cpus.effective)" = "$2" ]; }
wait_runs_on() { wait_for "$1 runs on $2" 60 runs_on "$1" "$2"; }
start() { start_agent --config=/etc/kubernetes/processors.yaml; }

expect_equal "the nodes" "$(cat /sys/devices/system/node/online)" 0-1
start
apply burstable <<END
$(simple_pod burstable "$STAY" "      resources:
        requests: {memory: 16Mi}")
END
wait_ready burstable
wait_runs_on burstable 0-3

# Only the second NUMA node has two free CPUs.
own two 2
wait_ready two
wait_runs_on two 2-3
expect_equal "the nodes of its memory" "$(container_cgroup two cpuset.mems.effective)" 1
expect_equal "its quota" "$(container_cgroup two cpu.max)" "max 100000"
expect_equal "its pod's quota" "$(cat "$(pod_group two)/cpu.max")" "max 100000"
wait_runs_on burstable 0-1
own one 1
wait_ready one
wait_runs_on one 1
expect_equal "the nodes of its memory" "$(container_cgroup one cpuset.mems.effective)" 0
wait_runs_on burstable 0
own none 1
wait_phase none Failed
expect_equal "the reason" "$(pod none .status.reason)" TopologyAffinityError
remove none
is_away() { [ -z "$(pod none .metadata.name)" ]; }
wait_for "the refused pod is gone" 30 is_away

# The agent rebuilds the state from the running containers.
ids="$(container_id two) $(container_id one) $(container_id burstable)"
for state in cpu memory; do
    kill_agent
    echo '{"policyName":"sta' >/var/lib/kubelet/${state}_manager_state
    start
    for name in two one burstable; do wait_ready $name; done
    expect_equal "the containers" "$(container_id two) $(container_id one) $(container_id burstable)" "$ids"
    wait_runs_on two 2-3
    wait_runs_on one 1
    wait_runs_on burstable 0
    [ -e /var/lib/kubelet/${state}_manager_state.corrupt ] || fail "the damaged file is not kept"
    is_whole() { jq -e .checksum /var/lib/kubelet/${state}_manager_state >/dev/null 2>&1; }
    wait_for "the file is whole again" 30 is_whole
done

remove two
wait_runs_on burstable 0,2-3
own two 2
wait_ready two
wait_runs_on two 2-3
remove one
wait_runs_on burstable 0-1
remove two
wait_runs_on burstable 0-3
# Three CPUs are free, but not within one NUMA node.
own three 3
wait_phase three Failed
expect_equal "the reason" "$(pod three .status.reason)" TopologyAffinityError
