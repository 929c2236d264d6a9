# shellcheck shell=sh
# guests: x86_64
# limit: 180
# full
start_agent
simple_pod first | apply first
wait_ready first
root=/sys/fs/cgroup/kubepods
awk '/^nr_descendants/ { print $2 }' $root/cgroup.stat >$root/cgroup.max.descendants
simple_pod second | apply second
is_reported() { coracle events second | grep -q 'FailedCreatePodContainer.*unable to ensure pod container exists: '; }
wait_for "the failed cgroup is reported" 30 is_reported
expect_equal "restarts of the other pod" "$(restarts first)" 0
echo max >$root/cgroup.max.descendants
wait_ready second 90
