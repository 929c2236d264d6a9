# shellcheck shell=sh
# guests: x86_64
# limit: 240
# full
# Less than half of the memory is available. The node reports MemoryPressure at once, and evicts the pod after the
# soft grace period of twenty seconds. The pod's own grace period is capped at three seconds.
total=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
cat >/tmp/config.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
syncFrequency: 5s
evictionHard: {memory.available: 10Mi}
evictionSoft: {memory.available: $((total / 2))Mi}
evictionSoftGracePeriod: {memory.available: 20s}
evictionMaxPodGracePeriod: 3
END
start_agent --config /tmp/config.yaml --evict-static-pods -v 4
greedy="dd if=/dev/zero of=/data/file bs=1M count=$((total * 11 / 20)); trap '' TERM; while :; do sleep 1; done"
simple_pod greedy "$greedy" "      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {medium: Memory}}]" | sed 's/\(terminationGracePeriodSeconds:\) 1/\1 600/' | apply greedy
is_pressed() { coracle status | grep -q 'Pressure: MemoryPressure since'; }
wait_for "the node is under pressure" 90 is_pressed
begun=$(uptime_seconds)
was_evicted() { [ "$(pod greedy .status.reason)" = Evicted ]; }
wait_for "the greedy pod is evicted" 120 was_evicted
waited=$(elapsed_since "$begun")
at_most 15 "$waited" || fail "the pod was evicted after only $waited s"
at_most "$waited" 60 || fail "the pod was evicted only after $waited s"
is_over() { [ -z "$(ls $TASKS)" ]; }
wait_for "the pod is given three seconds" 20 is_over
