# shellcheck shell=sh
# guests: x86_64 x86_64-systemd armv7
# short: x86_64
# limit: 240
# memoryReservationPolicy and memoryThrottlingFactor: memory.min, memory.low and memory.high of containers, pods and the
# cgroups above them. A limit that is no multiple of the page size is written once.
cat >/etc/kubernetes/memory.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
memoryReservationPolicy: TieredReservation
memoryThrottlingFactor: 0.9
END
trace=/var/log/coracle-tests/$TEST/calls
mkdir -p "${trace%/*}"
[ -d /run/systemd/system ] || LAUNCHER="strace -f -qq -o $trace -e trace=file"
LAUNCHER=${LAUNCHER-} start_agent --config=/etc/kubernetes/memory.yaml
apply_a_pod_of_each_class
apply odd <<END
$(simple_pod odd "$STAY" "      resources:
        requests: {memory: 10000001}
        limits: {memory: 40000001}")
END
for name in guaranteed burstable besteffort odd; do wait_ready $name 120; done
link_groups guaranteed burstable besteffort odd
mib=1048576
page=4096
# expect POD FILE OF-CONTAINER OF-POD
expect() {
    expect_equal "$2 of the container of $1" "$(container_cgroup "$1" "$2")" "$3"
    expect_equal "$2 of the pod $1" "$(cat "/run/group/$1/$2")" "$4"
}
# throttled REQUEST LIMIT: where the memory of a container is throttled.
throttled() { echo $((($1 + ($2 - $1) * 900 / 1000) / page * page)); }
pages() { echo $(($1 / page * page)); }

expect guaranteed memory.min $((32 * mib)) $((32 * mib))
expect guaranteed memory.low 0 0
expect guaranteed memory.high max max
expect burstable memory.min 0 0
expect burstable memory.low $((16 * mib)) $((16 * mib))
expect burstable memory.high "$(throttled $((16 * mib)) $((48 * mib)))" max
expect besteffort memory.min 0 0
expect besteffort memory.low 0 0
[ "$(container_cgroup besteffort memory.high)" != max ] || fail "a container without a limit is not throttled"
expect odd memory.max "$(pages 40000001)" "$(pages 40000001)"
expect odd memory.low "$(pages 10000001)" "$(pages 10000001)"
expect odd memory.high "$(throttled 10000001 40000001)" max

# The groups above protect what their pods together request.
both=$((16 * mib + 10000001))
expect_equal "memory.low of burstable pods" "$(cat /run/group/burstable/../memory.low)" "$(pages $both)"
expect_equal "memory.low of best-effort pods" "$(cat /run/group/besteffort/../memory.low)" 0
expect_equal "memory.min of all pods" "$(cat /run/group/guaranteed/../memory.min)" "$(pages $((32 * mib + both)))"

# The kernel rounds the limit down to pages: what it shows is not what was written, but the same. The restart of a
# container is a sync of its pod.
[ ! -d /run/systemd/system ] || exit 0
writes() { grep -c 'memory\.\(max\|low\|min\)".*O_WRONLY' "$trace" || true; }
before=$(writes)
[ "$before" -gt 0 ] || fail "the trace has no writes"
kill -KILL "$(container_pid odd)"
wait_restarts odd 1
expect_equal "writes of memory values" "$(writes)" "$before"
