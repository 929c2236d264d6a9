# shellcheck shell=sh
# guests: x86_64
start_agent
simple_pod web | apply web
wait_ready web
kill_agent
mkdir -p /sys/fs/cgroup/elsewhere
start_agent --cgroup-root /elsewhere
is_elsewhere() { case $(pod_group web) in */elsewhere/kubepods/*) ;; *) false ;; esac; }
wait_for "the pod runs in a group below the new root" 60 is_elsewhere
wait_ready web
expect_equal "restarts" "$(restarts web)" 1
# A further restart of the agent leaves the pod in that group.
kill_agent
start_agent --cgroup-root /elsewhere
sleep 3
expect_equal "restarts" "$(restarts web)" 1
