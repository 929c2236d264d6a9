# shellcheck shell=sh
# guests: x86_64
# cuts: 6
# short-cuts: 2
# limit: 300
# Candidates are put on trial one after another: good ones, one that crashes, one that hangs, one for another machine, and
# one that runs and no longer reaches the manifests of its server. The power is cut at a random moment. After each boot an
# agent runs, the trial ends, and the pod runs. Within a boot its container stays the same one.
# CORACLE_QEMU_CUTS=100 makes a hundred rounds.

SLOTS=/var/lib/kubelet/coracle/agent/slots
SOCKET=/run/coracle/coracle.sock
URL=http://127.0.0.1:8080/board.yaml

main() {
    serve_manifests
    mkdir -p "$LOGS/$TEST"
    supervise >>"$LOGS/$TEST/agent.log" 2>&1 &
    supervisor=$!
    if [ "$BOOT" = 1 ]; then
        within 60 coracle pods >/dev/null 2>&1 || fail "the agent does not answer"
        simple_pod web | apply web
        sync
    fi
    begun=$(uptime_seconds)
    say "recovering: $(status | tr '\n' ' ')"
    ask_for_cut recovering
    within 90 is_ready web || fail "the pod does not run: $(status)"
    say "running $(uptime_seconds) $(elapsed_since "$begun")"
    container=$(container_id web)
    wait_for "the trial before the cut ends" 120 trial_ended
    same_arguments
    same_container
    if [ "$BOOT" != "$BOOTS" ]; then
        ask_for_cut churning
        number=$((SEED % 5))
        while :; do
            try_candidate "$number"
            number=$(((number + 1) % 5))
        done
    fi
    for number in 0 1 2 3 4; do try_candidate "$number"; done
    coracle upgrade rollback
    wait_for "the installed program runs" 30 installed_runs
    same_container
    kill "$supervisor"
}

ask_for_cut() {
    [ "${CUT_WHEN-}" != "$1" ] || { sleep "$CUT_AFTER"; say "cut"; } &
}

# As an init system: starts the agent again after each end.
supervise() {
    while :; do
        echo "=== start in boot $BOOT"
        coracle --manifest-url "$URL" --http-check-frequency 1s || true
        sleep 0.2
    done
}

serve_manifests() {
    mkdir -p /run/www
    printf 'apiVersion: v1\nkind: PodList\nitems: []\n' >/run/www/board.yaml
    httpd -p 127.0.0.1:8080 -h /run/www
}

status() { coracle upgrade status 2>&1; }
trial() { coracle upgrade status -o json | jq -r ".$1"; }
trial_ended() { coracle pods >/dev/null 2>&1 && [ "$(trial trial)" = null ]; }
executable() { readlink "/proc/$(agent_pid)/exe"; }
installed_runs() { [ "$(executable)" = "$(command -v coracle)" ] || [ "$(executable)" = "$(readlink -f "$(command -v coracle)")" ]; }

url_answers() {
    [ "$(coracle status -o json | jq -r '.sources[] | select(.name == "http") | "\(.ready) \(.errors | length)"')" = "true 0" ]
}

same_container() {
    wait_ready web
    expect_equal "the container" "$(container_id web)" "$container"
}

# try_candidate NUMBER: puts a candidate on trial and waits for the verdict.
try_candidate() {
    expected=false
    case $1 in
        0) expected=true && other_program "$(uptime_seconds)" ;;
        1) printf '#!/bin/sh\nexit 1\n' >/run/candidate ;;
        2) printf '#!/bin/sh\nexec sleep 1000\n' >/run/candidate ;;
        # The header of riscv64.
        3) { head -c 18 "$(command -v coracle)" && printf '\363\000' && tail -c +21 "$(command -v coracle)"; } >/run/candidate ;;
        4) printf '#!/bin/sh\nexec coracle --manifest-url http://127.0.0.1:9/x\n' >/run/candidate ;;
    esac
    digest=$(sha256sum /run/candidate | cut -d' ' -f1)
    # As `coracle upgrade` stores it, which refuses most of these.
    mkdir -p "$SLOTS/$digest"
    install -m 700 /run/candidate "$SLOTS/$digest/coracle.new"
    sync "$SLOTS/$digest/coracle.new"
    mv "$SLOTS/$digest/coracle.new" "$SLOTS/$digest/coracle"
    wait_for "the manifests of the server are read" 30 url_answers
    within 30 arm "$digest" || fail "candidate $1 is not on trial: $(tail -n1 /run/answer)"
    wait_for "the trial of candidate $1 ends" 120 trial_ended
    [ "$BOOT" != "$BOOTS" ] || expect_equal "the verdict about candidate $1" "$(trial last.accepted)" "$expected"
    same_arguments
    same_container
}

# The last candidate executes the launcher with its own arguments.
same_arguments() {
    grep -q "$URL" "/proc/$(agent_pid)/cmdline" || kill -KILL "$(agent_pid)"
}

other_program() {
    cp "$(command -v coracle)" /run/candidate
    echo "$1" >>/run/candidate
}

arm() {
    printf 'POST /agent?what=program&digest=%s&version=9.9.9&within=3 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" |
        socat -T 10 -,ignoreeof "UNIX-CONNECT:$SOCKET" >/run/answer 2>&1
    grep -q '^HTTP/1.1 200 ' /run/answer
}

main
