//! The node's own server: node information, logs, exec and checkpoints.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use coracle::platform::cri::v1::{CheckpointContainerRequest, ExecResponse, ExecSyncRequest};
use coracle::protocol::protobuf::encode;
use serde_json::Value;

use super::door::{Door, get_plain, say_plain};
use super::node::Manifest;
use super::serving::{ALLOWS_ALL, Served};
use crate::fake_api::Options;
use crate::fake_api::identity::Identity;

fn post(door: &mut Door, path: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    door.say(&head).expect("an answer")
}

/// A node with one running pod.
fn with_a_pod(configuration: &str) -> Served {
    let mut served = Served::new(Options::default());
    served.joined.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    served.start(configuration, &[]);
    served.joined.node.wait_until_ready("own");
    served
}

#[test]
fn configz_requires_authorization() {
    let mut served = Served::new(Options::default());
    served.joined.api.add_token("a-token", &Identity::new("viewer", &["viewers"]));
    served.joined.api.allow("viewers", "get", "configz");
    served.start("syncFrequency: 90s\n", &["--max-pods=7"]);
    let with = "Authorization: Bearer a-token\r\n";
    let (status, body) = served.place.reach(None).get("/configz", with);
    assert_eq!(status, 200, "{body}");
    let shown: Value = serde_json::from_str(&body).unwrap();
    let shown = &shown["kubeletconfig"];
    assert_eq!((&shown["maxPods"], &shown["syncFrequency"]), (&7.into(), &"1m30s".into()));
    assert_eq!((&shown["kind"], &shown["port"]), (&"KubeletConfiguration".into(), &10250.into()));
    let refused = "Forbidden (user=viewer, verb=get, resource=nodes, subresource(s)=[log])";
    assert_eq!(served.place.reach(None).get("/logs/", with), (403, refused.to_owned()));
    let refused = "Forbidden (user=viewer, verb=create, resource=nodes, subresource(s)=[checkpoint])";
    let mut door = served.place.reach(None);
    assert_eq!(post(&mut door, "/checkpoint/a/b/c", with, ""), (403, refused.to_owned()));
}

#[test]
fn command_runs_and_its_output_is_returned() {
    let served = with_a_pod(ALLOWS_ALL);
    let (fake, admin) = (&served.joined.node.fake, served.admin());
    let reach = || served.place.reach(Some(&admin));
    fake.set_exec(0, "a line\n");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let path = "/run/default/own-node-a/main";
    assert_eq!(post(&mut reach(), path, form, "cmd=ls+-l%20/"), (200, "a line\n".to_owned()));
    assert_eq!(post(&mut reach(), &format!("{path}?cmd=id"), "", ""), (200, "a line\n".to_owned()));
    let commands: Vec<Vec<String>> =
        fake.requests::<ExecSyncRequest>("ExecSync").into_iter().map(|request| request.cmd).collect();
    assert_eq!(commands, [vec!["ls", "-l", "/"], vec!["id"]]);
    let refused = (400, "cmd: expected UTF-8\n".to_owned());
    assert_eq!(post(&mut reach(), path, form, "cmd=rm%20%FF-dir"), refused);
    assert_eq!(post(&mut reach(), &format!("{path}?cmd=%FF"), "", ""), refused);
    fake.set_exec(0, &"x".repeat(1 << 20));
    assert_eq!(post(&mut reach(), path, form, "cmd=cat"), (200, "x".repeat(1 << 20)));
    fake.set_exec(0, &"x".repeat(3 << 20));
    let cut = format!("{}\n[output longer than 1 MiB, the rest is left out]\n", "x".repeat(1 << 20));
    assert_eq!(post(&mut reach(), path, form, "cmd=yes"), (200, cut));
    fake.set_exec(3, "");
    assert_eq!(post(&mut reach(), path, form, "cmd=false"), (500, "command 'false' exited with 3: \n".to_owned()));
    let absent = |path: &str| post(&mut reach(), path, form, "cmd=id");
    assert_eq!(absent("/run/default/none/main"), (404, "pod does not exist\n".to_owned()));
    assert_eq!(absent("/run/default/own-node-a/none"), (500, "container not found (\"none\")\n".to_owned()));
    assert_eq!(reach().get(path, ""), (405, "405: Method Not Allowed".to_owned()));
    let large = format!("cmd={}", "x".repeat(20_000));
    assert_eq!(post(&mut reach(), path, form, &large).0, 413);
    // The agent does not wait for a client that has gone.
    fake.on("ExecSync").hang();
    let mut door = reach();
    assert!(door.begin(format!("POST {path}?cmd=id HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes()));
    fake.wait_for_calls("ExecSync", 6);
    drop(door);
    assert_eq!(reach().get("/healthz", "").0, 200);
}

#[test]
fn checkpoint_calls_the_runtime_with_upstreams_file_name() {
    let served = with_a_pod(ALLOWS_ALL);
    let (fake, admin) = (&served.joined.node.fake, served.admin());
    let ask = |path: &str| post(&mut served.place.reach(Some(&admin)), path, "", "");
    let path = "/checkpoint/default/own-node-a/main";
    let (status, text) = ask(path);
    assert_eq!(status, 500, "{text}");
    assert!(text.starts_with("checkpointing of default/own-node-a/main failed ("), "{text}");
    fake.on("CheckpointContainer").answer(&[]);
    let (status, body) = ask(&format!("{path}?timeout=1&timeout=9"));
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let file = answer["items"][0].as_str().unwrap();
    let folder = served.path("pods/checkpoints");
    let name = Path::new(file).strip_prefix(&folder).unwrap().to_str().unwrap();
    assert!(name.starts_with("checkpoint-own-node-a_default-main-20") && name.ends_with("Z.tar"), "{name}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&folder.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let request = fake.requests::<CheckpointContainerRequest>("CheckpointContainer").pop().unwrap();
    assert_eq!((&*request.location, request.timeout), (file, 9));
    assert_eq!(ask("/checkpoint/default/none/main"), (404, "pod does not exist\n".to_owned()));
    assert_eq!(ask("/checkpoint/default/own-node-a/none"), (404, "container none does not exist\n".to_owned()));
    let text = "cannot parse value of timeout parameter\n";
    assert_eq!(ask(&format!("{path}?timeout=soon")), (404, text.to_owned()));
}

#[test]
fn status_flags_and_checkpoints_are_served_behind_their_gates() {
    let paths =
        [("/statusz", "ComponentStatusz"), ("/flagz", "ComponentFlagz"), ("/checkpoint/a/b/c", "ContainerCheckpoint")];
    let mut served = Served::new(Options::default());
    for off in ["", "ComponentStatusz", "ComponentFlagz", "ContainerCheckpoint"] {
        let gates = if off.is_empty() { String::new() } else { format!("featureGates: {{{off}: false}}\n") };
        served.start(&format!("{ALLOWS_ALL}{gates}"), &[]);
        let mut door = served.place.reach(Some(&served.admin()));
        for (path, gate) in paths {
            let answer = if gate == "ContainerCheckpoint" { post(&mut door, path, "", "") } else { door.get(path, "") };
            let is_closed = answer == (404, "404 page not found\n".to_owned());
            assert_eq!(is_closed, gate == off, "{path} without {off:?}: {answer:?}");
        }
        served.joined.node.kill_agent();
    }
}

#[test]
fn node_logs_serve_only_the_log_directory() {
    let served = with_a_pod(ALLOWS_ALL);
    let admin = served.admin();
    let get = |path: &str| served.place.get(path, Some(&admin));
    let (status, page) = get("/logs/");
    assert!(status == 200 && page.starts_with("<!doctype html>\n<meta name=\"viewport\""), "{status} {page}");
    for climbing in ["/logs/../../etc/passwd", "/logs/%2e%2e/%2e%2e/etc/passwd", "/logs/pods/%2e./%2E%2e/../etc/shadow"]
    {
        assert_eq!(get(climbing), (400, "invalid URL path\n".to_owned()), "{climbing}");
    }
    assert_eq!(get("/logs//etc/passwd").0, 404);
    assert_eq!(get("/logs/nothing"), (404, "404 page not found\n".to_owned()));
}

#[test]
fn debugging_handlers_can_be_disabled() {
    let closed = format!("{ALLOWS_ALL}enableDebuggingHandlers: false\n");
    let served = with_a_pod(&closed);
    let admin = served.admin();
    let disabled = (405, "Debug endpoints are disabled.\n".to_owned());
    for path in ["/logs/", "/run/default/own-node-a/main", "/containerLogs/default/own-node-a/main"] {
        assert_eq!(served.place.get(path, Some(&admin)), disabled, "{path}");
    }
    for path in ["/configz", "/checkpoint/default/own-node-a/main", "/statusz", "/flagz"] {
        assert_eq!(served.place.get(path, Some(&admin)).0, 404, "{path}");
    }
    assert_eq!(served.place.get("/pods", Some(&admin)).0, 200);
    let mut served = Served::new(Options::default());
    served.start(&format!("{ALLOWS_ALL}enableSystemLogHandler: false\n"), &[]);
    let closed = (405, "logs endpoint is disabled.\n".to_owned());
    assert_eq!(served.place.get("/logs/", Some(&served.admin())), closed);
    assert_eq!(served.place.get("/configz", Some(&served.admin())).0, 200);
}

#[test]
fn read_only_port_serves_health_pods_and_metrics_only() {
    let served = with_a_pod("readOnlyPort: 10255\n");
    let address = SocketAddr::new(served.place.ip(), 10255);
    assert_eq!(get_plain(address, "/healthz"), (200, "ok".to_owned()));
    let (status, pods) = get_plain(address, "/pods");
    assert!(status == 200 && pods.contains("own-node-a"), "{pods}");
    for page in ["/metrics", "/metrics/probes", "/metrics/resource", "/metrics/cadvisor", "/stats/summary"] {
        assert_eq!(get_plain(address, page).0, 200, "{page}");
    }
    let pod = "default/own-node-a/main";
    for closed in ["configz", "runningpods/", "logs/", "containerLogs/", "exec/", "run/", "checkpoint/", "debug/pprof/"]
    {
        let path = format!("/{closed}{pod}?command=id&output=1");
        assert_eq!(get_plain(address, &path), (404, "404 page not found\n".to_owned()), "{path}");
    }
    for path in ["exec", "run", "attach", "pods", "checkpoint"] {
        let head = format!("POST /{path}/{pod}?output=1&command=id HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(say_plain(address, &head).0, 405, "{path}");
    }
    // The port is closed by default.
    let other = with_a_pod(ALLOWS_ALL);
    assert!(TcpStream::connect(SocketAddr::new(other.place.ip(), 10255)).is_err());
}

#[test]
fn web_socket_bearer_token_authenticates_and_never_reaches_the_runtime() {
    let served = with_a_pod(ALLOWS_ALL);
    served.joined.api.add_token("tok-5f2b", &Identity::new("viewer", &["viewers"]));
    let runtime = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/exec/abc", runtime.local_addr().unwrap());
    served.joined.node.fake.on("Exec").answer(&encode(&ExecResponse { url }));
    let head = |protocols: &str| {
        format!(
            "GET /exec/default/own-node-a/main?command=id&output=1 HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             Sec-WebSocket-Protocol: {protocols}\r\n\r\n"
        )
    };
    let token = "base64url.bearer.authorization.k8s.io.dG9rLTVmMmI";
    for refused in [token, &format!("{token}x, v4.channel.k8s.io"), "v4.channel.k8s.io"] {
        let answer = served.place.reach(None).say(&head(refused));
        assert_eq!(answer, Some((401, "Unauthorized".to_owned())), "{refused}");
    }
    let mut door = served.place.reach(None);
    assert!(door.begin(head(&format!("{token}, v4.channel.k8s.io")).as_bytes()));
    let (mut handed_on, _) = runtime.accept().unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        handed_on.read_exact(&mut byte).unwrap();
        heard.push(byte[0]);
    }
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.starts_with("GET /exec/abc HTTP/1.1\r\n"), "{heard}");
    assert!(
        heard.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n") && !heard.contains("dG9rLTVmMmI"),
        "{heard}"
    );
    handed_on.write_all(b"HTTP/1.1 400 no\r\nContent-Length: 0\r\n\r\n").unwrap();
    let log = served.joined.node.log();
    assert!(!log.contains("dG9rLTVmMmI") && !log.contains("tok-5f2b"), "{log}");
}
