# shellcheck shell=sh
# guests: x86_64
# limit: 240
# full
# A pod starts processes until the number of free PIDs is below the threshold.
most=$(cat /proc/sys/kernel/pid_max)
threads=$(cat /proc/sys/kernel/threads-max)
[ "$threads" -gt "$most" ] || most=$threads
running=$(awk '{ split($4, of, "/"); print of[2] }' /proc/loadavg)
wanted=$((most - running - 200))
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsyncFrequency: 5s\n' >/tmp/config.yaml
printf 'evictionHard: {pid.available: "%s"}\n' "$wanted" >>/tmp/config.yaml
start_agent --config /tmp/config.yaml --evict-static-pods -v 4
simple_pod modest "for i in \$(seq 20); do sleep 1000 & done; $STAY" | apply modest
wait_ready modest
simple_pod greedy "for i in \$(seq 400); do sleep 1000 & done; $STAY" | apply greedy
was_evicted() { [ "$(pod greedy .status.reason)" = Evicted ]; }
wait_for "the pod with most processes is evicted" 150 was_evicted
pod greedy .status.message | grep -q "^The node was low on resource: pids. Threshold quantity: $wanted, available: " ||
    fail "message: $(pod greedy .status.message)"
expect_equal "restarts of the other pod" "$(restarts modest)" 0
coracle status | grep -q 'Pressure: PIDPressure since' || fail "$(coracle status)"
