# shellcheck shell=sh
# guests: x86_64-systemd aarch64-systemd
start_agent -v=4
printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec: {containers: 5}\n' | apply wrong
# A repeated failure is logged as a warning only once.
apply mountless <<'END'
apiVersion: v1
kind: Pod
metadata: {name: mountless}
spec:
  hostNetwork: true
  volumes:
    - name: missing
      hostPath: {path: /nowhere, type: Directory}
  containers:
    - name: mountless
      image: localhost/coracle/busybox:1
      command: [sleep, "1000"]
      volumeMounts:
        - {name: missing, mountPath: /missing}
END

# told PRIORITY TEXT: whether the agent has logged such a line.
told() {
    journalctl --unit coracle --output json _PID="$(agent_pid)" |
        jq --exit-status --slurp --arg priority "$1" --arg text "$2" \
            'any(.[]; .PRIORITY == $priority and (.MESSAGE | contains($text)))' >/dev/null
}
wait_for "a manifest that cannot be read is a warning" 30 told 4 wrong.yaml
wait_for "the start is information" 30 told 6 starting
wait_for "a volume that cannot be set up is a warning" 30 told 4 FailedMount
wait_for "a repetition is a debug line" 60 told 7 FailedMount
service_log --output cat _PID="$(agent_pid)" >/run/lines
! grep '^<' /run/lines || fail "a line contains its priority"
! grep -v '^\(error\|warn\|info\|debug\) ' /run/lines || fail "a line has no level"
