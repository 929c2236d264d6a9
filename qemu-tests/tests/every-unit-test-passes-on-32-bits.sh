# shellcheck shell=sh
# guests: armv7
# unit-tests
# limit: 900
# full
# Counters, sizes and times that do not fit into a word of this machine, among everything else.
#
# Emulators before QEMU 10 change the base register of `ldrd r0, r1, [r0]` although its second half faults: where a table
# crosses into a page that the process has not touched, its entry is read from somewhere else. Real processors do not. So
# the kernel maps what it has of the file at the first touch, and there is no second.
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
