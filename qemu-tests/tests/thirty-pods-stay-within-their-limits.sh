# shellcheck shell=sh
# full
# alone
# limit: 400
start_agent
begun=$(uptime_seconds)
number=0
while [ $number -lt 30 ]; do
    number=$((number + 1))
    simple_pod "pod$number" | apply "pod$number"
    [ $number != 10 ] || { wait_all_ready 10 120 && figure rss-with-10-pods "$(agent_rss)" 6144 KiB; }
done
wait_all_ready 30 240
figure until-30-pods-are-ready "$(elapsed_since "$begun")" - s
figure rss-with-30-pods "$(agent_rss)" 6144 KiB
at_rest 60
figure rss-with-30-pods-after-a-minute "$(agent_rss)" 6144 KiB
figure wake-ups-with-30-pods "$WAKES_PER_SECOND" 1 "per s"
figure cpu-with-30-pods "$CPU_PERCENT" 0.5 "% of a core"
figure bytes-written-with-30-pods "$WRITTEN" 0 bytes
