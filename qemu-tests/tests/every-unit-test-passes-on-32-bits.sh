# shellcheck shell=sh
# guests: armv7
# unit-tests
# limit: 900
# full
# Counters, sizes and times that do not fit into a word of this machine, among everything else.
found=$LOGS/$TEST/unit-tests
chmod +x unit-tests
if ! ./unit-tests >"$found" 2>&1; then
    tail -n 100 "$found"
    fail "$(grep '^test result' "$found"); they are $(sed -n 's/^test \(.*\) \.\.\. FAILED.*/\1/p' "$found" | tr '\n' ' ')"
fi
passed=$(sed -n 's/^test result: ok. \([1-9][0-9]*\) passed.*/\1/p' "$found")
[ -n "$passed" ] || fail "no test has run"
figure unit-tests-passed "$passed" - tests
