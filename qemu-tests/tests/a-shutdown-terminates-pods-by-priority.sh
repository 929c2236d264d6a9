# shellcheck shell=sh
# guests: x86_64-systemd aarch64-systemd
# short: x86_64-systemd
# boots: 2
# Between the boots, `systemctl poweroff` shuts the machine down through logind. The pods record when they terminate.
# If both were terminated at once, the critical pod would be first, because it exits without a delay.
noting_pod() {
    apply "$1" <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  hostNetwork: true
  priority: $2
  terminationGracePeriodSeconds: 20
  volumes: [{name: ends, hostPath: {path: /var/lib/ends, type: DirectoryOrCreate}}]
  containers:
    - name: $1
      image: localhost/coracle/busybox:1
      command: [sh, -c, "trap '$3 echo $1 >>/ends/order; exit' TERM; while :; do sleep 1000 & wait; done"]
      volumeMounts: [{name: ends, mountPath: /ends}]
END
}

of_logind() {
    busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager "$1" | cut -d' ' -f2
}
is_inhibited() { systemd-inhibit --list --no-pager | grep -q '^coracle .* shutdown .* delay'; }

if [ "$BOOT" = 1 ]; then
    prepare_agent
    printf 'shutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: 10s\n' >>/etc/coracle/config.yaml
    noting_pod ordinary 0 'sleep 6;'
    noting_pod critical 2000001000 ''
    start_agent
    wait_ready ordinary
    wait_ready critical
    wait_for "logind waits for pods" 30 is_inhibited
    expect_equal "how long logind waits" "$(of_logind InhibitDelayMaxUSec)" 40000000
    # The inhibitor lock and its delay survive a restart of logind.
    systemctl restart systemd-logind
    wait_for "logind waits again" 30 is_inhibited
    expect_equal "how long it waits then" "$(of_logind InhibitDelayMaxUSec)" 40000000
else
    expect_equal "who ended, in turn" "$(tr '\n' ' ' </var/lib/ends/order)" "ordinary critical "
    start_agent
    wait_ready ordinary
    wait_ready critical
    expect_equal "restarts of the pod" "$(restarts ordinary)" 1
    wait_for "logind waits for pods" 30 is_inhibited
    remove ordinary
    remove critical
    wait_for "the pods are gone" 60 is_gone ordinary
fi
