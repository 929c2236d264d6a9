#!/bin/sh
# Stands for systemd: runs the service `kubelet` as the unit of the package and kubeadm's drop-in say.
folder=@FOLDER@ unit=@UNIT@ drop_in=@DROP_IN@
words=
for word; do case $word in -*) ;; *) words="$words ${word%.service}" ;; esac; done
is_alive() { test -s "$folder/kubelet.pid" && kill -0 "$(cat "$folder/kubelet.pid")" 2>/dev/null; }
stop() {
    is_alive || return 0
    kill "$(cat "$folder/kubelet.pid")"
    for try in $(seq 100); do is_alive || return 0; sleep 0.1; done
    return 1
}
case $words in
    " is-active kubelet") is_alive || exit 3 ;;
    " is-active "*) exit 3 ;;
    " stop kubelet") stop ;;
    " start kubelet" | " restart kubelet")
        stop
        eval "$(sed -n 's/^Environment="\([A-Z_]*\)=\(.*\)"$/\1="\2"/p' "$unit" "$drop_in")"
        for file in $(sed -n 's/^EnvironmentFile=-*//p' "$unit" "$drop_in"); do
            test ! -f "$file" || . "$file"
        done
        KUBELET_EXTRA_ARGS="@EXTRA_ARGS@"
        # An empty line discards the commands before it. A service of this type has one.
        command=$(awk '/^ExecStart=/ { line = substr($0, 11); n = line == "" ? 0 : n + 1 }
            END { if (n != 1) exit 1; print line }' "$unit" "$drop_in") || exit 4
        eval "set -- $command"
        # The package installs its program there. The machine of the test may have another one.
        test "$1" = /usr/bin/kubelet || exit 4
        shift
        setsid kubelet "$@" >>"$folder/coracle.log" 2>&1 </dev/null &
        echo $! >"$folder/kubelet.pid"
        ;;
esac
