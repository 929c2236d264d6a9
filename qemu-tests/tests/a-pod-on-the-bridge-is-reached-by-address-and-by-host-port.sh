# shellcheck shell=sh
start_agent
apply web <<'END'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: web
      image: localhost/coracle/busybox:1
      command: [sh, -c, "mkdir /www; hostname >/www/index.html; exec httpd -f -p 80 -h /www"]
      ports:
        - {containerPort: 80, hostPort: 8080}
END
wait_ready web
address=$(pod web .status.podIP)
case $address in 10.88.0.*) ;; *) fail "the pod's address is '$address'" ;; esac
fetch() { [ "$(wget -q -O - "http://$1/" 2>&1)" = web-guest ]; }
wait_for "the pod answers at its address" 20 fetch "$address"
wait_for "the pod answers at the host port" 20 fetch 127.0.0.1:8080
wait_for "the pod answers at the bridge's address" 20 fetch 10.88.0.1:8080
remove web
wait_for "the pod is gone" 30 is_gone web
! fetch 127.0.0.1:8080 || fail "the host's port is still open"
