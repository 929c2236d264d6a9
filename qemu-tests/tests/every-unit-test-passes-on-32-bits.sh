# shellcheck shell=sh
# guests: armv7
# unit-tests
# limit: 900
# full
# Finds counters, sizes and times that do not fit into a 32-bit word, among others.
#
# Emulators before QEMU 10 change the base register of `ldrd r0, r1, [r0]` even if its second half faults. If a table
# crosses into a page that the process has not touched, the retried load then reads from a wrong address. Real CPUs do
# not do that. To avoid the second fault, the kernel maps all cached pages of the file at the first one.
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
echo 2097152 >/sys/kernel/debug/fault_around_bytes
cat unit-tests >/dev/null
found=$LOGS/$TEST/unit-tests
chmod +x unit-tests
if ! ./unit-tests >"$found" 2>&1; then
    tail -n 100 "$found"
    fail "$(grep '^test result' "$found"); they are $(sed -n 's/^test \(.*\) \.\.\. FAILED.*/\1/p' "$found" | tr '\n' ' ')"
fi
passed=$(sed -n 's/^test result: ok. \([1-9][0-9]*\) passed.*/\1/p' "$found")
[ -n "$passed" ] || fail "no test has run"
figure unit-tests-passed "$passed" - tests
