# shellcheck shell=sh
# guests: x86_64-systemd
# alone
# limit: 300
ln -s coracle /usr/bin/kubelet
install_agent
cp -r systemd/kubelet.service systemd/kubelet.service.d /usr/lib/systemd/system/
systemctl daemon-reload
case $(kubelet --version) in
    "Kubernetes v1."*.*) ;;
    *) fail "kubeadm does not understand '$(kubelet --version)'" ;;
esac

# Until kubeadm has written its files, systemd keeps restarting the service, as with the upstream kubelet.
! systemctl start kubelet 2>/dev/null || fail "the service starts without kubeadm's files"
journalctl --unit kubelet | grep -q '/var/lib/kubelet/config.yaml' || fail "the log does not name the missing file"

# kubeadm_join: what `kubeadm join` does on the node: it stops the service, writes its files, starts it and waits for
# its health. The API server is away, as while a control plane starts.
kubeadm_join() {
    systemctl stop kubelet
    mkdir -p /var/lib/kubelet /etc/kubernetes/pki
    cat >/etc/kubernetes/bootstrap-kubelet.conf <<'CONFIG'
apiVersion: v1
kind: Config
clusters: [{name: kubernetes, cluster: {server: "https://127.0.0.1:6443"}}]
contexts: [{name: tls-bootstrap-token-user@kubernetes, context: {cluster: kubernetes, user: tls-bootstrap-token-user}}]
current-context: tls-bootstrap-token-user@kubernetes
users: [{name: tls-bootstrap-token-user, user: {token: abcdef.0123456789abcdef}}]
CONFIG
    # kubeadm applies this file to config.yaml; the kubelet does not read it.
    echo 'containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock"' >/var/lib/kubelet/instance-config.yaml
    # kubeadm itself names a clientCAFile, which it has written before.
    sed -e '/clientCAFile/d' -e 's,^containerRuntimeEndpoint: .*,containerRuntimeEndpoint: unix:///run/containerd/containerd.sock,' \
        -e '/^resolvConf/d' kubeadm-1.36.yaml >/var/lib/kubelet/config.yaml
    echo 'KUBELET_KUBEADM_ARGS="--hostname-override=guest --node-labels=site=one --register-with-taints=site=one:NoSchedule"' \
        >/var/lib/kubelet/kubeadm-flags.env
    systemctl daemon-reload
    systemctl start kubelet || fail "the service does not start: $(journalctl --unit kubelet --lines 5 --output cat)"
    wait_for "the kubelet is healthy" 60 is_healthy
}
is_healthy() { [ "$(wget -q -O - http://127.0.0.1:10248/healthz)" = ok ]; }

# kubeadm_reset: what `kubeadm reset` does on the node, in its order.
kubeadm_reset() {
    systemctl stop kubelet
    # It unmounts what is below the directory, ends all pods of the runtime, and empties the directories.
    while read -r _ mount _; do
        case $mount in /var/lib/kubelet/*) umount "$mount" || fail "$mount cannot be unmounted" ;; esac
    done </proc/self/mounts
    for container in $(ctr -n k8s.io tasks ls -q); do ctr -n k8s.io tasks kill -s SIGKILL "$container" || true; done
    wait_for "no process of a container runs" 30 no_containers_run
    rm -rf /var/lib/kubelet/* /var/lib/kubelet/.[!.]* /etc/kubernetes/manifests/* /etc/kubernetes/pki/*
    rm -f /etc/kubernetes/*.conf
    expect_equal "what is left in the directory" "$(ls -A /var/lib/kubelet)" ""
}
no_containers_run() { [ -z "$(ctr -n k8s.io tasks ls | grep RUNNING)" ]; }

kubeadm_join
with_volume() {
    apply "$1" <<END
$(simple_pod "$1" "$STAY" "      volumeMounts: [{name: fast, mountPath: /fast}]
  volumes: [{name: fast, emptyDir: {medium: Memory}}]")
END
}
with_volume etcd
wait_ready etcd
grep -q ' /var/lib/kubelet/pods/' /proc/self/mounts || fail "the volume is not mounted"
id=$(container_id etcd)

# `kubeadm upgrade node` writes the same files again and restarts the service.
kubeadm_join
wait_ready etcd
expect_equal "the container after an upgrade" "$(container_id etcd)" "$id"

kubeadm_reset
kubeadm_join
expect_equal "the pods of the node" "$(coracle pods -o json | jq '.items | length')" 0
with_volume etcd
wait_ready etcd
