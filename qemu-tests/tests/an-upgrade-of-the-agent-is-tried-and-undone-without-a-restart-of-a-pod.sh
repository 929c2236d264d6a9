# shellcheck shell=sh
# guests: x86_64-systemd
# limit: 300
SLOTS=/var/lib/kubelet/coracle/agent/slots
start_agent
simple_pod web | apply web
wait_ready web
container=$(container_id web)

executable() { readlink "/proc/$(systemctl show --property MainPID --value coracle)/exe"; }
last() { coracle upgrade status -o json | jq -r ".last.$1"; }
trial_ended() { [ "$(coracle upgrade status -o json | jq -r .trial)" = null ]; }
upgrade_runs() { case $(executable) in "$SLOTS"/*/coracle) ;; *) return 1 ;; esac }
installed_runs() { [ "$(executable)" = /usr/bin/coracle ]; }
same_container() {
    wait_ready web
    expect_equal "the container" "$(container_id web)" "$container"
}

# Another version: the same program with another digest.
cp /usr/bin/coracle /run/candidate
echo other >>/run/candidate
coracle upgrade /run/candidate --unsigned --within 10s --wait || fail "rejected: $(coracle upgrade status)"
upgrade_runs || fail "$(executable) runs"
same_container
expect_equal "restarts by systemd" "$(systemctl show --property NRestarts --value coracle)" 0

# A restart of the service and the death of the process keep the upgrade.
systemctl restart coracle
same_container
upgrade_runs || fail "$(executable) runs after a restart"
kill -KILL "$(systemctl show --property MainPID --value coracle)"
sleep 1
same_container
upgrade_runs || fail "$(executable) runs after SIGKILL"

# candidate SCRIPT: puts a program on trial that `coracle upgrade` would refuse.
candidate() {
    printf '#!/bin/sh\n%s\n' "$1" >/run/script
    digest=$(sha256sum /run/script | cut -d' ' -f1)
    mkdir -p "$SLOTS/$digest"
    install -m 700 /run/script "$SLOTS/$digest/coracle"
    systemctl stop coracle
    coracle upgrade status -o json | jq --arg digest "$digest" '.trial = {
        subject: {program: {digest: $digest, version: "9.9.9"}}, starts: 0, withinSeconds: 5,
        before: {boot: "", runs: [], connected: false, url: false}}' >/run/record
    { echo "# coracle sha256:$(sha256sum /run/record | cut -d' ' -f1)" && cat /run/record; } >"${SLOTS%/*}/record.json"
    systemctl start coracle --no-block
}

# One that crashes, one that hangs, and one that reaches no runtime.
# shellcheck disable=SC2016
for script in 'exit 1' 'exec sleep 1000' 'exec /usr/bin/coracle "$@" --container-runtime-endpoint unix:///nowhere'; do
    candidate "$script"
    wait_for "the trial of $script ends" 120 trial_ended
    expect_equal "the verdict about $script" "$(last accepted)" false
    # The last script gives the process other arguments, with which it executes the launcher.
    systemctl restart coracle
    same_container
    upgrade_runs || fail "$(executable) runs after $script"
done

# A configuration with which no agent starts.
cp /etc/coracle/config.yaml /run/former.yaml
{ cat /run/former.yaml; echo 'systemReserved: {memory: 100Ti}'; } >/run/bad.yaml
! coracle config apply /run/bad.yaml --within 5s --wait || fail "a bad configuration was accepted"
cmp /etc/coracle/config.yaml /run/former.yaml || fail "the former configuration is not restored"
same_container

coracle upgrade rollback
wait_for "the installed program runs" 30 installed_runs
same_container
remove web
wait_for "the pod is gone" 30 is_gone web
