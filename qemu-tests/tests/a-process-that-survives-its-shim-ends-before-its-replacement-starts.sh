# shellcheck shell=sh
# guests: x86_64 x86_64-systemd
# limit: 180
# Without runc, containerd reports the exit of a container whose shim was killed and leaves its processes alive, as
# containerd 2 does in any case.
start_agent
simple_pod web | apply web
wait_ready web
old=$(container_id web)
survivor=$(container_pid web)
group=$(pod_group web)
shim=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$survivor/status")
runc=$(command -v runc)
printf '#!/bin/sh\nexit 1\n' >/tmp/no-runc
chmod 755 /tmp/no-runc
mount --bind /tmp/no-runc "$runc"
kill -KILL "$shim"
exit_is_reported() { ! ctr -n k8s.io tasks list | grep -q "^$old.*RUNNING"; }
wait_for "the runtime reports the exit" 30 exit_is_reported
umount "$runc"
[ -d "/proc/$survivor/fd" ] || fail "the process has not survived"

# The next agent knows only what the runtime and the cgroups tell.
kill_agent
start_agent
is_replaced() { [ "$(container_id web)" != "$old" ] && is_ready web; }
wait_for "the container is replaced" 60 is_replaced
[ ! -e "/proc/$survivor/fd/0" ] || fail "the former process runs beside the new one"
[ ! -e "$group/$old" ] && [ ! -e "$group/cri-containerd-$old.scope" ] || fail "its cgroup is left"
grep -q "process $survivor of it still runs.* reason=ContainerSurvived" "$LOGS/$TEST/agent.log" || fail "there is no event about $survivor"

# A pod that is removed takes its survivors with it.
new=$(container_pid web)
shim=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$new/status")
old=$(container_id web)
mount --bind /tmp/no-runc "$runc"
kill -KILL "$shim"
wait_for "the runtime reports the exit" 30 exit_is_reported
umount "$runc"
remove web
pod_is_gone() { ! row web; }
wait_for "the pod is gone" 60 pod_is_gone
[ ! -e "/proc/$new/fd/0" ] || fail "a process of the removed pod runs"
