# shellcheck shell=sh
# guests: x86_64
# limit: 240
# alone
# full
# The agent's own checks are an hour apart. A pod fills the memory with pages that cannot be reclaimed. The agent
# learns of the memory pressure from the kernel (PSI) in time.
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsyncFrequency: 1h\n' >/tmp/config.yaml
printf 'evictionHard: {memory.available: 150Mi}\n' >>/tmp/config.yaml
start_agent --config /tmp/config.yaml --evict-static-pods -v 4
simple_pod greedy "i=0; while sleep 0.5; do dd if=/dev/zero of=/data/\$i bs=4M count=1 2>/dev/null; i=\$((i + 1)); done" \
    "      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {medium: Memory}}]" | apply greedy
was_evicted() { [ "$(pod greedy .status.reason)" = Evicted ]; }
wait_for "the greedy pod is evicted" 200 was_evicted
grep -q 'processes wait for memory' "$LOGS/$TEST/agent.log" || fail "no pressure notification was logged"
expect_equal "processes killed for want of memory" "$(sed -n 's/^oom_kill //p' /proc/vmstat)" 0
