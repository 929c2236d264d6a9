# shellcheck shell=sh
# guests: x86_64 armv7
# short: x86_64
# boots: 2
kept_starts() { cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/data/starts 2>/dev/null | wc -l; }
if [ "$BOOT" = 1 ]; then
    apply kept <<END
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: kept
      image: localhost/coracle/busybox:1
      command: [sh, -c, "echo started >>/data/starts; $STAY"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
END
    start_agent
    wait_ready kept
else
    # The card with the manifests is not mounted yet.
    mount -t tmpfs tmpfs "$MANIFESTS"
    start_agent
    # By the time the witness runs, any reaction to the empty directory would have started.
    simple_pod witness | apply witness
    wait_ready witness
    expect_equal "starts that the pod's volume remembers before its manifest is back" "$(kept_starts)" 1
    umount "$MANIFESTS"
    wait_ready kept
    expect_equal "restarts of the pod" "$(restarts kept)" 1
    expect_equal "starts that its volume remembers" "$(kept_starts)" 2
    remove kept
    wait_for "the pods are gone" 60 no_containers
fi
