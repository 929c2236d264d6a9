# shellcheck shell=sh
# guests: x86_64 aarch64 armv7
socat -u UNIX-RECV:/run/notify.sock OPEN:/run/notified,creat,trunc &
wait_for "the socket is there" 10 test -S /run/notify.sock
NOTIFY_SOCKET=/run/notify.sock WATCHDOG_USEC=1000000 start_agent
wait_for "the agent is ready" 10 grep -q READY=1 /run/notified
wait_for "the agent pets the watchdog" 10 grep -q WATCHDOG=1 /run/notified
stop_agent
wait_for "the agent notifies its end" 10 grep -q STOPPING=1 /run/notified
