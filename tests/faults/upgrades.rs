//! Updates of the agent and of its configuration: the real program below a loop that restarts it, as an init does.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::node::{CORACLE, Manifest, Node};
use crate::containerd::node::settings;
use crate::wait::{wait, wait_for};

/// A node whose agent is restarted after each exit.
pub(super) struct Board {
    supervisor: Child,
    pub(super) node: Node,
    /// The containers and the sandbox of the pod.
    before: Vec<String>,
}

impl Board {
    fn new() -> Self {
        Self::with(|_| Vec::new())
    }

    /// With further flags of the agent, for the node's folder.
    pub(super) fn with(flags: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let node = Node::new();
        let flags = flags(node.folder());
        node.apply(&Manifest::new("web").container("main", "one"));
        let log = fs::File::options().create(true).append(true).open(node.folder().join("log")).unwrap();
        let supervisor = Command::new("sh")
            .args(["-c", "while :; do \"$@\"; sleep 0.1; done", "init", CORACLE])
            .args(settings::arguments(node.folder(), &node.fake.endpoint()))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        node.wait_until_ready("web");
        let before = node.seen("web").ids().iter().map(|id| (*id).to_owned()).collect();
        Self { supervisor, node, before }
    }

    pub(super) fn agent(&self) -> PathBuf {
        self.node.folder().join("pods/coracle/agent")
    }

    /// Kills the agent, if it runs at the moment.
    fn kill_agent(&self) {
        let supervisor = self.supervisor.id();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        for child in children.split_whitespace() {
            let _ = kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL);
        }
    }

    /// Stores a program as `coracle upgrade` does. Returns its digest.
    fn store(&self, program: &[u8]) -> String {
        let digest: String = Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.agent().join("slots").join(&digest).join("coracle");
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let unfinished = path.with_extension("new");
            let options = fs::File::options().write(true).create_new(true).mode(0o700).open(&unfinished);
            options.unwrap().write_all(program).unwrap();
            fs::rename(unfinished, path).unwrap();
        }
        digest
    }

    /// Puts a stored program on trial. False if the agent does not answer.
    fn arm(&self, digest: &str, version: &str, seconds: u32) -> bool {
        self.post(&format!("/agent?what=program&digest={digest}&version={version}&within={seconds}"))
    }

    fn post(&self, path: &str) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.node.folder().join("coracle.sock")) else { return false };
        let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        stream
            .write_all(request.as_bytes())
            .and_then(|()| stream.read_to_string(&mut answer))
            .is_ok_and(|_| answer.starts_with("HTTP/1.1 200 "))
    }

    pub(super) fn record(&self) -> Value {
        let text = fs::read_to_string(self.agent().join("record.json")).unwrap_or_default();
        text.split_once('\n').and_then(|(_, json)| serde_json::from_str(json).ok()).unwrap_or_default()
    }

    /// Waits for the end of the trial. Returns whether it was accepted, and why not.
    #[track_caller]
    fn verdict(&self) -> (bool, String) {
        let record = wait(|| {
            let record = self.record();
            if record["trial"].is_null() && record["last"].is_object() { Ok(record) } else { Err(format!("{record}")) }
        });
        let last = &record["last"];
        (last["accepted"].as_bool().unwrap(), last["reason"].as_str().unwrap().to_owned())
    }

    /// The agent answers, and has restarted nothing.
    #[track_caller]
    pub(super) fn check_pods(&self) {
        self.node.wait_until_ready("web");
        assert_eq!(self.node.seen("web").ids(), self.before);
    }

    /// The result of a command line on this node: its exit code, and what it printed.
    pub(super) fn run(&self, line: &[&str]) -> (i32, String) {
        let folder = self.node.folder();
        let mut command = Command::new(CORACLE);
        command.args(line).arg("--local-socket").arg(folder.join("coracle.sock"));
        let output = command.arg("--root-dir").arg(folder.join("pods")).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
    }

    /// A program beside this one: the agent with another digest.
    pub(super) fn other_program(&self, mark: &str) -> PathBuf {
        let path = self.node.folder().join(format!("coracle-{mark}"));
        fs::copy(CORACLE, &path).unwrap();
        fs::File::options().append(true).open(&path).unwrap().write_all(mark.as_bytes()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(i32::try_from(self.supervisor.id()).unwrap()), Signal::SIGKILL);
        let _ = self.supervisor.wait();
    }
}

fn script(text: &str) -> Vec<u8> {
    format!("#!/bin/sh\n{text}\n").into_bytes()
}

pub(crate) fn key_and_signature(program: &Path) -> (String, String) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let base64 = |bytes: &[u8]| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    (base64(pair.public_key().as_ref()), base64(pair.sign(&fs::read(program).unwrap()).as_ref()))
}

#[test]
fn signed_program_is_tried_accepted_and_rolled_back() {
    let board = Board::new();
    let program = board.other_program("a");
    let folder = board.node.folder();
    let (key, signature) = key_and_signature(&program);
    fs::write(folder.join("key"), key).unwrap();
    fs::write(folder.join("coracle-a.sig"), &signature).unwrap();
    let (path, key) = (program.to_str().unwrap(), folder.join("key"));
    let line = ["upgrade", path, "--public-key", key.to_str().unwrap(), "--within", "5s", "--wait"];
    let (code, text) = board.run(&line);
    assert!(code == 0 && text.contains(" accepted\n"), "{text}");
    board.check_pods();
    let digest = board.record()["current"]["digest"].as_str().unwrap().to_owned();
    let slot = board.agent().join("slots").join(&digest).join("coracle");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", board.supervisor.id())).unwrap();
    assert_eq!(fs::read_link(format!("/proc/{}/exe", children.trim())).unwrap(), slot);
    // An accepted program survives every end.
    board.kill_agent();
    board.check_pods();
    assert_eq!(board.record()["current"]["digest"], *digest);
    let (code, text) = board.run(&["upgrade", "status"]);
    assert!(code == 0 && text.starts_with(&format!("Runs:   version {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let (code, text) = board.run(&["upgrade", "rollback"]);
    assert_eq!((code, &*text), (0, "the agent restarts as the installed program\n"));
    wait_for("the installed program", || board.record()["current"].is_null());
    board.check_pods();
}

#[test]
fn delta_against_the_running_program_is_verified_rebuilt_and_tried() {
    let board = Board::new();
    let folder = board.node.folder();
    let program = board.other_program("n");
    let delta = folder.join("n.delta");
    let [old, new, target] = [Path::new(CORACLE), &program, &delta].map(|path| path.to_str().unwrap());
    let made = Command::new(CORACLE).args(["images", "delta", old, new, "-o", target]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert!(fs::metadata(&delta).unwrap().len() < 100_000);
    let (key, signature) = key_and_signature(&delta);
    fs::write(folder.join("key"), key).unwrap();
    fs::write(folder.join("n.delta.sig"), signature).unwrap();
    let key = folder.join("key");
    let line = ["upgrade", target, "--public-key", key.to_str().unwrap(), "--within", "2s", "--wait"];
    let (code, text) = board.run(&line);
    assert!(code == 0 && text.contains(" accepted\n"), "{text}");
    let digest: String = Sha256::digest(fs::read(&program).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(board.record()["current"]["digest"], *digest);
    board.check_pods();
    // By now another program runs.
    let (code, text) = board.run(&line);
    assert!(code == 1 && text.contains("it is a delta for another program"), "{text}");
}

#[test]
fn program_that_nobody_signed_or_this_machine_cannot_run_is_refused() {
    let board = Board::new();
    let program = board.other_program("a");
    let folder = board.node.folder();
    let (key, signature) = key_and_signature(&program);
    fs::write(folder.join("key"), &key).unwrap();
    let key = folder.join("key");
    let refused = |path: &Path, more: &[&str]| {
        let line = [&["upgrade", path.to_str().unwrap(), "--public-key", key.to_str().unwrap()], more].concat();
        let (code, text) = board.run(&line);
        assert_eq!(code, 1, "{text}");
        text
    };
    assert!(refused(&program, &[]).contains("coracle-a.sig: No such file"));
    fs::write(folder.join("coracle-a.sig"), &signature).unwrap();
    fs::File::options().append(true).open(&program).unwrap().write_all(b"b").unwrap();
    assert!(refused(&program, &[]).contains("it is not the signature of"));
    let foreign = folder.join("foreign");
    let mut bytes = fs::read(CORACLE).unwrap();
    bytes[18] = 243;
    bytes[19] = 0;
    fs::write(&foreign, &bytes).unwrap();
    assert!(refused(&foreign, &["--unsigned"]).contains("it is for riscv64"));
    // The header of this machine, and nothing behind it.
    let own = fs::read(CORACLE).unwrap();
    fs::write(&foreign, &own[..64]).unwrap();
    assert!(refused(&foreign, &["--unsigned"]).contains("cannot be executed"));
    let text = script("exit 0");
    fs::write(&foreign, text).unwrap();
    assert!(refused(&foreign, &["--unsigned"]).contains("no ELF header"));
    assert!(board.record().is_null());
    board.check_pods();
}

#[test]
fn crashing_hanging_and_foreign_programs_are_rejected() {
    let board = Board::new();
    let crashes = board.store(&script("exit 1"));
    assert!(board.arm(&crashes, "9.9.1", 60));
    assert_eq!(board.verdict(), (false, "no verdict in 3 starts".to_owned()));
    board.check_pods();
    let foreign = board.store(b"no program at all");
    assert!(board.arm(&foreign, "9.9.2", 60));
    let (is_accepted, reason) = board.verdict();
    assert!(!is_accepted && reason.contains("Exec format error"), "{reason}");
    board.check_pods();
    let log = board.node.log();
    assert!(log.contains("rejected: no verdict in 3 starts; the former one runs reason=AgentUpdateRejected"), "{log}");
    // Three alarms of 1 s and the margin.
    let hangs = board.store(&script("exec sleep 1000"));
    assert!(board.arm(&hangs, "9.9.3", 1));
    for start in 1..=3 {
        wait_for("a start", || board.record()["trial"]["starts"] == start);
    }
    wait_for("the end of the trial", || board.record()["trial"].is_null());
    assert_eq!(board.verdict(), (false, "no verdict in 3 starts".to_owned()));
    board.check_pods();
}

#[test]
fn damaged_record_is_set_aside_and_updates_go_on() {
    let board = Board::new();
    let damage = || {
        fs::create_dir_all(board.agent()).unwrap();
        fs::write(board.agent().join("record.json"), "damaged").unwrap();
    };
    let upgrade = |mark: &str, within: &str| {
        let program = board.other_program(mark);
        board.run(&["upgrade", program.to_str().unwrap(), "--unsigned", "--within", within, "--wait"])
    };
    // The installed program runs, then that of an update, which knows its record.
    for mark in ["a", "b"] {
        damage();
        let (code, text) = upgrade(mark, "2s");
        assert!(code == 0 && text.contains(" accepted\n"), "{text}");
        assert_eq!(board.record()["previous"].is_object(), mark == "b");
        board.check_pods();
    }
    assert_eq!(fs::read_to_string(board.agent().join("record.json.corrupt")).unwrap(), "damaged");
    let log = board.node.log();
    assert!(log.contains("error record of updates unusable, set aside file="), "{log}");
    let said = "record of updates rejected: damaged and set aside; a trial under way has no verdict";
    assert!(board.node.ask(&["events"]).unwrap().contains(said));
    // The launcher finds it.
    damage();
    board.kill_agent();
    board.check_pods();
    assert_eq!(board.verdict(), (false, "damaged and set aside; a trial under way has no verdict".to_owned()));
    wait_for("the line", || board.node.ask(&["status"]).is_some_and(|text| text.contains(said)));
    assert!(board.record()["current"].is_null());
    // The program on trial finds it, whatever its verdict.
    let digest = board.store(&fs::read(board.other_program("c")).unwrap());
    assert!(board.arm(&digest, env!("CARGO_PKG_VERSION"), 20));
    wait_for("the trial", || board.node.ask(&["status"]).is_some_and(|text| text.contains("on trial, start 1 of 3")));
    damage();
    assert_eq!(board.verdict(), (false, "the record of updates was damaged".to_owned()));
    // The former one was the installed program.
    let children = || fs::read_to_string(format!("/proc/{0}/task/{0}/children", board.supervisor.id())).unwrap();
    let runs = || fs::read_link(format!("/proc/{}/exe", children().trim()));
    wait_for("the installed program", || runs().is_ok_and(|program| program == Path::new(CORACLE)));
    board.check_pods();
    let said = "rejected: the record of updates was damaged; the former one runs";
    wait_for("the event", || board.node.log().contains(said));
}

#[test]
fn program_that_runs_without_the_runtime_rejects_itself() {
    let board = Board::new();
    let deaf =
        board.store(&script(&format!("exec {CORACLE} \"$@\" --container-runtime-endpoint unix:///nowhere/x.sock")));
    assert!(board.arm(&deaf, "9.9.1", 2));
    assert_eq!(board.verdict(), (false, "the runtime does not answer".to_owned()));
    // The script gave the process other arguments, with which it executed the launcher.
    board.kill_agent();
    board.check_pods();
    let events = board.node.ask(&["events"]).unwrap();
    assert!(events.contains("AgentUpdateRejected"), "{events}");
}

#[test]
fn bad_configuration_is_undone_and_a_good_one_stays() {
    let board = Board::new();
    let file = board.node.folder().join("config.yaml");
    let former = fs::read_to_string(&file).unwrap();
    let apply = |text: &str| {
        let path = board.node.folder().join("wanted.yaml");
        fs::write(&path, text).unwrap();
        board.run(&["config", "apply", path.to_str().unwrap(), "--within", "2s", "--wait"])
    };
    // It is valid, but no agent starts with it.
    let (code, text) = apply(&format!("{former}systemReserved: {{memory: 100Ti}}\n"));
    assert!(code == 1 && text.contains("no verdict in 3 starts"), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), former);
    board.check_pods();
    let good = format!("{former}maxPods: 7\n");
    let (code, text) = apply(&good);
    assert!(code == 0 && text.ends_with("accepted\n"), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    board.check_pods();
    let (code, text) = apply("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: many\n");
    assert!(code == 1 && text.contains("maxPods"), "{text}");
    let (code, text) = apply(&good);
    assert!(code == 1 && text.contains("has this content already"), "{text}");
    board.kill_agent();
    board.check_pods();
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
}

/// Serves byte ranges of the files, and closes the connection of every fortieth request without an answer. Returns its URL.
pub(crate) fn file_server(folder: PathBuf) -> String {
    serve_files(folder, |number| number % 40 == 39)
}

/// `is_cut` tells which requests get no answer.
fn serve_files(folder: PathBuf, is_cut: fn(usize) -> bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            if !is_cut(number) {
                let _ = serve(stream, &folder);
            }
        }
    });
    url
}

fn serve(mut stream: TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let name = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    let Ok(content) = fs::read(folder.join(name)) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let range = head.lines().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let (status, body) = match range.as_deref().and_then(|range| range.split_once('-')) {
        None => ("200 OK", &content[..]),
        Some((from, to)) => {
            let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
            match content.get(from..content.len().min(to + 1)) {
                Some(part) if !part.is_empty() => ("206 Partial Content", part),
                _ => ("416 Range Not Satisfiable", &b""[..]),
            }
        }
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(body)
}

#[test]
fn program_at_a_url_is_fetched_in_parts_verified_and_tried() {
    let board = Board::with(|folder| {
        fs::write(folder.join("key"), key_and_signature(Path::new(CORACLE)).0).unwrap();
        // Nobody serves the manifests, so the verdict does not need them.
        let url = ["--manifest-url", "http://127.0.57.1:9/x"].map(str::to_owned);
        [&url[..], &["--manifest-public-key".to_owned(), folder.join("key").display().to_string()]].concat()
    });
    let program = board.other_program("u");
    let served = board.node.folder().join("served");
    fs::create_dir(&served).unwrap();
    fs::rename(&program, served.join("coracle")).unwrap();
    let url = format!("{}/coracle", file_server(served.clone()));
    // Each attempt continues the part of the last one.
    let fetch = || {
        for attempt in 1..50 {
            let (code, text) = board.run(&["upgrade", &url, "--within", "2s", "--wait"]);
            if code == 0 || text.contains("404") || text.contains("not signed") {
                return (attempt, code, text);
            }
        }
        panic!("never fetched");
    };
    let (_, code, text) = fetch();
    assert!(code == 1 && text.contains("signature: the server answers 404"), "{text}");
    fs::write(served.join("coracle.sig"), key_and_signature(&board.node.folder().join("key")).1).unwrap();
    let (attempts, code, text) = fetch();
    assert!(code == 1 && text.contains("not signed by this node's key"), "{text}");
    assert!(attempts > 1, "no request was cut");
    fs::write(served.join("coracle.sig"), key_and_signature(&served.join("coracle")).1).unwrap();
    let (_, code, text) = fetch();
    assert!(code == 0 && text.ends_with("accepted\n"), "{text}");
    board.check_pods();
}

/// Serves `manifest` with its signature as the board's manifests.
fn publish(served: &Path, manifest: &str) {
    let unfinished = served.join("new");
    fs::write(&unfinished, manifest).unwrap();
    fs::write(served.join("board.yaml.sig"), key_and_signature(&unfinished).1).unwrap();
    fs::rename(unfinished, served.join("board.yaml")).unwrap();
}

#[test]
fn signed_manifests_name_the_version_of_the_agent() {
    let mut server = String::new();
    let board = Board::with(|folder| {
        fs::write(folder.join("key"), key_and_signature(Path::new(CORACLE)).0).unwrap();
        let served = folder.join("served");
        fs::create_dir(&served).unwrap();
        publish(&served, "apiVersion: v1\nkind: PodList\nitems: []\n");
        // The agent waits half a minute after an interruption.
        server = serve_files(served, |_| false);
        let url =
            ["--manifest-url", &format!("{server}/board.yaml"), "--http-check-frequency", "1s"].map(str::to_owned);
        let key = ["--manifest-public-key".to_owned(), folder.join("key").display().to_string()];
        [&url[..], &key, &["--manifest-plain-signatures".to_owned()]].concat()
    });
    let served = board.node.folder().join("served");
    let digest =
        |program: &[u8]| -> String { Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect() };
    let ask = |name: &str, digest: &str| {
        let sha256: Vec<String> =
            ["amd64", "arm64", "arm", "386", "riscv64"].iter().map(|arch| format!("{arch}: {digest}")).collect();
        let spec = format!(
            "{{version: {}, url: '{server}/{name}', withinSeconds: 2, sha256: {{{}}}}}",
            env!("CARGO_PKG_VERSION"),
            sha256.join(", ")
        );
        publish(&served, &format!("apiVersion: coracle.dev/v1\nkind: Agent\nspec: {spec}\n"));
    };
    let wait_for_end = |part: &str| {
        wait_for(part, || {
            board
                .node
                .ask(&["status"])
                .is_some_and(|text| text.lines().any(|line| line.starts_with("    agent: ") && line.contains(part)))
        });
        board.check_pods();
        let (code, text) = board.run(&["upgrade", "status"]);
        assert!(code == 0 && text.contains(part), "{text}");
    };
    let program = fs::read(board.other_program("d")).unwrap();
    fs::write(served.join("program"), &program).unwrap();
    ask("program", &"a".repeat(64));
    wait_for_end(" rejected: its sha256 is not aaaa");
    fs::write(served.join("header"), &program[..64]).unwrap();
    ask("header", &digest(&program[..64]));
    wait_for_end(" rejected: it cannot be executed");
    assert_eq!(fs::read_dir(board.agent().join("slots")).unwrap().count(), 0, "a refused program is removed");
    ask("program", &digest(&program));
    wait_for_end(" accepted");
    assert_eq!(board.record()["current"]["digest"], *digest(&program));
    // The document is in the stored response, and a program that was rolled back is not tried again.
    let asked = board.record()["asked"].clone();
    board.run(&["upgrade", "rollback"]);
    wait_for("the installed program", || board.record()["current"].is_null());
    board.kill_agent();
    board.check_pods();
    std::thread::sleep(Duration::from_secs(2));
    let record = board.record();
    assert!(record["current"].is_null() && record["trial"].is_null() && record["asked"] == asked, "{record}");
}

#[test]
fn signed_manifests_configure_the_agent_and_what_cuts_the_board_off_is_undone() {
    let board = Board::with(|folder| {
        fs::write(folder.join("key"), key_and_signature(Path::new(CORACLE)).0).unwrap();
        let served = folder.join("served");
        fs::create_dir(&served).unwrap();
        publish(&served, "apiVersion: v1\nkind: PodList\nitems: []\n");
        let url = format!("staticPodURL: {}/board.yaml\nhttpCheckFrequency: 1s\n", file_server(served));
        fs::File::options().append(true).open(folder.join("config.yaml")).unwrap().write_all(url.as_bytes()).unwrap();
        let key = ["--manifest-public-key".to_owned(), folder.join("key").display().to_string()];
        [&key[..], &["--manifest-plain-signatures".to_owned()]].concat()
    });
    let file = board.node.folder().join("config.yaml");
    let served = board.node.folder().join("served");
    let ask = |config: &str, part: &str| {
        let text: String = config.lines().map(|line| format!("    {line}\n")).collect();
        let spec = format!("spec:\n  withinSeconds: 2\n  config: |\n{text}");
        publish(&served, &format!("apiVersion: coracle.dev/v1\nkind: Agent\n{spec}"));
        wait_for(part, || {
            let text = board.node.ask(&["status"]).unwrap_or_default();
            text.lines().any(|line| line.starts_with("    agent: ") && line.contains(part))
        });
        board.check_pods();
    };
    let former = fs::read_to_string(&file).unwrap();
    let good = format!("{former}maxPods: 7\n");
    ask(&good, " accepted");
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    // Without the record it may not have been judged, and has another trial.
    fs::write(board.agent().join("record.json"), "damaged").unwrap();
    board.kill_agent();
    wait_for("another verdict", || board.record()["last"]["accepted"] == true);
    board.check_pods();
    assert_eq!(board.node.log().matches("coracle: start 1 of 3 of ").count(), 2);
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    let port = good.split("staticPodURL: ").nth(1).unwrap().lines().next().unwrap();
    ask(&good.replace(port, "http://127.0.59.1:9/x"), "rejected: the URL of manifests does not answer");
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    ask(&former.replace("healthzPort: 0", "healthzPort: none"), "rejected: healthzPort: ");
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
}

#[test]
fn configuration_of_the_runtime_is_tried_and_undone_also_without_its_judge() {
    let board = Board::new();
    let folder = board.node.folder();
    let (file, wanted) = (folder.join("runtime.toml"), folder.join("wanted.toml"));
    fs::write(&file, "former").unwrap();
    // Does not start with "bad", and kills what has started it with "kill".
    let restart = format!("f={}; if grep -q kill $f; then kill -9 $PPID; fi; ! grep -q bad $f", file.display());
    let apply = |text: &str| {
        fs::write(&wanted, text).unwrap();
        let [file, wanted] = [&file, &wanted].map(|path| path.to_str().unwrap());
        let line = ["runtime-config", "containerd", "--apply", wanted, "--file", file, "--within", "5s"];
        let mut command = Command::new(CORACLE);
        command.args(line).args(["--restart-command", &restart]).arg("--root-dir").arg(folder.join("pods"));
        let output = command.arg("--local-socket").arg(folder.join("coracle.sock")).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text, fs::read_to_string(file).unwrap())
    };
    let (code, text, content) = apply("good");
    assert_eq!((code, &*content), (Some(0), "good"), "{text}");
    let (code, text, content) = apply("bad");
    assert!(text.contains("rejected: ") && text.contains("the former one is back"), "{text}");
    assert_eq!((code, &*content), (Some(1), "good"));
    let (code, _, content) = apply("kill");
    assert_eq!((code, &*content), (None, "kill"));
    board.kill_agent();
    wait_for("the former configuration", || fs::read_to_string(&file).unwrap() == "good");
    board.check_pods();
    assert!(board.node.log().contains("rejected: its trial has ended without a verdict; the former one is back"));
    let (code, text, content) = apply("better");
    assert_eq!((code, &*content), (Some(0), "better"), "{text}");
}

/// The candidate alternates, and the agent is killed at another moment of each trial.
#[test]
fn killed_at_any_moment_the_board_keeps_an_agent_and_its_pods() {
    let rounds = std::env::var("UPGRADE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(6);
    let board = Board::new();
    let programs = ["a", "b"].map(|mark| fs::read(board.other_program(mark)).unwrap());
    let crashes = script("exit 1");
    for round in 0..rounds {
        // Three kills reject a good program, too. What runs is no candidate.
        let current = board.record()["current"]["digest"].clone();
        let others = if round % 3 == 2 { vec![&crashes] } else { programs.iter().collect() };
        // A verdict removes what is not needed any longer.
        let digest = others.into_iter().map(|program| board.store(program)).find(|digest| current != **digest).unwrap();
        wait_for("the agent", || board.arm(&digest, "9.9.9", 1) || !board.record()["trial"].is_null());
        for kill in 0..3 {
            // A spread of moments that does not repeat: before the restart, in the launcher, in the candidate.
            std::thread::sleep(Duration::from_millis(((round * 7 + kill * 3) * 37 % 700).try_into().unwrap()));
            board.kill_agent();
        }
        board.verdict();
        board.check_pods();
    }
    assert!(!board.record()["current"].is_null() || rounds < 2, "{}", board.record());
}
