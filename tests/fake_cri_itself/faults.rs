//! Faults of the fake runtime, and what the client reports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle::platform::cri::v1::*;
use coracle::platform::cri::{Error, RuntimeService};
use coracle::platform::rpc;
use coracle::platform::rt;
use coracle::protocol::grpc::Code;
use coracle::protocol::protobuf::encode;

use super::{Running, TIMEOUT, chain, code, container_config, image, images, running, runtime, sandbox_config, until};
use crate::fake_cri::{FakeCri, State};

async fn run_pod(runtime: &RuntimeService) -> Result<String, Error> {
    runtime.run_pod_sandbox(&sandbox_config("pod"), "").await
}

#[test]
fn scripted_error_occurs_as_often_as_requested() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        fake.on("RunPodSandbox").fail(Code::ResourceExhausted, "no address left").times(1);
        let error = run_pod(&runtime).await.unwrap_err();
        assert_eq!(chain(&error), "RunPodSandbox default/pod: ResourceExhausted: no address left");
        assert!(!error.outcome_unknown());
        assert_eq!(fake.sandboxes().len(), 0);
        run_pod(&runtime).await.unwrap();
        assert_eq!(fake.requests::<RunPodSandboxRequest>("RunPodSandbox").len(), 2);
    });
}

#[test]
fn fault_affects_only_matching_calls() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        fake.on("RunPodSandbox").about("uid-of-b").fail(Code::Internal, "");
        fake.on("*").about("uid-of-c").skip(1).fail(Code::Aborted, "");
        let mut codes = Vec::new();
        for name in ["a", "b", "c", "c"] {
            codes.push(runtime.run_pod_sandbox(&sandbox_config(name), "").await.err().as_ref().and_then(code));
        }
        assert_eq!(codes, [None, Some(Code::Internal), None, Some(Code::Aborted)]);
        fake.clear_faults();
        runtime.run_pod_sandbox(&sandbox_config("b"), "").await.unwrap();
    });
}

#[test]
fn hung_call_ends_at_its_deadline_and_blocks_no_other() {
    rt::block_on(async {
        let fake = FakeCri::start();
        fake.add_image("busybox");
        fake.on("PullImage").hang();
        let images = images(&fake);
        let pull = |limit| {
            let images = images.clone();
            async move { images.pull_image(&image("busybox"), None, None, limit).await }
        };
        let hanging = rt::spawn(pull(Duration::from_secs(3600)));
        for _ in 0..20 {
            assert!(images.image_status(&image("busybox")).await.unwrap().is_some());
        }
        assert!(!hanging.is_finished());
        let error = pull(Duration::from_millis(100)).await.unwrap_err();
        assert!(error.outcome_unknown() && !error.is_retryable(), "{error:?}");
        assert!(!hanging.is_finished());
    });
}

#[test]
fn connection_cut_before_the_effect_leaves_nothing() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        fake.on("RunPodSandbox").cut_before_effect().times(1);
        let error = run_pod(&runtime).await.unwrap_err();
        assert!(error.outcome_unknown() && !error.is_retryable(), "{error:?}");
        assert_eq!(fake.sandboxes().len(), 0);
        // The client does not retry by itself.
        assert_eq!(fake.calls().len(), 1);
        run_pod(&runtime).await.unwrap();
    });
}

#[test]
fn connection_cut_after_the_effect_leaves_the_effect() {
    rt::block_on(async {
        for in_answer in [false, true] {
            let fake = FakeCri::start();
            let runtime = runtime(&fake);
            let on = fake.on("RunPodSandbox").times(1);
            drop(if in_answer { on.cut_in_answer() } else { on.cut_after_effect() });
            let error = run_pod(&runtime).await.unwrap_err();
            assert!(error.outcome_unknown() && !error.is_retryable(), "{error:?}");
            assert_eq!(fake.sandboxes().len(), 1);
            assert_eq!(runtime.list_pod_sandbox(None).await.unwrap().len(), 1);
        }
    });
}

#[test]
fn unanswered_effect_shows_in_a_list() {
    rt::block_on(async {
        let fake = Arc::new(FakeCri::start());
        let hasty = RuntimeService::new(rpc::Client::new(&fake.endpoint()), Duration::from_millis(50));
        fake.on("RunPodSandbox").hang_after_effect().times(1);
        assert!(run_pod(&hasty).await.unwrap_err().outcome_unknown());
        until(&fake, "the sandbox", |world| !world.sandboxes.is_empty()).await;
        assert_eq!(runtime(&fake).list_pod_sandbox(None).await.unwrap().len(), 1);
    });
}

#[test]
fn every_call_in_flight_ends_when_the_connection_is_cut() {
    rt::block_on(async {
        let fake = Arc::new(FakeCri::start());
        fake.on("*").hang();
        let runtime = runtime(&fake);
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let runtime = runtime.clone();
                rt::spawn(async move { runtime.version().await })
            })
            .collect();
        until(&fake, "ten calls", |world| world.calls_of("Version") == 10).await;
        fake.cut_connections();
        for call in calls {
            assert!(call.await.unwrap_err().outcome_unknown());
        }
        fake.clear_faults();
        runtime.version().await.unwrap();
    });
}

#[test]
fn undecodable_answer_is_malformed_with_unknown_outcome() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        let garbage: &[u8] = b"\x0a\xff\xff\xff\xff";
        fake.on("*").answer(garbage);
        let answers = [
            runtime.run_pod_sandbox(&sandbox_config("a"), "").await.err(),
            runtime.create_container(&sandbox, &container_config("a"), &sandbox_config("pod")).await.err(),
            runtime.container_status(&container, true).await.err(),
            runtime.list_containers(None).await.err(),
        ];
        for error in answers.map(Option::unwrap) {
            assert!(error.is_malformed() && error.outcome_unknown() && !error.is_retryable(), "{error:?}");
            assert!(chain(&error).ends_with(": protobuf message ends inside a field"), "{}", chain(&error));
        }
    });
}

#[test]
fn answer_without_required_fields_is_malformed() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        fake.on("*").answer(b"");
        let exec = ExecRequest { container_id: container.clone(), ..ExecRequest::default() };
        let answers = [
            (run_pod(&runtime).await.err(), "sandbox id"),
            (
                runtime.create_container(&sandbox, &container_config("a"), &sandbox_config("pod")).await.err(),
                "container id",
            ),
            (runtime.container_status(&container, true).await.err(), "status"),
            (runtime.pod_sandbox_status(&sandbox, true).await.err(), "status"),
            (runtime.status(false).await.err(), "status"),
            (runtime.container_stats(&container).await.err(), "stats"),
            (runtime.exec(&exec).await.err(), "URL"),
            (images(&fake).pull_image(&image("busybox"), None, None, TIMEOUT).await.err(), "image reference"),
        ];
        for (error, what) in answers {
            let error = error.unwrap();
            assert!(error.is_malformed() && error.outcome_unknown(), "{error:?}");
            assert!(chain(&error).ends_with(&format!(": response has no {what}")), "{}", chain(&error));
        }
        // An image needs an id, but an absent image is a valid answer.
        assert_eq!(images(&fake).image_status(&image("busybox")).await.unwrap(), None);
        fake.clear_faults();
        let nameless = ImageStatusResponse { image: Some(Image::default()), ..ImageStatusResponse::default() };
        fake.on("ImageStatus").answer(&encode(&nameless));
        assert!(images(&fake).image_status(&image("busybox")).await.unwrap_err().is_malformed());
    });
}

#[test]
fn peer_with_another_protocol_is_an_error_and_its_connection_dropped() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        for words in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), &[0xff; 100], &[0; 9], b"x"] {
            fake.on("Version").speak(words).times(1);
            let error = runtime.version().await.unwrap_err();
            assert!(error.outcome_unknown(), "{words:x?}: {error:?}");
            runtime.version().await.unwrap();
        }
    });
}

#[test]
fn call_to_an_absent_runtime_had_no_effect() {
    rt::block_on(async {
        let Running { fake, runtime, container, .. } = running().await;
        fake.stop();
        // The first call or the connection itself may notice the loss.
        let first = runtime.version().await.unwrap_err();
        assert!(first.is_retryable() || first.outcome_unknown(), "{first:?}");
        let error = runtime.version().await.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        fake.start_again();
        assert_eq!(runtime.list_containers(None).await.unwrap()[0].id, container);
    });
}

#[test]
fn restarted_runtime_keeps_or_loses_its_containers() {
    rt::block_on(async {
        let Running { fake, runtime, container, .. } = running().await;
        let before = fake.containers()[0].pid;
        fake.restart(State::Kept);
        let status = list_when_back(&runtime).await;
        assert_eq!((status[0].id.as_str(), status[0].state), (container.as_str(), ContainerState::Running));
        assert_eq!(fake.containers()[0].pid, before);
        fake.restart(State::Lost);
        assert!(list_when_back(&runtime).await.is_empty());
    });
}

/// The first call after a restart may still use the old connection.
async fn list_when_back(runtime: &RuntimeService) -> Vec<Container> {
    match runtime.list_containers(None).await {
        Ok(listed) => listed,
        Err(_) => runtime.list_containers(None).await.unwrap(),
    }
}

#[test]
fn held_call_waits_for_its_release() {
    rt::block_on(async {
        let fake = Arc::new(FakeCri::start());
        let runtime = runtime(&fake);
        fake.on("RunPodSandbox").hold().times(1);
        let held = rt::spawn({
            let runtime = runtime.clone();
            async move { run_pod(&runtime).await }
        });
        until(&fake, "the call", |world| world.calls_of("RunPodSandbox") == 1).await;
        runtime.version().await.unwrap();
        assert!(fake.sandboxes().is_empty() && !held.is_finished());
        fake.release("RunPodSandbox");
        held.await.unwrap();
        assert_eq!(fake.sandboxes().len(), 1);
    });
}

#[test]
fn each_call_has_its_own_deadline() {
    rt::block_on(async {
        let Running { fake, runtime, sandbox, container } = running().await;
        let minutes = |count: u64| Duration::from_secs(60 * count);
        runtime.exec_sync("pod", &container, &["true".to_owned()], minutes(3)).await.unwrap();
        runtime.stop_container(&container, minutes(30)).await.unwrap();
        runtime.stop_pod_sandbox(&sandbox).await.unwrap();
        images(&fake).pull_image(&image("busybox"), None, None, minutes(90)).await.unwrap();
        for (method, expected) in [
            ("RunPodSandbox", TIMEOUT * 2),
            ("CreateContainer", TIMEOUT),
            ("StartContainer", TIMEOUT),
            ("ExecSync", TIMEOUT + minutes(3)),
            ("StopContainer", TIMEOUT + minutes(30)),
            ("StopPodSandbox", TIMEOUT),
            ("PullImage", minutes(90)),
        ] {
            let calls = fake.calls();
            let timeout = calls.iter().find(|call| call.method == method).unwrap().timeout.unwrap();
            // The deadline includes the time to connect.
            assert!(timeout <= expected && timeout + TIMEOUT / 2 > expected, "{method}: {timeout:?}");
        }
    });
}

#[test]
fn concurrent_calls_each_get_their_own_answer() {
    rt::block_on(async {
        let fake = FakeCri::start();
        let runtime = runtime(&fake);
        let begun = Instant::now();
        let calls: Vec<_> = (0..100)
            .map(|number| {
                let (runtime, name) = (runtime.clone(), format!("pod-{number}"));
                rt::spawn(async move {
                    let id = runtime.run_pod_sandbox(&sandbox_config(&name), "").await.unwrap();
                    let status = runtime.pod_sandbox_status(&id, false).await.unwrap().status.unwrap();
                    (name, status.metadata.unwrap().name)
                })
            })
            .collect();
        for call in calls {
            let (asked, answered) = call.await;
            assert_eq!(asked, answered);
        }
        assert!(begun.elapsed() < TIMEOUT);
    });
}
