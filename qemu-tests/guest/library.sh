# shellcheck shell=sh
# Functions for the tests in a guest. Waits poll ten times a second.

export PATH=/var/lib/coracle-tests:/usr/sbin:/usr/bin
LOGS=/var/log/coracle-tests
MANIFESTS=/etc/kubernetes/manifests
TASKS=/run/containerd/io.containerd.runtime.v2.task/k8s.io

# --- messages to the host

say() { printf '\ncoracle-tests: %s\n' "$*" >/dev/console; }

# Ends the test as failed.
fail() {
    echo "$*"
    exit 1
}

# figure NAME VALUE LIMIT UNIT: reports a value to the host and fails if it exceeds LIMIT; - means no limit.
figure() {
    echo "figure $*"
    [ "$3" = - ] || at_most "$2" "$3" || fail "$1 is $2 $4, more than $3"
}

at_most() { awk -v value="$1" -v limit="$2" 'BEGIN { exit !(value <= limit) }'; }

# expect_equal WHAT FOUND WANTED
expect_equal() { [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"; }

# --- time

uptime_seconds() { cut -d' ' -f1 /proc/uptime; }

# elapsed_since UPTIME: seconds since that uptime.
elapsed_since() { awk -v begun="$1" '{ printf "%.1f", $1 - begun }' /proc/uptime; }

# within SECONDS COMMAND...: polls until COMMAND succeeds; false on timeout.
within() {
    end=$(($(cut -d. -f1 /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt $end ] || return 1
        sleep 0.1
    done
}

# wait_for WHAT SECONDS COMMAND...: polls until COMMAND succeeds; fails the test on timeout.
wait_for() {
    what=$1 seconds=$2
    shift 2
    within "$seconds" "$@" || fail "timed out after $seconds s waiting until $what"
}

# --- the runtime

start_containerd() {
    containerd --config guest/containerd.toml >>"$LOGS/containerd.log" 2>&1 &
    within 60 containerd_answers
}

# ctr takes 50 ms even if there is no socket yet.
containerd_answers() { [ -S /run/containerd/containerd.sock ] && ctr version >/dev/null 2>&1; }

no_containers() { [ -z "$(ls $TASKS 2>/dev/null)" ]; }

# --- the agent

# start_agent [FLAG...]: starts the agent in the background and waits until it answers.
start_agent() {
    launch_agent "$@"
    within 30 coracle pods >/dev/null 2>&1 || fail "the agent does not answer: $(tail -n1 "$LOGS/$TEST/agent.log")"
}

# launch_agent [FLAG...]: starts the agent without waiting.
launch_agent() {
    mkdir -p "$LOGS/$TEST"
    # shellcheck disable=SC2086
    ${LAUNCHER-} coracle "$@" >>"$LOGS/$TEST/agent.log" 2>&1 &
}

# At most one agent runs. Just after its start, or under a tracer, the process gets its name only after a moment.
agent_pid() { pidof coracle; }

# Sends SIGTERM and waits for the exit.
stop_agent() {
    kill "$(agent_pid)"
    wait_for "the agent ends" 30 agent_is_gone
}

kill_agent() {
    pid=$(agent_pid) || return 0
    kill -KILL "$pid"
    within 10 agent_is_gone
}

agent_is_gone() { ! agent_pid >/dev/null; }

# Freezes the agent's first thread, which runs all async tasks. The other threads keep running.
stall_agent() {
    pid=$(agent_pid)
    held=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$pid/cgroup")/held
    mkdir "$held"
    echo threaded >"$held/cgroup.type"
    echo "$pid" >"$held/cgroup.threads"
    echo 1 >"$held/cgroup.freeze"
}

last_stall() { coracle status -o json | jq -r ".lastStall$1"; }

# --- pods, by the names of their manifests

# apply NAME <<manifest
apply() {
    cat >"/etc/kubernetes/$1.new"
    mv "/etc/kubernetes/$1.new" "$MANIFESTS/$1.yaml"
}

# simple_pod NAME [SCRIPT [LINES OF THE CONTAINER]]: a manifest with one container on the host network.
simple_pod() {
    cat <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: $1
      image: localhost/coracle/busybox:1
      command: [sh, -c, "${2-$STAY}"]
${3-}
END
}

# Applies pods named guaranteed, burstable and besteffort of these QoS classes.
apply_a_pod_of_each_class() {
    apply guaranteed <<END
$(simple_pod guaranteed "$STAY" "      resources:
        limits: {memory: 32Mi, cpu: 250m}")
END
    apply burstable <<END
$(simple_pod burstable "$STAY" "      resources:
        requests: {cpu: 100m, memory: 16Mi}
        limits: {memory: 48Mi}")
END
    simple_pod besteffort | apply besteffort
}

# A script that runs until SIGTERM and then exits at once.
STAY='trap exit TERM; while :; do sleep 1000 & wait; done'

remove() { rm "$MANIFESTS/$1.yaml"; }

# pod NAME FILTER: applies a jq filter to the pod as the API would show it.
pod() {
    coracle pods -o json | jq -r --arg name "$1-guest" ".items[] | select(.metadata.name == \$name) | $2"
}

# The pod's condition is looked at once its containers are ready: jq alone takes four times as long as the table.
is_ready() {
    row "$1" 'split($3, ready, "/"); exit ready[1] != ready[2]' &&
        [ "$(pod "$1" '.status.conditions[]? | select(.type == "Ready") | .status')" = True ]
}
# row POD [ACTION]: applies an awk action to the pod's line of the table; fails if there is none.
row() { coracle pods | awk -v name="$1-guest" "\$2 == name { found = 1; ${2-} } END { if (!found) exit 1 }"; }
has_phase() { [ "$(pod "$1" .status.phase)" = "$2" ]; }
is_gone() { no_containers && ! row "$1"; }
wait_ready() { wait_for "pod $1 is ready" "${2:-60}" is_ready "$1"; }
# wait_all_ready NUMBER SECONDS: waits until this many pods are ready and there are no others.
wait_all_ready() { wait_for "$1 pods are ready" "$2" all_ready "$1"; }
all_ready() {
    [ "$(coracle pods -o json | jq '[.items[] | any(.status.conditions[]?; .type == "Ready" and .status == "True")] |
        "\(length) \(map(select(.)) | length)"')" = "\"$1 $1\"" ]
}
wait_phase() { wait_for "pod $1 is $2" 60 has_phase "$1" "$2"; }

# restarts POD: restart count of its first container.
restarts() { pod "$1" '.status.containerStatuses[0].restartCount'; }
wait_restarts() { wait_for "pod $1 was restarted $2 times" 60 has_restarts "$1" "$2"; }
# The count first: a pod that is ready afterwards is so with its new container.
has_restarts() { [ "$(restarts "$1")" = "$2" ] && is_ready "$1"; }

# container_id POD [INDEX]
container_id() { pod "$1" ".status.containerStatuses[${2:-0}].containerID" | sed 's,.*//,,'; }

# container_pid POD [INDEX]: the container's first process.
container_pid() { cat "$TASKS/$(container_id "$@")/init.pid"; }

# container_cgroup POD FILE: reads a file of the container's cgroup.
container_cgroup() {
    cat "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(container_pid "$1")/cgroup")/$2"
}

# pod_group POD: the directory of the pod's cgroup.
pod_group() {
    group=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(container_pid "$1")/cgroup")
    echo "${group%/*}"
}

# link_groups POD...: links /run/group/POD to the pod's cgroup, for tests that read many of its files.
link_groups() {
    mkdir -p /run/group
    for name; do ln -sfn "$(pod_group "$name")" "/run/group/$name"; done
}

# --- the agent's resource usage

# Resident memory in KiB.
agent_rss() { awk '/^Rss:/ { print $2 }' "/proc/$(agent_pid)/smaps_rollup"; }

# For each thread: its id, how often it has slept, and its CPU time in nanoseconds.
agent_activity() {
    for thread in /proc/"$(agent_pid)"/task/*; do
        echo "${thread##*/} $(awk '/^voluntary_ctxt/ { print $2 }' "$thread/status") $(awk '{ print $1 }' "$thread/schedstat")"
    done
}

# grown FIELD BEFORE AFTER: growth summed over the threads in AFTER; threads that have exited meanwhile are ignored.
grown() {
    printf '%s\n-\n%s\n' "$2" "$3" | awk -v field="$1" '
        $1 == "-" { after = 1; next }
        after { sum += $field - before[$1]; next }
        { before[$1] = $field }
        END { print sum + 0 }'
}

# Bytes written to any disk.
agent_written() { awk '/^write_bytes/ { print $2 }' "/proc/$(agent_pid)/io"; }

# at_rest SECONDS: measures an idle agent. Sets WAKES_PER_SECOND, CPU_PERCENT, WRITTEN.
at_rest() {
    before=$(agent_activity) written=$(agent_written) since=$(uptime_seconds)
    sleep "$1"
    after=$(agent_activity)
    WAKES_PER_SECOND=$(awk -v n="$(grown 2 "$before" "$after")" -v t="$since" '{ printf "%.2f", n / ($1 - t) }' /proc/uptime)
    CPU_PERCENT=$(awk -v n="$(grown 3 "$before" "$after")" -v t="$since" '{ printf "%.3f", n / ($1 - t) / 1e7 }' /proc/uptime)
    WRITTEN=$(($(agent_written) - written))
}

# --- inside containers

# in_container POD COMMAND...
in_container() {
    inside=$(container_pid "$1")
    shift
    nsenter -t "$inside" -m -u -i -n -p -r -w -- "$@"
}

# container_log POD [CONTAINER [RUN]]: the output of a container.
container_log() { cut -d' ' -f4- "/var/log/pods/default_$1-guest_"*"/${2:-$1}/${3:-0}.log"; }
