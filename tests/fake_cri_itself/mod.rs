//! Tests the fake runtime through this crate's client, so the client is tested too.

mod behaviour;
mod faults;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use coracle::platform::cri::v1::*;
use coracle::platform::cri::{Error, ImageService, RuntimeService};
use coracle::platform::rpc;
use coracle::platform::rt;
use coracle::protocol::grpc::Code;

use crate::fake_cri::{FakeCri, World};

const TIMEOUT: Duration = Duration::from_secs(10);

fn runtime(fake: &FakeCri) -> RuntimeService {
    RuntimeService::new(rpc::Client::with_limit(&fake.endpoint(), coracle::protocol::grpc::MAX_MESSAGE_BYTES), TIMEOUT)
}

fn images(fake: &FakeCri) -> ImageService {
    ImageService::new(rpc::Client::with_limit(&fake.endpoint(), coracle::protocol::grpc::MAX_MESSAGE_BYTES), TIMEOUT)
}

fn sandbox_config(name: &str) -> PodSandboxConfig {
    let metadata = PodSandboxMetadata {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        namespace: "default".to_owned(),
        attempt: 0,
    };
    PodSandboxConfig {
        metadata: Some(metadata),
        log_directory: "/var/log/pods/x".to_owned(),
        labels: [("pod".to_owned(), name.to_owned())].into(),
        ..PodSandboxConfig::default()
    }
}

fn container_config(name: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 2 }),
        image: Some(image("busybox")),
        labels: [("container".to_owned(), name.to_owned())].into(),
        log_path: format!("{name}/2.log"),
        ..ContainerConfig::default()
    }
}

fn image(name: &str) -> ImageSpec {
    ImageSpec { image: name.to_owned(), ..ImageSpec::default() }
}

/// A runtime with a running container `web` in a sandbox `pod`.
struct Running {
    fake: Arc<FakeCri>,
    runtime: RuntimeService,
    sandbox: String,
    container: String,
}

async fn running() -> Running {
    let fake = Arc::new(FakeCri::start());
    fake.add_image("busybox");
    let runtime = runtime(&fake);
    let config = sandbox_config("pod");
    let sandbox = runtime.run_pod_sandbox(&config, "").await.unwrap();
    let container = runtime.create_container(&sandbox, &container_config("web"), &config).await.unwrap();
    runtime.start_container(&container).await.unwrap();
    Running { fake, runtime, sandbox, container }
}

fn code(error: &Error) -> Option<Code> {
    error.status().map(|status| status.code)
}

/// The error with its causes, as in a log line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Waits for a state of the runtime while this test's calls proceed.
async fn until(fake: &Arc<FakeCri>, what: &'static str, done: impl FnMut(&World) -> bool + Send + 'static) {
    let fake = Arc::clone(fake);
    rt::blocking(move || fake.wait_for(what, done)).await;
}
