# shellcheck shell=sh
# guests: x86_64-systemd
# alone
# limit: 200
# full
# containerd is as Debian configures it.
# shellcheck source=qemu-tests/guest/board-steps.sh
. guest/board-steps.sh
sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml
systemctl restart containerd
wait_for "containerd answers" 60 containerd_answers
run_board_steps "Any system with systemd,"
