# shellcheck shell=sh
# guests: x86_64-systemd
start_agent
apply volumes <<'END'
apiVersion: v1
kind: Pod
metadata: {name: volumes}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4711}
  volumes:
    - name: memory
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    - name: disk
      emptyDir: {}
  containers:
    - name: volumes
      image: localhost/coracle/busybox:1
      command: [sh, -c, 'trap exit TERM; echo kept >/memory/file; while :; do sleep 1000 & wait; done']
      volumeMounts:
        - {name: memory, mountPath: /memory}
        - {name: disk, mountPath: /disk}
END
wait_ready volumes
container=$(container_id volumes)
# The mounts of the hardened service must be visible to the runtime.
expect_equal "the volume's file system" "$(in_container volumes stat -f -c %T /memory)" tmpfs
systemctl restart coracle
wait_ready volumes
expect_equal "the container" "$(container_id volumes)" "$container"
expect_equal "the file" "$(in_container volumes cat /memory/file)" kept
expect_equal "restarts by systemd" "$(systemctl show --property NRestarts --value coracle)" 0
figure memory-of-the-service "$(systemctl show --property MemoryCurrent --value coracle | awk '{ printf "%.1f", $1 / 1048576 }')" 64 MiB
remove volumes
wait_for "the pod is gone" 30 is_gone volumes
[ -z "$(ls /var/lib/kubelet/pods)" ] || fail "left behind: $(find /var/lib/kubelet/pods)"
