#!/bin/sh
# Stands for systemd: runs the service `kubelet` as kubeadm's drop-in says.
folder=@FOLDER@ drop_in=@DROP_IN@
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
        eval "$(sed -n 's/^Environment="\([A-Z_]*\)=\(.*\)"$/\1="\2"/p' "$drop_in")"
        . /var/lib/kubelet/kubeadm-flags.env
        KUBELET_EXTRA_ARGS="@EXTRA_ARGS@"
        eval "set -- $(sed -n 's/^ExecStart=\(.\)/\1/p' "$drop_in")"
        shift
        setsid kubelet "$@" >>"$folder/coracle.log" 2>&1 </dev/null &
        echo $! >"$folder/kubelet.pid"
        ;;
esac
