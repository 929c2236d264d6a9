# shellcheck shell=sh
# guests: x86_64 aarch64 armv7
# short: x86_64
# nanoseconds: 8
# limit: 300
simple_pod first | apply first

# First RunPodSandbox request for the pod after a given line of the runtime's log, in seconds of the day.
asked_at() {
    tail -n "+$1" "$LOGS/containerd.log" | sed -n 's/^time="[^T]*T\([^Z]*\)Z".*msg="RunPodSandbox for &.*/\1/p' | head -n1
}
is_asked() { [ -n "$(asked_at "$line")" ]; }

round=0
# The first round is that after the boot, which is always the slowest.
while [ $round -lt 5 ]; do
    round=$((round + 1))
    line=$(($(wc -l <"$LOGS/containerd.log") + 1))
    # The time just before exec, from the clock that the runtime's log uses.
    touch /run/begun
    launch_agent
    wait_for "the agent requests a sandbox" 30 is_asked
    printf '%s %s\n' "$(stat -c %y /run/begun | cut -d' ' -f2)" "$(asked_at "$line")" | awk '
        function seconds(clock) { split(clock, part, ":"); return part[1] * 3600 + part[2] * 60 + part[3] }
        { printf "%d\n", (seconds($2) - seconds($1) + 86400) % 86400 * 1000 }' >>/run/rounds
    wait_ready first
    rm "$MANIFESTS/first.yaml"
    wait_for "the pod is gone" 60 is_gone first
    stop_agent
    simple_pod first | apply first
done
figure exec-to-first-sandbox-all-rounds "$(tr '\n' '/' </run/rounds)" - ms
figure exec-to-first-sandbox-after-boot "$(head -n1 /run/rounds)" - ms
figure exec-to-first-sandbox "$(sort -n /run/rounds | sed -n 3p)" 300 ms
