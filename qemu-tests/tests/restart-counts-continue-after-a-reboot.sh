# shellcheck shell=sh
# short: x86_64
# boots: 2
if [ "$BOOT" = 1 ]; then
    simple_pod kept | apply kept
    simple_pod other | apply other
    start_agent
    wait_ready kept
    wait_ready other
    kill -KILL "$(container_pid kept)"
    wait_restarts kept 1
    pod kept .metadata.uid >/var/lib/uid
else
    start_agent
    wait_ready kept
    wait_ready other
    expect_equal "restarts of the pod that was killed once" "$(restarts kept)" 2
    expect_equal "restarts of the other pod" "$(restarts other)" 1
    expect_equal "the uid" "$(pod kept .metadata.uid)" "$(cat /var/lib/uid)"
    remove kept
    remove other
    wait_for "the pods are gone" 60 is_gone kept
fi
