//! Checks of the container runtime, its pause image and the pod network. Pure.

use super::facts::{CniFacts, RuntimeAnswer, RuntimeError, RuntimeFacts};
use super::finding::Finding;

/// Findings about the runtime; without an answer there is only one.
pub(super) fn check(runtime: &RuntimeFacts) -> Vec<Finding> {
    let endpoint = &runtime.endpoint;
    let response = match &runtime.response {
        Some(Ok(runtime_answer)) => runtime_answer,
        Some(Err(error)) => return vec![unreachable(endpoint, error, &runtime.other_sockets)],
        None => return Vec::new(),
    };
    let RuntimeAnswer { name, version, ready, message, .. } = response;
    let mut text = format!("{name} {version} at {endpoint}");
    let first = if *ready == Some(false) {
        text.push_str(&format!(", not ready: {message}"));
        Finding::failed("runtime", text, "see its log: journalctl -u containerd")
    } else if name == "containerd" && is_older(version, (1, 6)) {
        Finding::warning("runtime", text, "update containerd to 1.6 or newer")
    } else {
        Finding::ok("runtime", text)
    };
    vec![first, pause_image(response)]
}

fn unreachable(endpoint: &str, error: &RuntimeError, sockets: &[String]) -> Finding {
    let sockets: Vec<&String> = sockets.iter().filter(|other| *other != endpoint).collect();
    match error {
        RuntimeError::NoSocket if sockets.is_empty() => Finding::failed(
            "runtime",
            format!("nothing listens at {endpoint}"),
            "install and start a runtime: apt install containerd; systemctl enable --now containerd",
        ),
        RuntimeError::NoSocket => {
            let other = sockets.first().map(|other| other.as_str()).unwrap_or_default();
            let advice = format!("containerRuntimeEndpoint: unix://{other} in /etc/coracle/config.yaml");
            Finding::failed("runtime", format!("nothing listens at {endpoint}, but at {other}"), advice)
        }
        RuntimeError::NoCri => Finding::failed(
            "runtime",
            format!("{endpoint} answers without the CRI"),
            "remove cri from disabled_plugins in /etc/containerd/config.toml, and systemctl restart containerd",
        ),
        RuntimeError::Other(line) => {
            Finding::failed("runtime", format!("{endpoint}: {line}"), "see its log: journalctl -u containerd")
        }
    }
}

fn pause_image(runtime: &RuntimeAnswer) -> Finding {
    let name = runtime.pause_image.as_deref();
    match (runtime.has_pause_image, name) {
        (Some(true), _) => Finding::ok("pause image", format!("{} is here", name.unwrap_or("a pinned image"))),
        (Some(false), Some(name)) => {
            let advice = format!(
                "the first pod pulls it; without a registry: ctr -n k8s.io images pull {name}, or put its archive into the archive directory"
            );
            Finding::warning("pause image", format!("{name} is not here"), advice)
        }
        (Some(false), None) => Finding::warning(
            "pause image",
            "no pinned image is here",
            "the first pod pulls the pause image; without a registry, put its archive into the archive directory",
        ),
        (None, _) => Finding::ok("pause image", "unknown: the runtime does not say"),
    }
}

/// `network`: whether the runtime says that the network is ready, and why not.
pub(super) fn cni(cni: &CniFacts, network: Option<(bool, &str)>) -> Finding {
    let CniFacts { config_directory, config, plugin_directories, plugins } = cni;
    let only_host = "pods with hostNetwork: true run without one";
    let Some((file, config)) = config else {
        let advice = format!("install a CNI configuration (docs/install.md#the-container-runtime); {only_host}");
        return Finding::warning("pod network", format!("no configuration in {config_directory}"), advice);
    };
    let types = match config {
        Ok(types) => types,
        Err(error) => {
            let advice = format!("correct it; {only_host}");
            return Finding::warning("pod network", format!("{config_directory}/{file}: {error}"), advice);
        }
    };
    let missing: Vec<&str> = types.iter().filter(|kind| !plugins.contains(kind)).map(String::as_str).collect();
    if !missing.is_empty() {
        let text = format!("{file} needs the plugins {}, not in {}", missing.join(" "), plugin_directories.join(", "));
        return Finding::warning("pod network", text, format!("apt install containernetworking-plugins; {only_host}"));
    }
    let text = format!("{config_directory}/{file}: {}", types.join(" "));
    match network {
        Some((false, message)) => {
            let advice = "systemctl restart containerd, which then reads the configuration";
            Finding::warning("pod network", format!("{text}; the runtime: {message}"), advice)
        }
        Some((true, _)) | None => Finding::ok("pod network", text),
    }
}

/// The plugin types of a CNI configuration: a list of plugins, or one plugin. The error is one line.
pub(super) fn plugin_types(text: &[u8]) -> Result<Vec<String>, String> {
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let kind = |plugin: &serde_json::Value| plugin.get("type").and_then(serde_json::Value::as_str).map(str::to_owned);
    let types = match value.get("plugins").and_then(serde_json::Value::as_array) {
        Some(plugins) => plugins.iter().filter_map(kind).collect(),
        None => kind(&value).into_iter().collect::<Vec<_>>(),
    };
    if types.is_empty() { Err("it names no plugin".to_owned()) } else { Ok(types) }
}

/// The directories of CNI configurations and plugins in containerd's verbose status: 1.x has `binDir`, 2.x `binDirs`.
pub(super) fn cni_directories(config: &str) -> (Option<String>, Vec<String>) {
    let config: serde_json::Value = serde_json::from_str(config).unwrap_or_default();
    let text = |name: &str| config.pointer(name).and_then(serde_json::Value::as_str).map(str::to_owned);
    let many = config.pointer("/cni/binDirs").and_then(serde_json::Value::as_array);
    let many = many.into_iter().flatten().filter_map(serde_json::Value::as_str).map(str::to_owned);
    let filled = |directory: &String| !directory.is_empty();
    let plugins = text("/cni/binDir").into_iter().chain(many).filter(filled).collect();
    (text("/cni/confDir").filter(filled), plugins)
}

fn is_older(version: &str, least: (u32, u32)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < least,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn runtime_info() -> RuntimeAnswer {
        RuntimeAnswer {
            name: "containerd".to_owned(),
            version: "1.7.2".to_owned(),
            ready: Some(true),
            pause_image: Some("registry.k8s.io/pause:3.9".to_owned()),
            has_pause_image: Some(true),
            ..RuntimeAnswer::default()
        }
    }

    fn of(response: Result<RuntimeAnswer, RuntimeError>, others: &[&str]) -> RuntimeFacts {
        RuntimeFacts {
            endpoint: "/run/containerd/containerd.sock".to_owned(),
            response: Some(response),
            other_sockets: others.iter().map(|&other| other.to_owned()).collect(),
        }
    }

    #[track_caller]
    fn expect(findings: &[Finding], verdict: Verdict, text: &str, advice: &str) {
        let worst = findings.iter().max_by_key(|finding| finding.verdict).unwrap();
        assert_eq!(worst.verdict, verdict, "{findings:?}");
        let at = findings.iter().find(|finding| finding.text.contains(text)).expect(text);
        assert!(at.advice.contains(advice), "{at:?}");
    }

    #[test]
    fn each_way_to_miss_a_runtime_has_its_advice() {
        expect(&check(&of(Ok(runtime_info()), &[])), Verdict::Ok, "containerd 1.7.2 at /run", "");
        let missing = |others: &[&str]| check(&of(Err(RuntimeError::NoSocket), others));
        expect(&missing(&[]), Verdict::Failed, "nothing listens", "apt install containerd");
        let crio = "containerRuntimeEndpoint: unix:///run/crio/crio.sock";
        expect(&missing(&["/run/crio/crio.sock"]), Verdict::Failed, "nothing listens", crio);
        expect(&check(&of(Err(RuntimeError::NoCri), &[])), Verdict::Failed, "without the CRI", "disabled_plugins");
        let other = RuntimeError::Other("permission denied".to_owned());
        expect(&check(&of(Err(other), &[])), Verdict::Failed, "permission denied", "journalctl");
        let down = RuntimeAnswer { ready: Some(false), message: "not yet".to_owned(), ..runtime_info() };
        expect(&check(&of(Ok(down), &[])), Verdict::Failed, "not ready: not yet", "log");
        let old = RuntimeAnswer { version: "1.5.13".to_owned(), ..runtime_info() };
        expect(&check(&of(Ok(old), &[])), Verdict::Warning, "1.5.13", "1.6");
        let new = RuntimeAnswer { version: "v2.1.0-rc.1".to_owned(), ..runtime_info() };
        expect(&check(&of(Ok(new), &[])), Verdict::Ok, "2.1.0", "");
    }

    #[test]
    fn missing_pause_image_is_warned_of() {
        let without = RuntimeAnswer { has_pause_image: Some(false), ..runtime_info() };
        expect(&check(&of(Ok(without.clone()), &[])), Verdict::Warning, "pause:3.9 is not here", "ctr -n k8s.io");
        let unnamed = RuntimeAnswer { pause_image: None, ..without };
        expect(&check(&of(Ok(unnamed.clone()), &[])), Verdict::Warning, "no pinned image", "archive");
        let unknown = RuntimeAnswer { has_pause_image: None, ..unnamed };
        expect(&check(&of(Ok(unknown), &[])), Verdict::Ok, "unknown", "");
    }

    #[test]
    fn network_needs_a_configuration_and_its_plugins() {
        let facts = |config: Option<Result<&[&str], &str>>, plugins: &[&str]| CniFacts {
            config_directory: "/etc/cni/net.d".to_owned(),
            config: config.map(|config| {
                let types = config.map(|types| types.iter().map(|&kind| kind.to_owned()).collect());
                ("10-x.conflist".to_owned(), types.map_err(str::to_owned))
            }),
            plugin_directories: vec!["/opt/cni/bin".to_owned()],
            plugins: plugins.iter().map(|&plugin| plugin.to_owned()).collect(),
        };
        let types: &[&str] = &["bridge", "portmap"];
        let at = |facts: &CniFacts, network| vec![cni(facts, network)];
        expect(&at(&facts(None, &[]), None), Verdict::Warning, "no configuration", "hostNetwork");
        expect(&at(&facts(Some(Err("bad")), &[]), None), Verdict::Warning, "bad", "correct it");
        expect(&at(&facts(Some(Ok(types)), &["bridge"]), None), Verdict::Warning, "portmap", "containernetworking");
        let whole = facts(Some(Ok(types)), types);
        expect(&at(&whole, Some((true, ""))), Verdict::Ok, "bridge portmap", "");
        expect(&at(&whole, Some((false, "cni plugin not initialized"))), Verdict::Warning, "not init", "restart");
    }

    #[test]
    fn configurations_of_lists_and_single_plugins_are_read() {
        let list = br#"{"plugins":[{"type":"bridge"},{"type":"portmap"},{"x":1}]}"#;
        assert_eq!(plugin_types(list), Ok(vec!["bridge".to_owned(), "portmap".to_owned()]));
        assert_eq!(plugin_types(br#"{"type":"macvlan"}"#), Ok(vec!["macvlan".to_owned()]));
        for bad in [&b"{"[..], b"{}", b"[]", b"7", br#"{"plugins":[]}"#] {
            assert!(plugin_types(bad).is_err(), "{bad:?}");
        }
        let one = r#"{"cni":{"binDir":"/opt/cni/bin","confDir":"/etc/cni/net.d"}}"#;
        assert_eq!(cni_directories(one), (Some("/etc/cni/net.d".to_owned()), vec!["/opt/cni/bin".to_owned()]));
        let two = r#"{"cni":{"binDir":"","binDirs":["/a","/b"],"confDir":""}}"#;
        assert_eq!(cni_directories(two), (None, vec!["/a".to_owned(), "/b".to_owned()]));
        assert_eq!(cni_directories("x"), (None, Vec::new()));
    }
}
