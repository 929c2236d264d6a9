# shellcheck shell=sh
# guests: x86_64-systemd aarch64-systemd
# packages
# boots: 2
# limit: 300
# full
if [ "$BOOT" = 1 ]; then
    # The default of Debian's containerd package.
    sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml
    systemctl restart containerd
    apt_get install ./packages/coracle_*.deb
    systemctl --quiet is-active coracle || fail "the service does not run after the installation"
    # The administrator changes a setting.
    echo 'CORACLE_ARGS="-v=4"' >>/etc/default/coracle
    simple_pod web | apply web
    wait_ready web
else
    # The service starts at boot by itself.
    wait_for "the service runs" 60 systemctl --quiet is-active coracle
    wait_ready web
    expect_equal "restarts of the pod after a boot" "$(restarts web)" 1
    id=$(container_id web) inside=$(container_pid web) agent=$(agent_pid)

    # runs_on WHAT: after WHAT a new agent has the same container with the same process.
    runs_on() {
        wait_for "another agent runs after $1" 30 is_another "$agent"
        agent=$(agent_pid)
        wait_ready web
        expect_equal "the container after $1" "$(container_id web)" "$id"
        expect_equal "its process after $1" "$(container_pid web)" "$inside"
        expect_equal "its restarts after $1" "$(restarts web)" 1
    }
    systemctl restart coracle
    runs_on "a restart of the service"
    apt_get install --reinstall ./packages/coracle_*.deb
    runs_on "a reinstallation"
    newer 98.1
    apt_get install /run/98.1/coracle.deb
    expect_equal "the version" "$(package_version coracle)" 98.1
    runs_on "an upgrade"
    tr '\0' ' ' <"/proc/$agent/cmdline" | grep -q -e '-v=4' || fail "an upgrade has undone a setting"

    # A disabled service stays disabled.
    systemctl --quiet disable --now coracle
    newer 98.2
    apt_get install /run/98.2/coracle.deb
    expect_equal "the service that was turned off" "$(systemctl is-enabled coracle) $(systemctl is-active coracle)" "disabled inactive"
    kill -0 "$inside" || fail "the container ended with an upgrade"
    systemctl --quiet enable --now coracle
    runs_on "the service was off"
    remove web
    wait_for "the pod is gone" 60 is_gone web
    apt_get purge coracle
    expect_equal "control groups of pods after a purge" "$(find /sys/fs/cgroup -name 'kubepods*')" ""
fi
