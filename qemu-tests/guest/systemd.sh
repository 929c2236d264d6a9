# shellcheck shell=sh
# In a guest with systemd the agent is a service, as on any such machine: what init and library.sh do otherwise.

export PATH=/usr/sbin:/usr/bin:/usr/local/lib/busybox

# --- init

mounts() { mkdir -p "$LOGS" "$MANIFESTS"; }

start_containerd() { within 60 ctr version >/dev/null 2>&1; }

turn_off() {
    if [ -n "$TESTS" ]; then
        journalctl --boot --output=short-monotonic --no-hostname >"$LOGS/journal.$BOOT"
    else
        rm -rf "$LOGS"
    fi
    say "end"
    systemctl poweroff
    sleep 60
}

# --- the agent

# The unit and its settings as they are installed; containerd tells no cgroup driver, so the configuration does.
install_agent() {
    install -m 755 coracle /usr/bin/coracle
    install -m 644 systemd/coracle.service /usr/lib/systemd/system/
    mkdir -p /etc/coracle
    cp systemd/config.yaml /etc/coracle/
    systemctl daemon-reload
}

# What has to be there before the service can start; flags are for CORACLE_ARGS.
prepare_agent() {
    [ -e /usr/bin/coracle ] || install_agent
    grep -q '^cgroupDriver' /etc/coracle/config.yaml || echo 'cgroupDriver: systemd' >>/etc/coracle/config.yaml
    echo "CORACLE_ARGS=\"$*\"" >/etc/default/coracle
}

# unit_settings LINE...: of the service, until the test is over.
unit_settings() {
    mkdir -p /run/systemd/system/coracle.service.d
    { echo "[Service]" && printf '%s\n' "$@"; } >/run/systemd/system/coracle.service.d/test.conf
    systemctl daemon-reload
}

launch_agent() {
    prepare_agent "$@"
    systemctl start coracle
}

agent_pid() {
    main=$(systemctl show --property MainPID --value coracle) && [ "$main" != 0 ] && echo "$main"
}

stop_agent() { systemctl stop coracle; }

# It is not started again, and what a test has changed of the unit is forgotten.
kill_agent() {
    systemctl kill --kill-whom=main --signal=KILL coracle 2>/dev/null
    systemctl stop coracle
    rm -rf /run/systemd/system/coracle.service.d
    systemctl daemon-reload
}

# short_watchdog SECONDS: instead of the unit's own interval.
short_watchdog() { unit_settings "WatchdogSec=$1"; }

# is_not PID, is_another PID: of the service.
is_not() { [ ! -d "/proc/$1" ]; }
is_another() { main=$(agent_pid) && [ "$main" != "$1" ]; }

# service_log [OPTION...]: what the journal has of this boot.
service_log() { journalctl --boot --unit coracle "$@"; }

# --- packages

# apt_get COMMAND...: its output is kept; where it fails, the test has.
apt_get() {
    # shellcheck disable=SC2153
    mkdir -p "$LOGS/$TEST"
    echo "=== apt-get $*" >>"$LOGS/$TEST/apt"
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >>"$LOGS/$TEST/apt" 2>&1 </dev/null ||
        fail "apt-get $*: $(grep -m1 '^E:\|^dpkg: error' "$LOGS/$TEST/apt" || tail -n1 "$LOGS/$TEST/apt")"
}

# pack NAME VERSION [LINE OF THE CONTROL FILE...]: /run/NAME.deb, from the tree /run/NAME.
pack() {
    package=$1
    mkdir -p "/run/$package/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: a test\nDescription: a test\n' "$1" "$2" >"/run/$package/DEBIAN/control"
    shift 2
    [ $# = 0 ] || printf '%s\n' "$@" >>"/run/$package/DEBIAN/control"
    dpkg-deb -Znone --build "/run/$package" "/run/$package.deb" >/dev/null
}

# newer VERSION: the packages once more, under that version, in /run/VERSION.
newer() {
    mkdir -p "/run/$1"
    for package in packages/*.deb; do
        rm -rf /run/repacked
        dpkg-deb --raw-extract "$package" /run/repacked
        sed -i -e "s/^Version: .*/Version: $1/" -e "s/coracle (= [^)]*)/coracle (= $1)/" /run/repacked/DEBIAN/control
        name=${package##*/}
        dpkg-deb -Znone --build /run/repacked "/run/$1/${name%%_*}.deb" >/dev/null
    done
    rm -r /run/repacked
}

package_version() { dpkg-query --show --showformat '${Version}' "$1"; }

# containerd 1.6 does not tell its cgroup driver.
set_cgroup_driver() {
    echo 'cgroupDriver: systemd' >>/etc/coracle/config.yaml
    systemctl restart coracle
}
