# shellcheck shell=sh
# guests: x86_64-systemd aarch64-systemd
simple_pod kept | apply kept
start_agent
wait_ready kept
id=$(container_id kept) inside=$(container_pid kept)

# as_before WHAT: asserts that after WHAT the pod has the same container and process.
as_before() {
    wait_ready kept
    expect_equal "the container after $1" "$(container_id kept)" "$id"
    expect_equal "its process after $1" "$(container_pid kept)" "$inside"
    expect_equal "its restarts after $1" "$(restarts kept)" 0
}

systemctl stop coracle
expect_equal "the service after a stop" "$(systemctl is-active coracle)" inactive
sleep 2
kill -0 "$inside" || fail "the container ended with the service"
systemctl start coracle
as_before "a stop and a start"
systemctl restart coracle
as_before "a restart"

old=$(agent_pid)
kill -KILL "$old"
wait_for "systemd starts the agent that was killed" 30 is_another "$old"
as_before "a kill"

systemctl restart containerd
as_before "a restart of the runtime"
remove kept
wait_for "the pod is gone" 60 is_gone kept
