# shellcheck shell=sh
# guests: x86_64
# limit: 240
# On a file system with project quotas the kernel refuses what exceeds the claim, of files that were there before too.
disk=/var/claims.img claims=/var/claims
truncate -s 64M $disk
mkfs.ext4 -q -O quota,project -E quotatype=prjquota $disk
mkdir -p $claims
mount -o loop,prjquota $disk $claims
start_agent --local-path-dir $claims

# claim_of MEBIBYTES
claim_of() {
    apply data <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, uid: u1}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: ${1}Mi}}}
END
}
writer() {
    simple_pod writer "$1; $STAY" "      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"
}
size_of() { stat -c %s "$directory/$1" 2>/dev/null || echo 0; }
is_refused() { coracle logs writer 2>/dev/null | grep -q 'Disk quota exceeded'; }
capacity() { df -Pk $directory | awk 'NR == 2 { print $2 }'; }
directory=$claims/pvc-u1_default_data

# As local-path-provisioner left it, with links and pipes, which have no quota.
mkdir -p $directory/deep/er
dd if=/dev/zero of=$directory/deep/er/before bs=64k count=16 2>/dev/null
ln -s before $directory/link
mkfifo $directory/pipe
claim_of 4
writer "dd if=/dev/zero of=/data/deep/er/after bs=64k count=160" | apply writer
wait_for "the kernel refuses more than the claim" 60 is_refused
after=$(size_of deep/er/after)
[ "$after" -gt 2000000 ] && [ "$after" -lt 3145728 ] || fail "$after bytes were written beside 1 MiB of 4 MiB"

# The claim grows with its document, when a pod is set up again.
claim_of 8
writer "dd if=/dev/zero of=/data/more bs=64k count=16 && echo written" | apply writer
is_written() { coracle logs writer 2>/dev/null | grep -q '^written'; }
wait_for "the pod writes into the larger claim" 60 is_written
expect_equal "size of the second file" "$(size_of more)" 1048576

# A node without the program runs the pod, and says that its claim is not limited.
mkdir -p /tmp/bin
for program in coracle chattr; do ln -s "$(command -v $program)" /tmp/bin/$program; done
stop_agent
rm "$MANIFESTS/writer.yaml"
LAUNCHER="env PATH=/tmp/bin" start_agent --local-path-dir $claims
is_gone() { coracle pods | grep -q '^No pods' || [ -z "$(pod writer .status.phase)" ]; }
wait_for "the pod is gone" 60 is_gone
claim_of 12
writer "echo again" | apply writer
wait_ready writer
coracle describe writer | grep -q 'setquota: not installed, but required for this volume' ||
    fail "$(coracle describe writer)"
