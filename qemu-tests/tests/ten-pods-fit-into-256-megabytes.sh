# shellcheck shell=sh
# memory: 256
# guests: armv7
# limit: 300
start_agent
for number in 1 2 3 4 5 6 7 8 9 10; do simple_pod "pod$number" | apply "pod$number"; done
wait_all_ready 10 200
kill -KILL "$(container_pid pod3)"
wait_restarts pod3 1
figure rss-with-10-pods "$(agent_rss)" 6144 KiB
figure memory-available "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" - KiB
! dmesg | grep -i 'out of memory' || fail "the kernel ran out of memory"
