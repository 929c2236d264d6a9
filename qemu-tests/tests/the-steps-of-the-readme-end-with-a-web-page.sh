# shellcheck shell=sh
# guests: x86_64-systemd
# packages
# limit: 300
# full
# The steps for Debian as README.md has them, on a machine that has only the packages of Debian. VERSION is that of the
# package. There is no registry: a web server of this machine is imported under the name of the public image.
sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml
rm -f /etc/cni/net.d/*
systemctl restart containerd
wait_for "containerd answers" 60 containerd_answers

steps=$(awk '/^Debian, Ubuntu/ { found = 1 } found && /^```/ { if (inside) exit; inside = 1; next } inside' README.md)
[ -n "$steps" ] || fail "README.md has no steps for Debian"
package=$(echo packages/coracle_*_amd64.deb) version=${package#packages/coracle_} version=${version%_amd64.deb}
example=$(dpkg-deb --fsys-tarfile "$package" | tar -xO ./usr/share/doc/coracle/examples/static-web.yaml)

# web_image NAME: imports an image with busybox as a web server.
web_image() {
    mkdir -p /run/web/root/bin /run/web/root/usr/share/nginx/html
    cp /usr/bin/busybox /run/web/root/bin/
    tar -cf /run/web/layer.tar -C /run/web/root .
    layer=$(sha256sum /run/web/layer.tar | cut -d' ' -f1)
    command='["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/usr/share/nginx/html"]'
    printf '{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": %s}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
        "$command" "$layer" >/run/web/config.json
    printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "$1" >/run/web/manifest.json
    tar -cf /run/web/image.tar -C /run/web config.json layer.tar manifest.json
    ctr --namespace k8s.io images import /run/web/image.tar >/dev/null
}
web_image "$(echo "$example" | sed -n 's/^ *image: *//p')"

# The machine has neither sudo nor curl, and its user is root.
sudo() {
    if [ "$1" = apt ]; then
        shift
        apt_get "$@"
    else
        "$@"
    fi
}
curl() { wget -q -O - "$1"; }

cd packages
eval "$(echo "$steps" | sed -e "s/VERSION/$version/g" -e 's/_arm64/_amd64/')"
expect_equal "the page" "$(curl http://127.0.0.1:18084/)" "It works."
