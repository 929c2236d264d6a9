# shellcheck shell=sh
# guests: x86_64 x86_64-systemd armv7
# limit: 240
# Checks every value of the kubepods cgroup, the QoS cgroups and the pod cgroups with both cgroup drivers.
[ ! -e /sys/kernel/mm/hugepages/hugepages-2048kB ] || echo 4 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
start_agent --system-reserved=cpu=100m,memory=64Mi,pid=100 --kube-reserved=cpu=100m,memory=32Mi --pod-max-pids=200
apply_a_pod_of_each_class
for name in guaranteed burstable besteffort; do wait_ready $name; done

link_groups guaranteed burstable besteffort
all=/run/group/guaranteed/..
# expect POD FILE VALUE: checks the pod's cgroup.
expect() { expect_equal "$2 of $1" "$(cat "/run/group/$1/$2")" "$3"; }
# expect_above POD FILE VALUE: checks the parent of the pod's cgroup.
expect_above() { expect_equal "$2 above $1" "$(cat "/run/group/$1/../$2")" "$3"; }
check_values() {
    expect guaranteed cpu.weight 10
    expect guaranteed cpu.max "25000 100000"
    expect guaranteed memory.max 33554432
    expect burstable cpu.weight 4
    expect burstable cpu.max "max 100000"
    expect burstable memory.max 50331648
    expect besteffort cpu.weight 1
    expect besteffort cpu.max "max 100000"
    expect besteffort memory.max max
    for name in guaranteed burstable besteffort; do
        expect $name pids.max 200
        expect $name memory.min 0
        expect $name memory.high max
        [ ! -e "$all/hugetlb.2MB.max" ] || expect $name hugetlb.2MB.max 0
    done
    # The QoS cgroups have only a CPU weight.
    for name in burstable besteffort; do
        expect_above $name memory.max max
        expect_above $name pids.max max
        [ ! -e "$all/hugetlb.2MB.max" ] || expect_above $name hugetlb.2MB.max max
    done
    expect_above burstable cpu.weight "$1"
    expect_above besteffort cpu.weight 1
    # Node allocatable. CPU: capacity minus 200m. The kernel rounds memory to pages.
    processors=$(grep -c '^processor' /proc/cpuinfo)
    shares=$(((processors * 1000 - 200) * 1024 / 1000))
    expect_above guaranteed cpu.weight $((1 + (shares - 2) * 9999 / 262142))
    expect_above guaranteed memory.max $(($(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) * 1024 - 96 * 1048576))
    threads=$(cat /proc/sys/kernel/threads-max) pids=$(cat /proc/sys/kernel/pid_max)
    expect_above guaranteed pids.max $(((threads < pids ? threads : pids) - 100))
    [ ! -e "$all/hugetlb.2MB.max" ] || expect_above guaranteed hugetlb.2MB.max 8388608
}
check_values 4
expect_equal "memory.oom.group of a container" "$(container_cgroup guaranteed memory.oom.group)" 1
[ ! -e "$all/memory.swap.max" ] || expect_equal "memory.swap.max of it" "$(container_cgroup guaranteed memory.swap.max)" 0
for controller in cpu cpuset memory pids; do
    grep -qw $controller "$all/cgroup.controllers" || fail "the kubepods cgroup lacks $controller"
done

# Another burstable pod: together they request 500m.
apply second <<END
$(simple_pod second "$STAY" "      resources:
        requests: {cpu: 400m}")
END
wait_ready second
weighs() { [ "$(cat "$1/cpu.weight")" = "$2" ]; }
link_groups second
wait_for "burstable pods together weigh more" 30 weighs /run/group/second/.. 20
if [ -d /run/systemd/system ]; then
    # systemd rewrites its slices when it reloads its units.
    systemctl daemon-reload
    check_values 20
fi

groups="$(for name in guaranteed burstable besteffort second; do readlink /run/group/$name; done)"
for name in guaranteed burstable besteffort second; do remove $name; done
no_groups() { for group in $groups; do [ ! -e "$group" ] || return 1; done; }
wait_for "the cgroups of the pods are gone" 60 no_groups
if [ -d /run/systemd/system ]; then
    slices=$(for group in $groups; do echo "${group##*/}"; done)
    # shellcheck disable=SC2086
    expect_equal "slices of the pods" "$(systemctl list-units --all --plain --no-legend $slices)" ""
fi
