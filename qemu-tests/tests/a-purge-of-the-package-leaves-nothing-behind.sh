# shellcheck shell=sh
# guests: x86_64-systemd aarch64-systemd
# packages
# limit: 400
# full

# Lists the state of the machine, one item per line: files, contents of /etc, mounts, cgroups, units, network links
# and running programs. Leaves out files of the test, the runtime and the CNI plugins, and files that the system
# writes at any time.
inventory() {
    find / /run /tmp /dev/shm -xdev \( -path /var/lib/coracle-tests -o -path /var/log/coracle-tests -o -path '/run/traces*' \
        -o -path '/run/*.deb' -o -path /run/empty -o -path /var/lib/containerd -o -path /run/containerd -o -path /var/lib/cni \
        -o -path /var/log/journal -o -path /run/log -o -path /var/lib/systemd -o -path '/run/systemd/*' \) -prune \
        -o ! -path /run/netns -printf 'file %p %y %m %U:%G %l\n'
    find /etc -type f -exec sha256sum {} + | sed 's/^/content /'
    sed 's/^[^ ]* \([^ ]*\) .*/mount \1/' /proc/mounts
    find /sys/fs/cgroup -type d -printf 'cgroup %p\n'
    systemctl list-units --all --plain --no-legend | awk '{ print "unit", $1, $2, $3 }'
    systemctl list-unit-files --no-legend | awk '{ print "unit file", $1, $2 }'
    ip -o link | awk '$2 !~ /^cni0/ { print "link", $2 }'
    for program in /proc/[0-9]*/exe; do readlink "$program" || true; done | sort -u | sed 's/^/program /'
}

# Any package leaves some files of dpkg and apt. The manifest directory must not exist yet.
pack empty 1
apt_get install /run/empty.deb
apt_get purge empty
rmdir "$MANIFESTS" /etc/kubernetes
inventory | sort >/run/traces.before

apt_get install ./packages/coracle_*.deb
set_cgroup_driver
apply web <<'END'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
    - {name: memory, emptyDir: {medium: Memory}}
    - {name: disk, emptyDir: {}}
    - {name: theirs, hostPath: {path: /run/theirs, type: DirectoryOrCreate}}
  containers:
    - name: web
      image: localhost/coracle/busybox:1
      command: [sh, -c, 'trap exit TERM; echo kept >/theirs/file; while :; do sleep 1000 & wait; done']
      ports: [{containerPort: 80, hostPort: 8080}]
      volumeMounts:
        - {name: memory, mountPath: /memory}
        - {name: disk, mountPath: /disk}
        - {name: theirs, mountPath: /theirs}
END
simple_pod limited "$STAY" "      resources: {requests: {cpu: 100m}, limits: {memory: 48Mi}}" | apply limited
wait_ready web
wait_ready limited
id=$(container_id web) inside=$(container_pid web)

# A pod keeps running without its agent, and the next agent adopts it.
apt_get remove coracle
[ ! -e /usr/bin/coracle ] || fail "the program is still there"
expect_equal "the service" "$(systemctl is-active coracle)" inactive
[ -e /etc/coracle/config.yaml ] || fail "the removal deleted the settings"
kill -0 "$inside" || fail "the container ended with the removal"
apt_get install ./packages/coracle_*.deb
wait_ready web
expect_equal "the container after a new installation" "$(container_id web)" "$id"

apt_get purge coracle
no_containers || fail "containers run on after the purge"
[ -e "$MANIFESTS/web.yaml" ] || fail "the purge deleted a manifest"
expect_equal "what the pod wrote into the host's directory" "$(cat /run/theirs/file)" kept
rm -r "$MANIFESTS" /run/theirs
rmdir /etc/kubernetes
inventory | sort >/run/traces.after
diff /run/traces.before /run/traces.after | grep '^[<>]' >/run/traces || true
[ ! -s /run/traces ] || fail "a difference: $(head -n 40 /run/traces | tr '\n' ';')"
mkdir -p "$MANIFESTS"
