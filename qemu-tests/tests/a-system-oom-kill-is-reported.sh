# shellcheck shell=sh
# guests: x86_64
# limit: 120
start_agent
simple_pod victim | apply victim
wait_ready victim
# Triggers the kernel's OOM killer.
echo f >/proc/sysrq-trigger
is_reported() { coracle events | grep SystemOOM | grep -q 'System OOM encountered, victim process: .*, pid: [0-9]'; }
wait_for "the SystemOOM event is recorded" 60 is_reported
