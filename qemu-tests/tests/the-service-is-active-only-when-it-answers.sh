# shellcheck shell=sh
# guests: x86_64-systemd
# limit: 180
# The process is stopped before it can notify systemd: it runs but is not ready.
# shellcheck disable=SC2016
unit_settings ExecStart= 'ExecStart=/bin/sh -c "kill -STOP $$$$; exec /usr/bin/coracle --config /etc/coracle/config.yaml"'
prepare_agent
systemctl start --no-block coracle
is_stopped() { held=$(agent_pid) && grep -q '^State:.T' "/proc/$held/status"; }
wait_for "the process is stopped" 30 is_stopped
expect_equal "the service that has not said that it is ready" "$(systemctl is-active coracle)" activating
kill -CONT "$held"
wait_for "the service is active" 60 systemctl --quiet is-active coracle
coracle pods >/dev/null || fail "the service is active but does not answer"
expect_equal "its process" "$(agent_pid)" "$held"
systemctl stop coracle
rm -r /run/systemd/system/coracle.service.d
systemctl daemon-reload

# With a configuration error the service never becomes active. systemd keeps restarting it, and it becomes active once
# the error is fixed.
sed -i 's/^cgroupDriver: .*/cgroupDriver: 5/' /etc/coracle/config.yaml
! systemctl start coracle 2>/run/refused || fail "the service is active with a wrong setting"
was_tried_twice() { [ "$(systemctl show --property NRestarts --value coracle)" -ge 2 ]; }
wait_for "the service is started again" 60 was_tried_twice
service_log --priority err | grep -q 'cgroupDriver' || fail "the log does not name the wrong setting"
sed -i 's/^cgroupDriver: .*/cgroupDriver: systemd/' /etc/coracle/config.yaml
wait_for "the service starts by itself" 60 systemctl --quiet is-active coracle
coracle pods >/dev/null || fail "the service is active but does not answer"
