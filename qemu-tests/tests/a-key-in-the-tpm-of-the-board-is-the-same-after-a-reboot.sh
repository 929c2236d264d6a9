# shellcheck shell=sh
# guests: x86_64
# unit-tests
# tpm
# boots: 2
# limit: 300
# full
# The kernel's driver and its resource manager, which the other tests of the key do without.
[ -c /dev/tpmrm0 ] || fail "the kernel has no TPM"
chmod +x unit-tests
test=kubelet::certificates::tpm_key::tests::device_of_the_kernel_signs
CORACLE_TPM=/dev/tpmrm0 ./unit-tests --ignored --exact $test --nocapture >found 2>&1 || fail "$(cat found)"
key=$(sed -n 's/.*public key: //p' found)
[ -n "$key" ] || fail "no test has run"
if [ "$BOOT" = 1 ]; then
    echo "$key" >/var/lib/tpm-key
else
    expect_equal "the public key" "$key" "$(cat /var/lib/tpm-key)"
fi
