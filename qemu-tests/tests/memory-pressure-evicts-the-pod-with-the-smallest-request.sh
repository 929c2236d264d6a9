# shellcheck shell=sh
# guests: x86_64
# limit: 240
# full
# A pod allocates memory in steps until less than half of it is available. It requested no memory, so it is evicted
# and not the other pod, whose request covers its usage.
half=$(awk '/^MemTotal:/ { print int($2 / 2048) }' /proc/meminfo)
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsyncFrequency: 5s\n' >/tmp/config.yaml
printf 'evictionHard: {memory.available: %sMi}\n' "$half" >>/tmp/config.yaml
start_agent --config /tmp/config.yaml --evict-static-pods -v 4
in_memory="      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {medium: Memory}}]"
simple_pod modest "dd if=/dev/zero of=/data/file bs=1M count=48; $STAY" "      resources:
        requests: {memory: 100Mi}
$in_memory" | apply modest
wait_ready modest
simple_pod greedy "i=0; while sleep 0.5; do dd if=/dev/zero of=/data/\$i bs=8M count=1 2>/dev/null; i=\$((i + 1)); done" \
    "$in_memory" | apply greedy
was_evicted() { [ "$(pod greedy .status.reason)" = Evicted ]; }
wait_for "the greedy pod is evicted" 150 was_evicted
expect_equal "phase" "$(pod greedy .status.phase)" Failed
pod greedy .status.message | grep -q '^The node was low on resource: memory. Threshold quantity: '"$half"'Mi, available: ' ||
    fail "message: $(pod greedy .status.message)"
pod greedy .status.message | grep -q 'Container greedy was using .*, request is 0, has larger consumption of memory. $' ||
    fail "message: $(pod greedy .status.message)"
expect_equal "condition" "$(pod greedy '.status.conditions[] | select(.type == "DisruptionTarget") | .reason')" \
    TerminationByKubelet
expect_equal "restarts of the modest one" "$(restarts modest)" 0
coracle status | grep -q 'Pressure: MemoryPressure since' || fail "$(coracle status)"
coracle events | grep -q EvictionThresholdMet || fail "$(coracle events)"
