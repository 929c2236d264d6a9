# shellcheck shell=sh
# guests: x86_64-systemd
# packages
# limit: 400
# full
# Stand-ins for the Kubernetes packages, with the same paths.
upstream_kubelet() {
    mkdir -p /run/kubelet/usr/bin /run/kubelet/usr/lib/systemd/system /run/kubelet/etc/default /run/kubelet/var/lib/kubelet
    printf '#!/bin/sh\nexec sleep 100000\n' >/run/kubelet/usr/bin/kubelet
    chmod 755 /run/kubelet/usr/bin/kubelet
    printf '[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n[Install]\nWantedBy=multi-user.target\n' \
        >/run/kubelet/usr/lib/systemd/system/kubelet.service
    : >/run/kubelet/etc/default/kubelet
    : >/run/kubelet/var/lib/kubelet/.kubelet-keep
    pack kubelet 1.36.0-1.1
}
kubeadm() {
    mkdir -p /run/kubeadm/usr/lib/systemd/system/kubelet.service.d
    cp systemd/kubelet.service.d/10-kubeadm.conf /run/kubeadm/usr/lib/systemd/system/kubelet.service.d/
    pack kubeadm 1.29.0-1.1 'Depends: kubelet (>= 1.19.0)'
}
states() { echo "$(systemctl is-enabled "$1" 2>&1) $(systemctl is-active "$1")"; }
# runs_on WHAT: after WHAT the agent of either service has the same container.
runs_on() {
    wait_ready web
    expect_equal "the container after $1" "$(container_id web)" "$id"
    expect_equal "its restarts after $1" "$(restarts web)" 0
}

apt_get install ./packages/coracle_*.deb
set_cgroup_driver
simple_pod web | apply web
wait_ready web
id=$(container_id web)

# From coracle.service to kubelet.service.
echo 'KUBELET_EXTRA_ARGS="--config /etc/coracle/config.yaml"' >/etc/default/kubelet
apt_get install ./packages/coracle-kubelet_*.deb
expect_equal "kubelet.service" "$(states kubelet)" "enabled active"
expect_equal "coracle.service" "$(states coracle)" "disabled inactive"
kubelet --version | grep -q '^Kubernetes v1\.' || fail "kubelet --version says $(kubelet --version)"
runs_on "the installation of coracle-kubelet"
newer 98.1
apt_get install /run/98.1/coracle.deb /run/98.1/coracle-kubelet.deb
expect_equal "kubelet.service after an upgrade" "$(states kubelet)" "enabled active"
expect_equal "coracle.service after an upgrade" "$(states coracle)" "disabled inactive"
expect_equal "the program that runs" "$(readlink "/proc/$(systemctl show --property MainPID --value kubelet)/exe")" /usr/bin/coracle
runs_on "an upgrade"

# kubeadm's package contains a drop-in for the service. Both packages can be installed together.
kubeadm
apt_get install /run/kubeadm.deb
systemctl daemon-reload
systemctl show --property ExecStart kubelet | grep -q KUBELET_KUBEADM_ARGS || fail "the drop-in of kubeadm is not in force"
apt_get purge kubeadm
systemctl daemon-reload

# Back to coracle.service.
apt_get purge coracle-kubelet
for path in /usr/bin/kubelet /usr/lib/systemd/system/kubelet.service /etc/systemd/system/multi-user.target.wants/kubelet.service \
    /usr/share/man/man8/kubelet.8.gz /usr/share/doc/coracle-kubelet; do
    if [ -e $path ] || [ -L $path ]; then fail "left behind: $path"; fi
done
expect_equal "coracle.service when it is the node's again" "$(states coracle)" "enabled active"
runs_on "the purge of coracle-kubelet"
rm /etc/default/kubelet
apt_get purge coracle
no_containers || fail "containers run on after the purge"

# An upstream kubelet keeps its node until coracle-kubelet is installed.
upstream_kubelet
apt_get install /run/kubelet.deb
systemctl --quiet enable --now kubelet
apt_get install ./packages/coracle_*.deb
expect_equal "coracle.service beside a kubelet" "$(states coracle)" "disabled inactive"
expect_equal "the kubelet" "$(states kubelet)" "enabled active"
apt_get install ./packages/coracle-kubelet_*.deb
! dpkg-query --show --showformat '${db:Status-Status}' kubelet 2>/dev/null | grep -qx installed || fail "the upstream kubelet is still installed"
expect_equal "the link" "$(readlink /usr/bin/kubelet)" coracle
expect_equal "kubelet.service" "$(states kubelet)" "enabled active"
apt_get purge coracle-kubelet coracle kubelet
