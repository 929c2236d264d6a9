//! The connection to the API server behind proxies.

use std::fs;

use super::forward_proxy::{ForwardProxy, Speaks};
use super::joined::{Joined, NODE};
use super::node::NODE_NAME;
use crate::fake_api::kubeconfig::Credentials;

/// A name that the server's certificate has and only the proxy can find.
const NAME: &str = "kubernetes.default.svc.cluster.local";

/// Starts a node whose kubeconfig names the API server `NAME`, with these lines for its cluster and this environment.
fn start(joined: &mut Joined, lines: &str, environment: &[(&str, &str)]) {
    let port = joined.api.address().port();
    let kubeconfig = joined.api.kubeconfig(joined.node.folder(), &Credentials::of_node(NODE_NAME));
    let text = fs::read_to_string(&kubeconfig).unwrap();
    let text = text.replace(&joined.api.url(), &format!("https://{NAME}:{port}\n{lines}"));
    fs::write(&kubeconfig, text).unwrap();
    joined.node.configure("runtimeRequestTimeout: 1s\nimageGCHighThresholdPercent: 100\nevictionHard: {}\n");
    joined.node.start_agent_with(|command| {
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--make-iptables-util-chains=false")
            .envs(environment.iter().copied());
    });
}

/// Why the agent has no connection, once it says so.
#[track_caller]
fn wait_for_failure(joined: &Joined) -> String {
    let message = || joined.node.status()["apiServer"]["message"].as_str().unwrap_or_default().to_owned();
    joined.node.wait_until("a failed attempt", |_| !message().is_empty());
    message()
}

#[track_caller]
fn check(speaks: impl FnOnce(&Joined) -> Speaks, scheme: &str, credentials: Option<(&'static str, &'static str)>) {
    let mut joined = Joined::new();
    let proxy = ForwardProxy::start(speaks(&joined), credentials, joined.api.address());
    let user = credentials.map_or_else(String::new, |(user, password)| format!("{user}:{password}@"));
    start(&mut joined, &format!("    proxy-url: {scheme}://{user}{}\n", proxy.address), &[]);
    joined.wait_until_ready();
    let expected = format!("{NAME}:{}", joined.api.address().port());
    assert!(proxy.asked().iter().all(|asked| *asked == expected), "{:?}", proxy.asked());
    assert!(credentials.is_none_or(|(_, password)| !joined.node.log().contains(password)));
}

#[test]
fn proxy_url_may_be_http_https_or_socks() {
    check(|_| Speaks::Http, "http", None);
    check(|joined| Speaks::Https(joined.api.certificate_of_localhost()), "https", Some(("u", "s3cret")));
    check(|_| Speaks::Socks5, "socks5", None);
    check(|_| Speaks::Socks5, "socks5h", Some(("u", "s3cret")));
}

#[test]
fn environments_proxy_is_used_unless_no_proxy_has_the_server() {
    let mut joined = Joined::new();
    let proxy = ForwardProxy::start(Speaks::Http, Some(("u", "s3cret")), joined.api.address());
    let variable = format!("http://u:s3cret@{}", proxy.address);
    start(&mut joined, "", &[("https_proxy", &variable), ("NO_PROXY", "other.example.com")]);
    joined.wait_until_ready();
    assert!(!proxy.asked().is_empty());

    let mut direct = Joined::new();
    let unused = ForwardProxy::start(Speaks::Http, None, direct.api.address());
    let variable = format!("http://{}", unused.address);
    start(&mut direct, "", &[("HTTPS_PROXY", &variable), ("NO_PROXY", ".cluster.local")]);
    let message = wait_for_failure(&direct);
    assert!(message.contains("dial tcp: ") && !message.contains("proxy"), "{message}");
    assert_eq!(unused.asked(), Vec::<String>::new());
}

#[test]
fn loopback_is_never_behind_the_environments_proxy() {
    let mut joined = Joined::new();
    let proxy = ForwardProxy::start(Speaks::Refusal("403 Forbidden"), None, joined.api.address());
    let variable = format!("http://{}", proxy.address);
    joined.start_with("", |command| {
        command.env("HTTPS_PROXY", &variable).env("ALL_PROXY", &variable);
    });
    joined.wait_until_ready();
    assert!(joined.api.get(NODE).is_some());
    assert_eq!(proxy.asked(), Vec::<String>::new());
}

#[test]
fn refusal_names_the_proxy_and_its_answer_but_no_password() {
    let mut joined = Joined::new();
    let proxy = ForwardProxy::start(Speaks::Refusal("403 Filtered"), None, joined.api.address());
    let variable = format!("http://u:s3cret@{}", proxy.address);
    start(&mut joined, "", &[("HTTPS_PROXY", &variable)]);
    let message = wait_for_failure(&joined);
    let server = format!("{NAME}:{}", joined.api.address().port());
    let expected = format!(
        "connect to the API server {server}: proxy http://{}: refused to connect to {server}: 403 Filtered",
        proxy.address
    );
    assert_eq!(message, expected);
    assert!(!joined.node.log().contains("s3cret"));
}
