# shellcheck shell=sh
# guests: x86_64
# limit: 240
# full
# A pod fills the disk. The agent first removes an unused image and then, because that is not enough, evicts the pod.
folder=/var/tmp/unneeded
mkdir -p $folder/content
echo unneeded >$folder/content/file
tar -cf $folder/layer.tar -C $folder/content .
sum=$(sha256sum $folder/layer.tar | cut -d' ' -f1)
rootfs='{"type": "layers", "diff_ids": ["sha256:'$sum'"]}'
echo '{"architecture": "amd64", "os": "linux", "config": {}, "rootfs": '"$rootfs"'}' >$folder/config.json
name=localhost/coracle/unneeded:1
echo '[{"Config": "config.json", "RepoTags": ["'$name'"], "Layers": ["layer.tar"]}]' >$folder/manifest.json
tar -cf $folder/image.tar -C $folder manifest.json config.json layer.tar
ctr --namespace k8s.io images import $folder/image.tar >/dev/null
has_image() { ctr --namespace k8s.io images list --quiet | grep -q "^$name$"; }
has_image || fail "no image was made"
mkdir -p /var/lib/kubelet
free=$(df -Pm /var/lib/kubelet | awk 'NR == 2 { print $4 }')
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsyncFrequency: 5s\nimageMinimumGCAge: 1s\n' >/tmp/config.yaml
printf 'evictionHard: {nodefs.available: %sMi}\n' $((free / 2)) >>/tmp/config.yaml
# So soon after the boot, the agent does not trust an empty manifest directory and removes no images.
simple_pod modest | apply modest
start_agent --config /tmp/config.yaml --evict-static-pods -v 4
wait_ready modest
apply greedy <<END
$(simple_pod greedy "dd if=/dev/zero of=/data/file bs=1M count=$((free * 6 / 10)); $STAY" "      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]")
END
was_evicted() { [ "$(pod greedy .status.reason)" = Evicted ]; }
wait_for "the pod that fills the disk is evicted" 150 was_evicted
pod greedy .status.message | grep -q '^The node was low on resource: ephemeral-storage. Threshold quantity: ' ||
    fail "message: $(pod greedy .status.message)"
! has_image || fail "the image that nothing needs is still there"
log=$LOGS/$TEST/agent.log
image=$(grep -n 'removed unused image' "$log" | head -n 1 | cut -d: -f1)
pod=$(grep -n 'reason=Evicted' "$log" | head -n 1 | cut -d: -f1)
[ "$image" -lt "$pod" ] || fail "the image is removed in line $image of the log, the pod in line $pod"
expect_equal "restarts of the other pod" "$(restarts modest)" 0
has_room() { [ "$(df -Pm /var/lib/kubelet | awk 'NR == 2 { print $4 }')" -gt $((free / 2)) ]; }
wait_for "the disk has free space again" 30 has_room
