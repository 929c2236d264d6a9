# shellcheck shell=sh
start_agent
apply web <<'END'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: web
      image: localhost/coracle/busybox:1
      command: [sh, -c, 'echo "started on $(uname -m)"; exec sleep 1000000']
END
wait_ready web
expect_equal "the phase" "$(pod web .status.phase)" Running
expect_equal "the log" "$(container_log web)" "started on $(uname -m)"
in_container web test -e /bin/busybox || fail "the container does not see its image"
remove web
wait_for "the pod is gone" 30 is_gone web
