# shellcheck shell=sh
# guests: x86_64 x86_64-systemd
# limit: 180
echo 4 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
start_agent --pod-max-pids=20
apply busy <<END
$(simple_pod busy "while :; do :; done" "      resources:
        limits: {cpu: 500m, memory: 16Mi}")
END
apply forks <<END
$(simple_pod forks "for n in \$(seq 40); do sleep 1000 & done; wait")
END
apply pages <<END
$(simple_pod pages "$STAY" "      resources:
        limits: {cpu: 500m, memory: 16Mi, hugepages-2Mi: 4Mi}")
END
wait_ready pages
expect_equal "hugetlb.2MB.max of the pod" "$(cat "$(pod_group pages)/hugetlb.2MB.max")" 4194304
wait_ready busy
throttled() { awk '/^nr_throttled/ { print $2 }' "$(pod_group busy)/cpu.stat"; }
before=$(throttled)
is_throttled_more() { [ "$(throttled)" -gt "$before" ]; }
wait_for "the busy pod is throttled again" 60 is_throttled_more
# A shell that cannot fork exits and is restarted. The kernel logs only the first rejected fork.
forks_group() { dirname "$(ls -d /sys/fs/cgroup/kubepods*/*besteffort*/*pod*"$(pod forks .metadata.uid | tr - '?')"*/pids.max)"; }
has_hit_its_limit() { dmesg | grep -q "fork rejected by pids controller in /kubepods.*$(pod forks .metadata.uid)"; }
wait_for "a fork fails at the PID limit" 60 has_hit_its_limit
expect_equal "pids.max of the pod" "$(cat "$(forks_group)/pids.max")" 20
