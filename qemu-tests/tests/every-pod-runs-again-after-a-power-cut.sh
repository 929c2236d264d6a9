# shellcheck shell=sh
# guests: x86_64
# cuts: 50
# short-cuts: 5
# limit: 150
# The test adds, changes and removes manifests in every way that an operator may use, kills containers and the agent,
# and the power is cut at a random moment. The manifests on the disk then decide which pods must run.

PODS=6

main() {
    echo "=== boot $BOOT" >>"$LOGS/$TEST/agent.log"
    rm -f /etc/kubernetes/*.new
    launch_agent
    begun=$(uptime_seconds)
    say "recovering $(wanted | wc -l) pods, besides $(broken | wc -l) broken manifests"
    ask_for_cut recovering
    within 90 all_run || fail "not ready after 90 s although their manifests are complete: $(missing_pods)"
    say "running $(uptime_seconds) $(elapsed_since "$begun")"
    check_restarts
    mend_manifests
    within 60 all_run || fail "not ready 60 s after the broken manifests were rewritten: $(missing_pods)"
    within 60 nothing_is_left_over || fail "left over: $(cat /run/left)"
    [ -z "$(unlogged_corruption)" ] || fail "files set aside without a log line: $(unlogged_corruption)"
    note_restarts
    if [ "$BOOT" != "$BOOTS" ]; then
        # The verified state is on the disk whatever happens next.
        sync
        ask_for_cut churning
        [ "$(wanted | wc -l)" -ge 4 ] || for number in $(seq $PODS); do write_manifest "$number"; done
        while :; do churn; done
    fi
}

# ask_for_cut WHEN: the host cuts the power when it sees this message.
ask_for_cut() {
    [ "${CUT_WHEN-}" != "$1" ] || { sleep "$CUT_AFTER"; say "cut"; } &
}

# --- manifests; the last line of a complete one has its pod and revision

# Revisions are unique: a uid stands for one content and one restart count.
revision=$((BOOT * 1000))

# manifest NUMBER: a new revision. Each number has its own kind of pod.
manifest() {
    cat <<END
apiVersion: v1
kind: Pod
metadata:
  name: p$1
  labels: {rev: "$revision"}
spec:
  terminationGracePeriodSeconds: 1
END
    case $(($1 % 4)) in
        0) network=true body=plain ;;
        1) network=false body=with_volumes ;;
        2) network=true body=two ;;
        3) network=true body=long ;;
    esac
    echo "  hostNetwork: $network"
    $body
    echo "# whole p$1 $revision"
}

container() {
    echo "    - {name: $1, image: 'localhost/coracle/busybox:1', command: [sh, -c, '${2-$STAY}']${3-}}"
}

plain() {
    echo "  containers:"
    container main "$STAY"
}

two() {
    echo "  containers:"
    container main "$STAY"
    container side "$STAY"
}

mounts='volumeMounts: [{name: disk, mountPath: /disk}, {name: disk, mountPath: /part, subPath: part},
          {name: memory, mountPath: /memory}]'

with_volumes() {
    echo "  securityContext: {fsGroup: 2000}"
    echo "  volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]"
    echo "  initContainers:"
    container prepare "echo $revision >/part/file; echo $revision >/memory/file" ", $mounts"
    echo "  containers:"
    container main "[ \$(cat /disk/part/file) = $revision ] && [ \$(cat /memory/file) = $revision ] || exit 9; $STAY" ", $mounts"
}

# Longer than a page, so that a power cut may leave half of the file.
long() {
    plain
    awk 'BEGIN { for (i = 0; i < 120; i++) print "# this line is here so that the file takes more than one block of the disk " i }'
}

# whole FILE: pod and revision of a complete manifest.
whole() { tail -n1 "$1" 2>/dev/null | sed -n 's/^# whole //p'; }

wanted() { for file in "$MANIFESTS"/*.yaml; do whole "$file"; done; }

# The numbers of incomplete manifests.
broken() {
    for file in "$MANIFESTS"/*.yaml; do
        [ ! -e "$file" ] || [ -n "$(whole "$file")" ] || echo "$file" | tr -dc '0-9\n'
    done
}

mend_manifests() { for number in $(broken); do write_manifest "$number"; done; }

# --- checks after every boot

# Pods that the agent shows as ready, with their revisions.
ready() {
    coracle pods -o json | jq -r '.items[] | select(any(.status.conditions[]?; .type == "Ready" and .status == "True")) |
        "\(.metadata.name | rtrimstr("-guest")) \(.metadata.labels.rev)"'
}

all_run() { [ -z "$(missing_pods)" ]; }
missing_pods() {
    ready >/run/ready 2>/dev/null || true
    wanted | grep -vxFf /run/ready | tr '\n' ' '
}

show_restarts() {
    coracle pods -o json | jq -r '.items[] | "\(.metadata.uid) \([.status.containerStatuses[]?.restartCount] | add // 0)"'
}

note_restarts() { show_restarts | while read -r uid count; do say "restarts $uid $count"; done; }

# SEEN has the restart counts of earlier boots.
check_restarts() {
    show_restarts >/run/restarts
    # shellcheck disable=SC2153
    for seen in $SEEN; do
        count=$(sed -n "s/^${seen%=*} //p" /run/restarts)
        [ -z "$count" ] || [ "$count" -ge "${seen#*=}" ] || fail "the restart count of ${seen%=*} fell from ${seen#*=} to $count"
    done
}

# Finds containers, processes, directories, logs and mounts of pods that do not exist or of earlier runs.
nothing_is_left_over() {
    # If a power cut destroyed containerd's directory of a container, containerd keeps its name forever and hides it
    # from the CRI. The word "none" keeps the pattern file from being empty, which would match everything.
    { echo none; sed -n 's/.*msg="Failed to load container \\"\([0-9a-f]*\)\\".*/\1/p' "$LOGS/containerd.log"; } >/run/lost
    coracle pods -o json >/run/pods
    jq -r '.items[].metadata.uid' /run/pods | sort >/run/uids
    {
        differs "pods" "$(jq -r '.items[] | "\(.metadata.name | rtrimstr("-guest")) \(.metadata.labels.rev)"' /run/pods | sort)" "$(wanted | sort)"
        differs "directories" "$(in_folder /var/lib/kubelet/pods)" "$(cat /run/uids)"
        differs "logs" "$(in_folder /var/log/pods | sed 's/.*_//' | sort)" "$(cat /run/uids)"
        differs "mounts" "$(sed -n 's,^[^ ]* /var/lib/kubelet/pods/\([^/]*\)/.*,\1,p' /proc/mounts | sort -u | grep -vxFf /run/uids)" ""
        differs "containers" "$(ctr -n k8s.io containers ls -q "$(sed 's/.*/labels."io.kubernetes.pod.uid"!=&/' /run/uids | tr '\n' , | sed 's/,$//')" | grep -vxFf /run/lost)" ""
        differs "number of tasks" "$(in_folder "$TASKS" | wc -l)" "$(jq '[.items[] | 1 + (.status.containerStatuses | length)] | add // 0' /run/pods)"
    } >/run/left
    [ ! -s /run/left ]
}

differs() { [ "$2" = "$3" ] || echo "$1:" "$2" "instead of" "$3" | tr '\n' ' '; }

in_folder() { find "$1" -mindepth 1 -maxdepth 1 | sed 's,.*/,,' | sort; }

unlogged_corruption() {
    find /var/lib/kubelet -xdev -name '*.corrupt' | while read -r file; do
        grep -qF "$file" "$LOGS/$TEST/agent.log" || echo "$file"
    done
}

# --- the churn

# random N: sets R to a number from 0 to N - 1.
random() {
    SEED=$(((SEED * 1103515245 + 12345) & 0x7fffffff))
    R=$(((SEED >> 8) % $1))
}

churn() {
    random $PODS
    number=$((R + 1))
    random 9
    case $R in
        0 | 1 | 2) write_manifest "$number" ;;
        3) rm -f "$MANIFESTS/p$number.yaml" ;;
        4) rm -f "$MANIFESTS/p$number.yaml"; write_manifest "$number" ;;
        5 | 6) kill_a_container ;;
        7) kill_agent; launch_agent ;;
        8) sync ;;
    esac
    random 6
    sleep 0.$R
    note_restarts 2>/dev/null || true
}

# write_manifest NUMBER: writes the file like an editor, a copy or a slow writer.
write_manifest() {
    revision=$((revision + 1))
    manifest "$1" >/run/manifest
    file=$MANIFESTS/p$1.yaml
    random 4
    case $R in
        0) cp /run/manifest "/etc/kubernetes/p$1.new"; mv "/etc/kubernetes/p$1.new" "$file" ;;
        1) cp /run/manifest "/etc/kubernetes/p$1.new"; sync "/etc/kubernetes/p$1.new"; mv "/etc/kubernetes/p$1.new" "$file" ;;
        2) cat /run/manifest >"$file" ;;
        3)
            head -c 300 /run/manifest >"$file"
            sync "$file"
            sleep 0.1
            tail -c +301 /run/manifest >>"$file"
            ;;
    esac
}

kill_a_container() {
    set -- "$TASKS"/*/init.pid
    [ -e "$1" ] || return 0
    random $#
    shift $R
    kill -KILL "$(cat "$1")" 2>/dev/null || true
}

main
