# shellcheck shell=sh
# guests: x86_64 x86_64-systemd
# limit: 180
start_agent
simple_pod first | apply first
wait_ready first
group=$(pod_group first)
# A process in the pod's cgroup that belongs to no container.
mkdir "$group/left"
sleep 1000 &
left=$!
echo $left >"$group/left/cgroup.procs"
remove first
is_removed() { [ ! -e "$1" ]; }
wait_for "the cgroup of the pod is gone" 60 is_removed "$group"
wait_for "the process left in it has been killed" 10 is_removed "/proc/$left/fd/0"

# A pod cgroup left behind while no agent was running.
simple_pod second | apply second
wait_ready second
group=$(pod_group second)
stray=$(echo "$group" | sed 's/pod[0-9a-f_-]*\(\.slice\)\{0,1\}$/pod0123456789abcdef0123456789abcdef\1/')
kill_agent
mkdir -p "$stray/left"
sleep 1000 &
left=$!
echo $left >"$stray/left/cgroup.procs"
start_agent
wait_for "the orphaned cgroup is gone" 60 is_removed "$stray"
wait_for "its process has been killed" 10 is_removed "/proc/$left/fd/0"
[ -d "$group" ] || fail "the cgroup of a running pod has been removed"
