# shellcheck shell=sh
# guests: x86_64-systemd
# alone
# limit: 180
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

mkdir -p /var/lib/kubelet
cat >/var/lib/kubelet/config.yaml <<'CONFIG'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /etc/kubernetes/manifests
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
rotateCertificates: true
healthzBindAddress: 127.0.0.1
healthzPort: 10248
CONFIG
echo 'KUBELET_KUBEADM_ARGS="--pod-infra-container-image=localhost/coracle/pause:1"' >/var/lib/kubelet/kubeadm-flags.env
simple_pod etcd | apply etcd
wait_for "the service starts by itself" 60 systemctl --quiet is-active kubelet
wait_ready etcd
