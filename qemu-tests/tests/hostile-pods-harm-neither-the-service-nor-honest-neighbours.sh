# shellcheck shell=sh
# guests: x86_64-systemd aarch64-systemd
# full
# limit: 3000
# Two minutes, or HOSTILE_MINUTES, with pods and clients that try to harm the node, on cgroup v2 and with the shipped unit.
prepare_agent
grep -q ^podPidsLimit /etc/coracle/config.yaml || echo 'podPidsLimit: 100' >>/etc/coracle/config.yaml
start_agent
simple_pod honest | apply honest
wait_ready honest
honest=$(container_id honest)

limits="      resources: {limits: {cpu: 300m, memory: 48Mi}}"
disks="      volumeMounts: [{name: d, mountPath: /d}, {name: m, mountPath: /m}]"
with_disks() {
    simple_pod "$1" "$2" "$limits
$disks
  volumes: [{name: d, emptyDir: {sizeLimit: 16Mi}}, {name: m, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]" | apply "$1"
}
# probed NAME SCRIPT PROBE
probed() {
    simple_pod "$1" "$2" "$limits
      readinessProbe: {$3, periodSeconds: 1}" | apply "$1"
}
simple_pod forks "bomb() { bomb | bomb & }; while :; do bomb; sleep 1; done" "$limits" | apply forks
simple_pod memory "tail /dev/zero" "$limits" | apply memory
simple_pod logs "while :; do yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | head -c 500000; sleep 0.5; done" "$limits" | apply logs
simple_pod hosts "truncate -s 8G /etc/hosts; sleep 1; exit 1" "$limits" | apply hosts
simple_pod message "head -c 8000000 /dev/zero >/dev/termination-log; exit 1" "$limits" | apply message
with_disks shared "while :; do dd if=/dev/zero of=/m/full bs=1M; rm -f /m/full; sleep 1; done"
with_disks full "dd if=/dev/zero of=/d/full bs=1M count=64; sleep 100000"
with_disks trees "cd /d; i=0; while [ \$i -lt 100 ]; do mkdir d; cd d; i=\$((i + 1)); done; cd /d; seq 500 | xargs mkdir; sleep 100000"
probed answers "while :; do (echo HTTP/1.1 200 OK; echo; cat /dev/zero) | nc -l -p 8081; done" "httpGet: {port: 8081}"
probed output "sleep 100000" "exec: {command: [sh, -c, 'head -c 2000000 /dev/zero; exit 1']}"

# Clients that keep connections half open, and that follow logs without reading them.
clients=''
for number in 1 2 3 4 5 6 7 8; do
    sleep 1000 | nc 127.0.0.1 10248 >/dev/null 2>&1 &
    clients="$clients $!"
    { coracle logs --follow logs-guest 2>/dev/null || true; } | sleep 1000 &
    clients="$clients $!"
done

# Prints "SECONDS RSS PODS HEALTHZ": the times are hundredths of seconds.
hundredths() { awk '{ printf "%d", $1 * 100 }' /proc/uptime; }
duration=$((${HOSTILE_MINUTES:-2} * 60))
begun=$(uptime_seconds)
: >/tmp/samples
while [ "$(elapsed_since "$begun" | cut -d. -f1)" -lt $duration ]; do
    first=$(hundredths)
    coracle pods >/dev/null || fail "the agent does not answer"
    second=$(hundredths)
    timeout 20 wget -q -O /dev/null http://127.0.0.1:10248/healthz || fail "/healthz does not answer"
    third=$(hundredths)
    rss=$(agent_rss)
    echo "$((first / 100 - ${begun%.*})) $rss $((second - first)) $((third - second))" | tee -a /tmp/samples
    is_ready honest || fail "the honest pod is not ready"
    sleep 2
done
# percentile FIELD PERCENT
percentile() { cut -d' ' -f"$1" /tmp/samples | sort -n | awk -v p="$2" '{ v[NR] = $1 } END { printf "%.2f", v[int((NR - 1) * p / 100) + 1] / 100 }'; }
# most FROM TO: the largest memory in KiB between two moments.
most() { awk -v from="$1" -v to="$2" '$1 >= from && $1 <= to && $2 > most { most = $2 } END { print most + 0 }' /tmp/samples; }
quarter=$((duration / 4))
for end in 1 2 3 4; do
    figure "rss-in-quarter-$end" "$(most $((quarter * (end - 1))) $((quarter * end)))" 24576 KiB
done
figure median-of-coracle-pods "$(percentile 3 50)" 5 s
figure slowest-of-100-coracle-pods "$(percentile 3 99)" 20 s
figure median-of-healthz "$(percentile 4 50)" 5 s
figure slowest-of-100-healthz "$(percentile 4 99)" 20 s
# shellcheck disable=SC2086
kill $clients 2>/dev/null || true
expect_equal "the honest container" "$(container_id honest)" "$honest"
expect_equal "restarts of the honest container" "$(restarts honest)" 0
expect_equal "restarts by systemd" "$(systemctl show --property NRestarts --value coracle)" 0
expect_equal "the phase of the pod that fills its volume" "$(pod full .status.phase)" Failed
sed -i /^podPidsLimit/d /etc/coracle/config.yaml
figure memory-of-the-service-with-hostile-pods "$(systemctl show --property MemoryCurrent --value coracle | awk '{ printf "%.1f", $1 / 1048576 }')" 64 MiB
