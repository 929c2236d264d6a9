# shellcheck shell=sh
# In a guest with systemd the agent is a service. This file overrides functions of init and library.sh.

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

# Installs the unit and its settings like the package does. containerd does not report its cgroup driver, so the
# configuration sets it.
install_agent() {
    install -m 755 coracle /usr/bin/coracle
    install -m 644 systemd/coracle.service /usr/lib/systemd/system/
    mkdir -p /etc/coracle
    cp systemd/config.yaml /etc/coracle/
    systemctl daemon-reload
}

# prepare_agent [FLAG...]: installs the service and puts the flags into CORACLE_ARGS.
prepare_agent() {
    [ -e /usr/bin/coracle ] || install_agent
    grep -q '^cgroupDriver' /etc/coracle/config.yaml || echo 'cgroupDriver: systemd' >>/etc/coracle/config.yaml
    echo "CORACLE_ARGS=\"$*\"" >/etc/default/coracle
}

# unit_settings LINE...: overrides settings of the service until the end of the test.
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

# Kills the agent without a restart and drops the test's overrides of the unit.
kill_agent() {
    systemctl kill --kill-whom=main --signal=KILL coracle 2>/dev/null
    systemctl stop coracle
    rm -rf /run/systemd/system/coracle.service.d
    systemctl daemon-reload
}

# short_watchdog SECONDS: overrides the watchdog interval of the unit.
short_watchdog() { unit_settings "WatchdogSec=$1"; }

# is_not PID: no such process. is_another PID: the service has a different main process.
is_not() { [ ! -d "/proc/$1" ]; }
is_another() { main=$(agent_pid) && [ "$main" != "$1" ]; }

# service_log [OPTION...]: journal lines of the service since boot.
service_log() { journalctl --boot --unit coracle "$@"; }

# --- packages

# apt_get COMMAND...: keeps the output and fails the test if apt-get fails.
apt_get() {
    # shellcheck disable=SC2153
    mkdir -p "$LOGS/$TEST"
    echo "=== apt-get $*" >>"$LOGS/$TEST/apt"
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >>"$LOGS/$TEST/apt" 2>&1 </dev/null ||
        fail "apt-get $*: $(grep -m1 '^E:\|^dpkg: error' "$LOGS/$TEST/apt" || tail -n1 "$LOGS/$TEST/apt")"
}

# pack NAME VERSION [LINE OF THE CONTROL FILE...]: builds /run/NAME.deb from the tree /run/NAME.
pack() {
    package=$1
    mkdir -p "/run/$package/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: a test\nDescription: a test\n' "$1" "$2" >"/run/$package/DEBIAN/control"
    shift 2
    [ $# = 0 ] || printf '%s\n' "$@" >>"/run/$package/DEBIAN/control"
    dpkg-deb -Znone --build "/run/$package" "/run/$package.deb" >/dev/null
}

# newer VERSION: repacks the packages with this version into /run/VERSION.
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

# containerd 1.6 does not report its cgroup driver.
set_cgroup_driver() {
    echo 'cgroupDriver: systemd' >>/etc/coracle/config.yaml
    systemctl restart coracle
}
