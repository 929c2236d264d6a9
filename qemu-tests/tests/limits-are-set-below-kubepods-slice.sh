# shellcheck shell=sh
# guests: x86_64-systemd
start_agent
apply_a_pod_of_each_class

# Nested slices and one scope per container, named as by the upstream kubelet and containerd.
check_path() {
    uid=$(pod "$1" .metadata.uid | tr - _)
    wanted=/kubepods.slice$2-pod$uid.slice/cri-containerd-$(container_id "$1").scope
    expect_equal "the control group of $1" "$(sed -n 's/^0:://p' "/proc/$(container_pid "$1")/cgroup")" "$wanted"
    systemctl --quiet is-active "${wanted##*/}" || fail "systemd does not know ${wanted##*/}"
}
for name in guaranteed burstable besteffort; do wait_ready $name; done
check_path guaranteed /kubepods
check_path burstable /kubepods-burstable.slice/kubepods-burstable
check_path besteffort /kubepods-besteffort.slice/kubepods-besteffort

expect_equal "memory.max of guaranteed" "$(container_cgroup guaranteed memory.max)" 33554432
expect_equal "cpu.max of guaranteed" "$(container_cgroup guaranteed cpu.max)" "25000 100000"
expect_equal "cpu.weight of guaranteed" "$(container_cgroup guaranteed cpu.weight)" 10
expect_equal "memory.max of burstable" "$(container_cgroup burstable memory.max)" 50331648
expect_equal "cpu.max of burstable" "$(container_cgroup burstable cpu.max)" "max 100000"
expect_equal "cpu.weight of burstable" "$(container_cgroup burstable cpu.weight)" 4
expect_equal "memory.max of besteffort" "$(container_cgroup besteffort memory.max)" max

# systemd rewrites its cgroups when it reloads its units. The limits must stay.
systemctl daemon-reload
expect_equal "memory.max after a reload of systemd" "$(container_cgroup guaranteed memory.max)" 33554432
expect_equal "cpu.max after a reload of systemd" "$(container_cgroup guaranteed cpu.max)" "25000 100000"
for name in guaranteed burstable besteffort; do remove $name; done
wait_for "the pods are gone" 60 no_containers
expect_equal "scopes of containers" "$(systemctl list-units --plain --no-legend 'cri-containerd-*.scope')" ""
