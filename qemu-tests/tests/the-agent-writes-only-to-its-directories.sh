# shellcheck shell=sh
# guests: x86_64 aarch64 armv7
# short: x86_64
# limit: 200
# The root file system is read-only in these guests. The trace shows attempts to write elsewhere.
trace=/var/log/coracle-tests/$TEST/calls
mkdir -p "${trace%/*}"
LAUNCHER="strace -f -qq -o $trace -e trace=file,desc" start_agent
simple_pod traced | apply traced
wait_ready traced 120
remove traced
wait_for "the pod is gone" 120 is_gone traced
! grep EROFS "$trace" || fail "the agent tries to write to the read-only file system"
# Paths that are opened for writing, created, renamed or removed.
sed -n -e 's/.*\(O_WRONLY\|O_RDWR\|O_CREAT\).*/&/p' -e '/ \(mkdir\|rename\|unlink\|rmdir\|symlink\|link\|mknod\)/p' "$trace" |
    sed -n 's/^[^"]*"\(\/[^"]*\)".*/\1/p' | sort -u |
    grep -v '^/\(run\|sys/fs/cgroup\|var/lib/kubelet\|var/log/pods\|var/log/containers\|proc\|dev/null\)\(/\|$\)' >/run/elsewhere || true
[ ! -s /run/elsewhere ] || fail "the agent writes to $(tr '\n' ' ' </run/elsewhere)"
