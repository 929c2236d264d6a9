# shellcheck shell=sh
# guests: x86_64
# alone
# limit: 200
# full
# The root file system of the guest is read-only; that of a board is not.
# shellcheck source=qemu-tests/guest/board-steps.sh
. guest/board-steps.sh
for folder in etc usr; do
    mkdir -p "/tmp/$folder/upper" "/tmp/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=/tmp/$folder/upper,workdir=/tmp/$folder/work" "/$folder"
done
mkdir -p /etc/default
# The guest has no watchdog.
echo 'CORACLE_WATCHDOG=' >/etc/default/coracle
run_board_steps "BusyBox init,"
