# shellcheck shell=sh
# guests: x86_64 x86_64-systemd aarch64 armv7
# Reads the kernel's files before and after each response: the reported value must lie in between.
start_agent
apply quiet <<END
$(simple_pod quiet "$STAY" "      resources:
        limits: {memory: 48Mi, cpu: 250m}")
END
apply busy <<END
$(simple_pod busy "while :; do :; done" "      resources:
        limits: {memory: 48Mi, cpu: 100m}")
END
wait_ready quiet
wait_ready busy
link_groups quiet busy

summary() { coracle top -o json >/run/summary; }
# told POD PATH: a value of the pod in the last summary.
told() { jq -r --arg name "$1-guest" ".pods[] | select(.podRef.name == \$name) | $2" /run/summary; }
# counted POD FILE [KEY]: a value from the pod's cgroup; KEY selects a line of a flat keyed file.
counted() {
    if [ $# = 2 ]; then cat "/run/group/$1/$2"; else sed -n "s/^$3 //p" "/run/group/$1/$2"; fi
}
between() { awk -v low="$2" -v value="$3" -v high="$4" 'BEGIN { exit !(low <= value && value <= high) }' || fail "$1 is $3, not from $2 to $4"; }

# The first summary has no rates, so `coracle top` takes a second one.
summary
for name in quiet busy; do
    cpu_before=$(counted $name cpu.stat usage_usec) faults_before=$(counted $name memory.stat pgfault)
    summary
    between "processor time of $name" "${cpu_before}000" "$(told $name .cpu.usageCoreNanoSeconds)" "$(counted $name cpu.stat usage_usec)000"
    between "page faults of $name" "$faults_before" "$(told $name .memory.pageFaults)" "$(counted $name memory.stat pgfault)"
done
# The limit is a tenth of a CPU, enforced in periods: one second may contain one period more or less.
between "rate of the busy pod" 50000000 "$(told busy .cpu.usageNanoCores)" 150000000
between "rate of the quiet pod" 0 "$(told quiet .cpu.usageNanoCores)" 20000000

# The quiet pod is idle: its memory usage is the same to the byte unless the kernel reclaims some.
same_memory() {
    before="$(counted quiet memory.current) $(counted quiet memory.stat inactive_file) $(counted quiet memory.stat anon)"
    summary
    after="$(counted quiet memory.current) $(counted quiet memory.stat inactive_file) $(counted quiet memory.stat anon)"
    [ "$before" = "$after" ] || return 1
    # shellcheck disable=SC2086
    set -- $before
    expect_equal "usage" "$(told quiet .memory.usageBytes)" "$1"
    expect_equal "working set" "$(told quiet .memory.workingSetBytes)" "$(($1 - $2))"
    expect_equal "rss" "$(told quiet .memory.rssBytes)" "$3"
    expect_equal "what is left of its limit" "$(told quiet .memory.availableBytes)" "$((50331648 - $1 + $2))"
}
wait_for "the quiet pod's memory stays as it is" 30 same_memory
container=$(container_cgroup quiet memory.current)
between "working set of the container" 1 "$(told quiet '.containers[0].memory.workingSetBytes')" "$((container + 1048576))"

# The node: compares with the root cgroup and procfs.
total=$(($(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) * 1024))
expect_equal "all of memory" "$(jq '.node.memory | .workingSetBytes + .availableBytes' /run/summary)" "$total"
low=$(sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat)
summary
between "processor time of the node" "${low}000" "$(jq .node.cpu.usageCoreNanoSeconds /run/summary)" "$(sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat)000"
if [ -e /proc/pressure/cpu ] && cat /proc/pressure/cpu >/dev/null 2>&1; then
    [ "$(told busy .cpu.psi.some.total)" -gt 0 ] || fail "the busy pod, limited to a tenth of a CPU, has no CPU pressure"
fi
# The process of the container alone: the sandbox has its own.
[ "$(told quiet .process_stats.process_count)" -ge 1 ] || fail "the quiet pod has no process"
coracle top | grep -q '^default  *busy-guest  *[0-9]*m' || fail "coracle top: $(coracle top)"
