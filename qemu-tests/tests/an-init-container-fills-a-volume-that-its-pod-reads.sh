# shellcheck shell=sh
start_agent
apply shared <<'END'
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  initContainers:
    - name: writer
      image: localhost/coracle/busybox:1
      command: [sh, -c, "echo from the init container >/shared/word; echo in memory >/memory/word"]
      volumeMounts: &mounts
        - {name: shared, mountPath: /shared}
        - {name: memory, mountPath: /memory}
  containers:
    - name: reader
      image: localhost/coracle/busybox:1
      command: [sh, -c, "cat /shared/word /memory/word; stat -f -c %T /memory"]
      volumeMounts: *mounts
  volumes:
    - {name: shared, emptyDir: {}}
    - {name: memory, emptyDir: {medium: Memory}}
END
wait_phase shared Succeeded
expect_equal "what it read" "$(container_log shared reader | tr '\n' ',')" "from the init container,in memory,tmpfs,"
