# shellcheck shell=sh
# guests: x86_64
# limit: 240
# full
# A pod creates many empty files: the disk runs out of inodes but not of space.
mkdir -p /var/lib/kubelet
free=$(df -Pi /var/lib/kubelet | awk 'NR == 2 { print $4 }')
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsyncFrequency: 5s\n' >/tmp/config.yaml
printf 'evictionHard: {nodefs.inodesFree: "%s"}\n' $((free - 2000)) >>/tmp/config.yaml
start_agent --config /tmp/config.yaml --evict-static-pods -v 4
simple_pod modest | apply modest
wait_ready modest
simple_pod greedy "for i in \$(seq 4000); do : >/data/\$i; done; $STAY" "      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]" | apply greedy
was_evicted() { [ "$(pod greedy .status.reason)" = Evicted ]; }
wait_for "the pod that made the files is evicted" 150 was_evicted
pod greedy .status.message | grep -q '^The node was low on resource: inodes. Threshold quantity: ' ||
    fail "message: $(pod greedy .status.message)"
expect_equal "restarts of the other pod" "$(restarts modest)" 0
coracle status | grep -q 'Pressure: DiskPressure since' || fail "$(coracle status)"
has_inodes() { [ "$(df -Pi /var/lib/kubelet | awk 'NR == 2 { print $4 }')" -gt $((free - 2000)) ]; }
wait_for "the disk has free inodes again" 30 has_inodes
