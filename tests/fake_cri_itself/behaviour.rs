//! The fake runtime without faults.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use coracle::platform::cri::v1::*;
use coracle::platform::rt;
use coracle::protocol::grpc::Code;

use super::{Running, TIMEOUT, chain, code, container_config, image, images, running, runtime, sandbox_config, until};
use crate::fake_cri::{FakeCri, State};

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn container_is_created_runs_and_exits_with_its_code() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        let answer = runtime.container_status(&container, true).await.unwrap();
        let pid = answer.init_pid().unwrap();
        let status = answer.status.unwrap();
        assert!(is_alive(pid));
        assert_eq!((status.state, status.finished_at), (ContainerState::Running, 0));
        assert_eq!(status.log_path, "/var/log/pods/x/web/2.log");
        assert_eq!(status.image.unwrap().image, "docker.io/library/busybox:latest");
        fake.hide_pids();
        assert_eq!(runtime.container_status(&container, true).await.unwrap().init_pid(), None);

        fake.exit("pod/web", 3);
        let answer = runtime.container_status(&container, true).await.unwrap();
        let status = answer.status.as_ref().unwrap();
        assert_eq!((status.state, status.exit_code), (ContainerState::Exited, 3));
        assert_eq!((status.reason.as_str(), answer.init_pid()), ("Error", None));
        assert!(status.finished_at >= status.started_at && status.started_at >= status.created_at);
        assert!(!is_alive(pid));

        runtime.remove_container(&container).await.unwrap();
        runtime.stop_pod_sandbox(&sandbox).await.unwrap();
        runtime.remove_pod_sandbox(&sandbox).await.unwrap();
        assert!(fake.sandboxes().is_empty() && fake.containers().is_empty());
    });
}

#[test]
fn each_of_hundreds_of_sandboxes_has_an_address() {
    let fake = FakeCri::start();
    rt::block_on(async {
        let runtime = runtime(&fake);
        let mut addresses = BTreeSet::new();
        for number in 0..260 {
            let config = sandbox_config(&format!("web-{number}"));
            let sandbox = runtime.run_pod_sandbox(&config, "").await.unwrap();
            let status = runtime.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap();
            addresses.insert(status.network.unwrap().ip.parse::<Ipv4Addr>().unwrap());
        }
        assert_eq!(addresses.len(), 260);
    });
}

#[test]
fn exit_has_its_reason() {
    rt::block_on(async {
        let Running { fake, runtime, container, .. } = running().await;
        fake.exit_for("web", 137, "OOMKilled");
        let status = runtime.container_status(&container, false).await.unwrap().status.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
        assert_eq!(fake.containers()[0].attempt(), 2);
    });
}

#[test]
fn stopping_a_sandbox_kills_its_containers() {
    rt::block_on(async {
        let Running { fake: _fake, runtime, sandbox, container } = running().await;
        let pid = runtime.pod_sandbox_status(&sandbox, true).await.unwrap().init_pid().unwrap();
        assert!(is_alive(pid));
        runtime.stop_pod_sandbox(&sandbox).await.unwrap();
        let status = runtime.container_status(&container, false).await.unwrap().status.unwrap();
        assert_eq!((status.state, status.exit_code), (ContainerState::Exited, 137));
        let status = runtime.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap();
        assert_eq!(status.state, PodSandboxState::NotReady);
        assert!(!is_alive(pid));
        let late = runtime.create_container(&sandbox, &container_config("late"), &sandbox_config("pod")).await;
        assert!(late.unwrap_err().is_not_found());
        runtime.remove_pod_sandbox(&sandbox).await.unwrap();
        assert!(runtime.list_containers(None).await.unwrap().is_empty());
    });
}

#[test]
fn after_a_reboot_pods_are_known_and_exited() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        let pid = runtime.pod_sandbox_status(&sandbox, true).await.unwrap().init_pid().unwrap();
        fake.restart(State::Ended);
        assert!(!is_alive(pid));
        let ended = runtime.container_status(&container, false).await.unwrap().status.unwrap();
        assert_eq!((ended.state, ended.exit_code), (ContainerState::Exited, 255));
        let ended = runtime.pod_sandbox_status(&sandbox, true).await.unwrap();
        assert_eq!(ended.init_pid(), None);
        assert_eq!(ended.status.unwrap().state, PodSandboxState::NotReady);
    });
}

#[test]
fn lists_return_what_matches_the_whole_filter() {
    rt::block_on(async {
        let Running { fake: _fake, runtime, sandbox, container } = running().await;
        let other = runtime.run_pod_sandbox(&sandbox_config("other"), "").await.unwrap();
        let created =
            runtime.create_container(&other, &container_config("job"), &sandbox_config("other")).await.unwrap();

        let label = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
        let all = ContainerFilter::default();
        let state = Some(ContainerStateValue { state: ContainerState::Created });
        for (filter, expected) in [
            (ContainerFilter { state, ..all.clone() }, &created),
            (ContainerFilter { label_selector: label("container", "web"), ..all.clone() }, &container),
            (ContainerFilter { pod_sandbox_id: sandbox.clone(), ..all.clone() }, &container),
            (ContainerFilter { id: created.chars().take(12).collect(), ..all.clone() }, &created),
        ] {
            let listed = runtime.list_containers(Some(&filter)).await.unwrap();
            assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [expected], "{filter:?}");
        }
        let none = ContainerFilter { id: created, label_selector: label("container", "web"), ..all };
        assert!(runtime.list_containers(Some(&none)).await.unwrap().is_empty());

        let filter = PodSandboxFilter { label_selector: label("pod", "other"), ..PodSandboxFilter::default() };
        let listed = runtime.list_pod_sandbox(Some(&filter)).await.unwrap();
        assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&other]);
        assert_eq!(runtime.list_pod_sandbox(None).await.unwrap().len(), 2);
    });
}

#[test]
fn absent_objects_are_not_found_and_removing_them_succeeds() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        assert!(runtime.stop_pod_sandbox("1f").await.unwrap_err().is_not_found());
        assert!(runtime.pod_sandbox_status("1f", false).await.unwrap_err().is_not_found());
        assert!(runtime.start_container("1f").await.unwrap_err().is_not_found());
        assert!(runtime.stop_container("1f", Duration::ZERO).await.unwrap_err().is_not_found());
        let error = runtime.container_status("1f", true).await.unwrap_err();
        assert_eq!(error.call(), "ContainerStatus");
        assert!(chain(&error).starts_with("ContainerStatus 1f: NotFound: "), "{}", chain(&error));
        assert!(!error.is_retryable() && !error.outcome_unknown());
        runtime.remove_container("1f").await.unwrap();
        runtime.remove_pod_sandbox("1f").await.unwrap();
    });
}

#[test]
fn taken_name_is_refused() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, .. } = running().await;
        let again = runtime.run_pod_sandbox(&sandbox_config("pod"), "").await.unwrap_err();
        assert_eq!((again.to_string().as_str(), code(&again)), ("RunPodSandbox default/pod", Some(Code::Unknown)));
        let again = runtime.create_container(&sandbox, &container_config("web"), &sandbox_config("pod")).await;
        assert_eq!(code(&again.unwrap_err()), Some(Code::Unknown));
        assert_eq!(fake.containers().len(), 1);
    });
}

#[test]
fn stopped_container_exits_with_the_code_of_its_signal() {
    rt::block_on(async {
        for (grace, ignores, expected) in [(5, false, 143), (0, false, 137), (0, true, 137)] {
            let Running { fake, runtime, container, .. } = running().await;
            if ignores {
                fake.ignore_sigterm("web");
            }
            runtime.stop_container(&container, Duration::from_secs(grace)).await.unwrap();
            assert_eq!(fake.containers()[0].exit_code, expected, "grace {grace}");
            // Stopping it again succeeds.
            runtime.stop_container(&container, Duration::ZERO).await.unwrap();
        }
    });
}

#[test]
fn stopping_waits_for_a_container_that_ignores_the_signal() {
    let Running { fake, runtime, container, .. } = rt::block_on(running());
    fake.ignore_sigterm("pod/web");
    thread::scope(|scope| {
        scope.spawn(|| {
            fake.wait_for_calls("StopContainer", 1);
            fake.exit("web", 7);
        });
        rt::block_on(runtime.stop_container(&container, Duration::from_secs(3600))).unwrap();
    });
    assert_eq!(fake.containers()[0].exit_code, 7);
}

#[test]
fn images_are_pulled_found_by_every_name_and_removed() {
    rt::block_on(async {
        let fake = FakeCri::start();
        fake.publish_image("registry.example/team/app:v1");
        let images = images(&fake);
        for malformed in ["Busybox", "a//b", "registry.example:x/a", "a:", "a@sha256:1", "a b"] {
            let error = images.pull_image(&image(malformed), None, None, TIMEOUT).await.unwrap_err();
            let status = error.status().unwrap();
            let is_told = status.message.ends_with("invalid reference format");
            assert!(status.code == Code::Unknown && is_told, "{malformed}: {status:?}");
            assert!(images.image_status(&image(malformed)).await.unwrap().is_none());
        }
        let error = images.pull_image(&image("busybox"), None, None, TIMEOUT).await.unwrap_err();
        assert!(error.is_not_found());
        let id = images.pull_image(&image("registry.example/team/app:v1"), None, None, TIMEOUT).await.unwrap();
        fake.add_image("busybox");
        for name in [&id, "registry.example/team/app:v1"] {
            assert_eq!(images.image_status(&image(name)).await.unwrap().unwrap().id, id);
        }
        for name in ["busybox", "busybox:latest", "docker.io/library/busybox", "library/busybox"] {
            assert!(images.image_status(&image(name)).await.unwrap().is_some(), "{name}");
        }
        assert_eq!(images.image_status(&image("busybox:v2")).await.unwrap(), None);
        assert_eq!(images.list_images(None).await.unwrap().len(), 2);
        images.remove_image(&image(&id)).await.unwrap();
        images.remove_image(&image(&id)).await.unwrap();
        assert_eq!(images.list_images(Some(&image(&id))).await.unwrap(), []);
        assert_eq!(images.image_fs_info().await.unwrap().image_filesystems.len(), 1);
    });
}

#[test]
fn output_of_a_command_is_cut_as_it_arrives() {
    rt::block_on(async {
        let Running { fake, runtime, container, .. } = running().await;
        fake.set_exec(3, &"x".repeat(12 << 20));
        let answer = runtime.exec_sync("pod", &container, &["yes".to_owned()], Duration::from_secs(60)).await.unwrap();
        assert_eq!((answer.exit_code, answer.stdout.len()), (3, 10 << 10));
        assert!(answer.stdout.capacity() < 64 << 10);
        let minute = Duration::from_secs(60);
        let answer = runtime.exec_keeping("pod", &container, &["yes".to_owned()], minute, 1 << 20).await.unwrap();
        assert_eq!((answer.exit_code, answer.stdout.len()), (3, 1 << 20));
    });
}

#[test]
fn messages_have_a_largest_size() {
    rt::block_on(async {
        let Running { fake, runtime, container, .. } = running().await;
        // containerd cuts the output, and cannot send what remains.
        fake.set_exec(0, &"x".repeat(17 << 20));
        let refused =
            runtime.exec_sync("pod", &container, &["yes".to_owned()], Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(code(&refused), Some(Code::ResourceExhausted), "{}", chain(&refused));
        assert!(chain(&refused).contains("trying to send message larger than max"), "{}", chain(&refused));
        let large = ["x".repeat(17 << 20)];
        let refused = runtime.exec_sync("pod", &container, &large, Duration::from_secs(60)).await.unwrap_err();
        assert!(chain(&refused).contains("received message larger than max"), "{}", chain(&refused));
        // The connection remains.
        fake.set_exec(0, "ok");
        let answer = runtime.exec_sync("pod", &container, &["cat".to_owned()], Duration::from_secs(60)).await.unwrap();
        assert_eq!(answer.stdout, b"ok");
    });
}

#[test]
fn exec_and_statistics_return_what_was_set() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        fake.set_exec(3, "hello\n");
        let cmd = ["cat".to_owned(), "/etc/motd".to_owned()];
        let answer = runtime.exec_sync("pod", &container, &cmd, Duration::from_millis(1500)).await.unwrap();
        assert_eq!((answer.exit_code, answer.stdout.as_slice()), (3, b"hello\n".as_slice()));
        let requests: Vec<ExecSyncRequest> = fake.requests("ExecSync");
        assert_eq!((requests[0].cmd.as_slice(), requests[0].timeout), (cmd.as_slice(), 2));

        let exec = ExecRequest { container_id: container.clone(), ..ExecRequest::default() };
        assert!(runtime.exec(&exec).await.unwrap().starts_with("http://"));
        let attach = AttachRequest { container_id: container.clone(), ..AttachRequest::default() };
        assert!(runtime.attach(&attach).await.unwrap().starts_with("http://"));
        assert!(runtime.port_forward(&sandbox, &[80, 443]).await.unwrap().starts_with("http://"));
        assert_eq!(fake.requests::<PortForwardRequest>("PortForward")[0].port, [80, 443]);

        let cpu = CpuUsage { usage_core_nano_seconds: Some(7), ..CpuUsage::default() };
        fake.set_stats(ContainerStats { cpu: Some(cpu.clone()), ..ContainerStats::default() });
        assert_eq!(runtime.container_stats(&container).await.unwrap().cpu, Some(cpu));
        let filter = ContainerStatsFilter { pod_sandbox_id: sandbox, ..ContainerStatsFilter::default() };
        let listed = runtime.list_container_stats(Some(&filter)).await.unwrap();
        assert_eq!(listed[0].attributes.as_ref().unwrap().id, container);

        let resources = LinuxContainerResources { cpu_shares: 5, ..LinuxContainerResources::default() };
        runtime.update_container_resources(&container, &resources).await.unwrap();
        let requests: Vec<UpdateContainerResourcesRequest> = fake.requests("UpdateContainerResources");
        assert_eq!(requests[0].linux, Some(resources));
        runtime.reopen_container_log(&container).await.unwrap();
    });
}

#[test]
fn runtime_reports_its_version_and_status() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        assert_eq!(runtime.version().await.unwrap().runtime_api_version, "v1");
        fake.set_network_ready(false);
        let answer = runtime.status(true).await.unwrap();
        let conditions: Vec<_> = answer.status.iter().flat_map(|status| &status.conditions).collect();
        assert_eq!(conditions.iter().map(|one| one.status).collect::<Vec<_>>(), [true, false]);
        assert!(answer.info.contains_key("config"));
        assert_eq!(answer.runtime_handlers, []);
        let handlers = vec![RuntimeHandler { name: "crun".to_owned(), features: None }];
        fake.set_handlers(handlers.clone());
        assert_eq!(runtime.status(false).await.unwrap().runtime_handlers, handlers);
        runtime.update_pod_cidr("10.1.0.0/24").await.unwrap();

        assert!(runtime.cgroup_driver().await.unwrap_err().is_unimplemented());
        fake.set_cgroup_driver(CgroupDriver::Cgroupfs);
        assert_eq!(runtime.cgroup_driver().await.unwrap(), Some(CgroupDriver::Cgroupfs));
    });
}

#[test]
fn events_are_sent_as_they_happen() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        let mut none = runtime.container_events().await.unwrap();
        assert!(none.next().await.unwrap_err().is_unimplemented());

        fake.enable_events();
        let mut events = runtime.container_events().await.unwrap();
        until(&fake, "a listener", |world| world.listeners() == 1).await;
        fake.exit("web", 1);
        let event = events.next().await.unwrap().unwrap();
        assert_eq!((event.container_id, event.container_event_type), (container.clone(), ContainerEventType::Stopped));
        assert_eq!(event.pod_sandbox_status.unwrap().id, sandbox);
        // The statuses of the containers are not decoded beside that of the sandbox.
        assert_eq!(event.containers_statuses, []);
        runtime.remove_container(&container).await.unwrap();
        let event = events.next().await.unwrap().unwrap();
        assert_eq!(event.container_event_type, ContainerEventType::Deleted);
        fake.stop();
        assert!(events.next().await.unwrap_err().outcome_unknown());
    });
}

#[test]
fn duplicate_pod_has_the_same_containers_and_its_own_uid() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        fake.set_uid("pod", "first");
        fake.double("pod", "second");
        let of = |uid: &str| [("io.kubernetes.pod.uid".to_owned(), uid.to_owned())].into();
        let mut ids = Vec::new();
        for uid in ["first", "second"] {
            let sandboxes = PodSandboxFilter { label_selector: of(uid), ..PodSandboxFilter::default() };
            let containers = ContainerFilter { label_selector: of(uid), ..ContainerFilter::default() };
            let sandboxes = runtime.list_pod_sandbox(Some(&sandboxes)).await.unwrap();
            let containers = runtime.list_containers(Some(&containers)).await.unwrap();
            assert_eq!((sandboxes.len(), containers.len()), (1, 1), "{uid}");
            assert_eq!(sandboxes[0].metadata.as_ref().unwrap().uid, uid);
            assert_eq!(containers[0].pod_sandbox_id, sandboxes[0].id);
            let pid = runtime.container_status(&containers[0].id, true).await.unwrap().init_pid().unwrap();
            assert!(is_alive(pid));
            ids.push((sandboxes[0].id.clone(), containers[0].id.clone(), pid));
        }
        assert_eq!((&ids[0].0, &ids[0].1), (&sandbox, &container));
        assert!(ids[0].0 != ids[1].0 && ids[0].1 != ids[1].1 && ids[0].2 != ids[1].2);
    });
}
