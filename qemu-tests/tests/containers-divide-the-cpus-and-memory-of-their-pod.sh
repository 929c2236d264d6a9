# shellcheck shell=sh
# guests: x86_64
# nodes: 2
# limit: 300
# Four CPUs in two NUMA nodes; CPU 0 is reserved for the system. A pod with resources of its own has the second node's
# CPUs: one container has one of them exclusively, the others share the pool, also after a restart of the agent.
cat >/etc/kubernetes/whole.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
memoryManagerPolicy: Static
evictionHard: {memory.available: 64Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 64Mi}}]
END
# whole NAME CPUS: a pod of this size, and a container main with one CPU.
whole() {
    apply "$1" <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: $2, memory: 48Mi}, limits: {cpu: $2, memory: 48Mi}}
  containers:
    - name: main
      image: localhost/coracle/busybox:1
      command: [sh, -c, "$STAY"]
      resources: {limits: {cpu: 1, memory: 32Mi}}
    - {name: shares, image: "localhost/coracle/busybox:1", command: [sh, -c, "$STAY"]}
END
}
# of INDEX FILE: reads a file of the cgroup of a container of the pod.
of() { cat "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(container_pid two "$1")/cgroup")/$2"; }
start() { start_agent --config=/etc/kubernetes/whole.yaml; }
check() {
    expect_equal "the CPU of main" "$(of 0 cpuset.cpus.effective)" 2
    expect_equal "its quota" "$(of 0 cpu.max)" "max 100000"
    expect_equal "the CPU of the pool" "$(of 1 cpuset.cpus.effective)" 3
    for index in 0 1; do expect_equal "the nodes of the memory" "$(of $index cpuset.mems.effective)" 1; done
    expect_equal "the state of the pod" "$(jq -r '.podEntries[].cpuSet' /var/lib/kubelet/cpu_manager_state)" 2-3
    expect_equal "its memory" "$(jq -r '.data | fromjson | .podEntries[].memoryBlocks[0].size' /var/lib/kubelet/memory_manager_state)" 50331648
}
start
simple_pod other | apply other
wait_ready other
whole two 2
wait_ready two
check
shared() { [ "$(container_cgroup other cpuset.cpus.effective)" = 0-1 ]; }
wait_for "the other pod has left the CPUs" 60 shared

kill_agent
start
wait_ready two
check
# Without the state files, the pod has its CPUs again from what runs.
kill_agent
rm /var/lib/kubelet/*_manager_state
start
wait_ready two
check

# Nothing is left for the second container.
whole full 1
wait_phase full Failed
expect_equal "the reason" "$(pod full .status.reason)" TopologyAffinityError
remove two
all() { [ "$(container_cgroup other cpuset.cpus.effective)" = 0-3 ]; }
wait_for "the CPUs are free again" 60 all
