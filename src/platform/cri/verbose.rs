//! Parses the verbose part of a status, whose format is up to the runtime. Pure.

use serde::Deserialize;

use super::v1::{ContainerStatusResponse, PodSandboxStatusResponse, StatusResponse};
use crate::types::sorted::SortedMap;

impl ContainerStatusResponse {
    /// The pid of the container's first process, if the status is verbose and the container runs.
    pub fn init_pid(&self) -> Option<u32> {
        init_pid(&self.info)
    }
}

impl PodSandboxStatusResponse {
    /// The pid of the sandbox's own process, if the status is verbose and the sandbox has one.
    pub fn init_pid(&self) -> Option<u32> {
        init_pid(&self.info)
    }
}

impl StatusResponse {
    /// The pause image, if the status is verbose. containerd before 1.7 does not pin it, other runtimes do.
    pub fn sandbox_image(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Config {
            sandbox_image: String,
        }
        let config: Config = serde_json::from_str(self.info.get("config")?).ok()?;
        Some(config.sandbox_image).filter(|image| !image.is_empty())
    }
}

/// containerd and CRI-O put a JSON object under `info`; its pid is 0 for a container that does not run.
fn init_pid(info: &SortedMap<String, String>) -> Option<u32> {
    #[derive(Deserialize)]
    struct Info {
        pid: u32,
    }
    let info: Info = serde_json::from_str(info.get("info")?).ok()?;
    (info.pid != 0).then_some(info.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(info: &str, expected: Option<u32>) {
        let info = SortedMap::from([("info".to_owned(), info.to_owned())]);
        let response = ContainerStatusResponse { info, ..ContainerStatusResponse::default() };
        assert_eq!(response.init_pid(), expected);
    }

    #[test]
    fn pid_is_found_among_other_fields() {
        check(r#"{"sandboxID":"1f","pid":4711,"removing":false,"config":{"pid":1}}"#, Some(4711));
        check(r#"{"sandboxID":"1f","pid":4711,"runtimeSpec":{"process":{"args":["\u00e9"]}}}"#, Some(4711));
    }

    #[test]
    fn without_a_process_there_is_no_pid() {
        check(r#"{"pid":0}"#, None);
        check("{}", None);
        assert_eq!(ContainerStatusResponse::default().init_pid(), None);
    }

    #[test]
    fn sandbox_image_is_found() {
        let image = |config: &str| {
            let info = SortedMap::from([("config".to_owned(), config.to_owned())]);
            StatusResponse { info, ..StatusResponse::default() }.sandbox_image()
        };
        let config = r#"{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"registry.k8s.io/pause:3.6"}"#;
        assert_eq!(image(config).as_deref(), Some("registry.k8s.io/pause:3.6"));
        for other in ["{}", r#"{"sandboxImage":""}"#, r#"{"sandboxImage":7}"#, "x"] {
            assert_eq!(image(other), None);
        }
        assert_eq!(StatusResponse::default().sandbox_image(), None);
    }

    #[test]
    fn malformed_info_has_no_pid() {
        for info in [r#"{"pid":-1}"#, r#"{"pid":"7"}"#, r#"{"pid":99999999999}"#, "pid 7", "", r#"{"pid":7"#] {
            check(info, None);
        }
    }
}
