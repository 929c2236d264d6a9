//! `coracle port-forward`: local connections forwarded to a pod.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::node::{Manifest, Node, PATIENCE, wait_for};

/// A running `coracle port-forward`, killed with the test.
struct Forward {
    child: Child,
    /// The local addresses and the pod's port of each.
    lines: Vec<(SocketAddr, u16)>,
    stderr: BufReader<ChildStderr>,
}

impl Forward {
    fn start(node: &Node, line: &[&str], ports: usize) -> Self {
        let mut forward = node.coracle("port-forward", line);
        let mut child = forward.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = (0..ports).map(|_| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let (address, port) = line.strip_prefix("Forwarding from ").unwrap().trim().split_once(" -> ").unwrap();
            (address.parse().unwrap(), port.parse().unwrap())
        });
        let lines = lines.collect();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines, stderr }
    }

    fn connect(&self, remote: u16) -> TcpStream {
        let (address, _) = self.lines.iter().find(|(_, port)| *port == remote).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects to the echo server and waits for an echo. nc keeps a backlog of two connections and resets others.
    fn connect_to_echo(&self) -> TcpStream {
        let mut stream = self.connect(7);
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let mut told = String::new();
            let _ = self.stderr.read_to_string(&mut told);
            eprintln!("--- coracle port-forward said:\n{told}");
        }
    }
}

/// A pod that becomes ready once it listens on this many ports.
fn web(script: &str, ports: usize, fields: &str) -> Manifest {
    let listens = format!("test $(cat /proc/net/tcp /proc/net/tcp6 | grep -c ' 0A ') = {ports}");
    let probe = format!("readinessProbe: {{periodSeconds: 1, exec: {{command: [sh, -c, \"{listens}\"]}}}}");
    let fields = if fields.is_empty() { probe } else { format!("{fields}, {probe}") };
    Manifest::new("web").spec("terminationGracePeriodSeconds: 1").container_with("main", script, &fields)
}

#[test]
fn many_connections_are_forwarded_in_both_directions() {
    let node = Node::start();
    // An echo server and a page.
    let script = "nc -ll -p 7 -e cat & nc -ll -p 80 -e sh -c 'read line; echo you said $line' & wait";
    let ports = "ports: [{name: echo, containerPort: 7}, {containerPort: 80}]";
    node.apply(&web(script, 2, ports));
    node.wait_until("the pod runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let mut forward = Forward::start(&node, &["web", ":echo", ":80"], 2);
    assert!(forward.lines.iter().all(|(address, _)| address.ip().is_loopback() && address.port() > 0));

    let talks: Vec<_> = (0..20_usize)
        .map(|number| {
            let mut out = forward.connect_to_echo();
            thread::spawn(move || {
                let said: Vec<u8> = (0..200_000).map(|at| ((at * (number + 1)) >> 3_usize).to_le_bytes()[0]).collect();
                let mut back = out.try_clone().unwrap();
                let writer = thread::spawn({
                    let said = said.clone();
                    move || out.write_all(&said).unwrap()
                });
                let mut heard = vec![0; said.len()];
                back.read_exact(&mut heard).unwrap();
                assert!(heard == said, "connection {number}");
                writer.join().unwrap();
            })
        })
        .collect();
    for talk in talks {
        talk.join().unwrap();
    }
    // A client that closes its sending side still receives the whole response.
    let mut line = forward.connect(80);
    line.write_all(b"hello\n").unwrap();
    let mut answer = String::new();
    line.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "you said hello\n");
    // A client that does not read does not block other connections.
    let mut idle = forward.connect_to_echo();
    idle.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let blocked = std::iter::repeat_with(|| idle.write(&[7; 100_000])).find_map(Result::err).unwrap();
    assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
    let mut line = forward.connect(80);
    line.write_all(b"again\n").unwrap();
    line.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    line.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "you said again\n");

    kill(Pid::from_raw(forward.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert!(forward.child.wait().unwrap().success());
    let mut told = String::new();
    forward.stderr.read_to_string(&mut told).unwrap();
    assert_eq!(told, "");
}

#[test]
fn reset_connection_is_reported_and_blocks_no_other() {
    let node = Node::start();
    // A server that exits with unread input resets the connection.
    let script = "nc -ll -p 7 -e cat & nc -ll -p 9 -e sleep 0.1 & wait";
    node.apply(&web(script, 2, ""));
    node.wait_until("the pod runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let mut forward = Forward::start(&node, &["web", "0:7", "0:9"], 2);
    let mut long = forward.connect_to_echo();
    for _ in 0..10 {
        let mut reset = forward.connect(9);
        while reset.write(&[9; 50_000]).is_ok() {}
        long.write_all(b"still here").unwrap();
        long.read_exact(&mut [0; 10]).unwrap();
        forward.connect_to_echo();
    }
    let mut told = String::new();
    forward.stderr.read_line(&mut told).unwrap();
    assert!(told.starts_with("coracle: ") && told.contains("reset"), "{told}");
}

#[test]
fn forwarding_resumes_after_an_agent_restart() {
    let mut node = Node::start();
    node.apply(&web("nc -ll -p 7 -e cat & wait", 1, ""));
    node.wait_until("the pod runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let mut forward = Forward::start(&node, &["web", "0:7"], 1);
    let mut before = forward.connect_to_echo();
    node.stop_agent(Signal::SIGTERM);
    assert_eq!(before.read(&mut [0]).unwrap_or_default(), 0);
    assert_eq!(forward.connect(7).read(&mut [0]).unwrap_or_default(), 0);
    let mut told = [String::new(), String::new()];
    for told in &mut told {
        forward.stderr.read_line(told).unwrap();
    }
    assert!(told[0].contains("lost") && told[1].contains("not running"), "{told:?}");
    node.start_agent();
    node.wait_until("the pod is known", |pods| pods.has("web", |pod| pod.is_ready()));
    forward.connect_to_echo();
}

#[test]
fn closed_port_is_reported_and_the_others_keep_working() {
    let node = Node::start();
    node.apply(&web("nc -ll -p 80 -e echo here & wait", 1, ""));
    node.wait_until("the pod runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let mut forward = Forward::start(&node, &["web", "0:81", "0:80"], 2);
    let mut nobody = forward.connect(81);
    assert_eq!(nobody.read(&mut [0]).unwrap_or_default(), 0);
    let mut told = String::new();
    forward.stderr.read_line(&mut told).unwrap();
    assert!(told.starts_with("coracle: ") && told.contains("81"), "{told}");
    let mut answer = String::new();
    forward.connect(80).read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "here\n");

    // A local port in use and an unknown pod are reported at once.
    let taken = format!("{}:80", forward.lines[1].0.port());
    let done = node.coracle("port-forward", &["web", &taken]).output().unwrap();
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(told.starts_with("coracle: listen on 127.0.0.1, port ") && told.contains("in use"), "{told}");
    assert_eq!(done.status.code(), Some(1));
    // After a pod is replaced, connections to the old pod fail and new ones reach the new pod.
    let before = node.pods().get("web").unwrap().uid().to_owned();
    node.apply(&web("nc -ll -p 80 -e echo again & wait", 1, ""));
    node.wait_until("the new pod runs", |pods| pods.has("web", |pod| pod.uid() != before && pod.is_ready()));
    wait_for("the new pod to answer", PATIENCE, || {
        let mut answer = String::new();
        let read = forward.connect(80).read_to_string(&mut answer);
        (read.is_ok() && answer == "again\n").then_some(())
    });
    // The command reports that the pod is gone and exits.
    node.remove_manifest("web");
    node.wait_until_gone("web");
    let ended = wait_for("the end", PATIENCE, || {
        let _ = TcpStream::connect(forward.lines[1].0);
        forward.child.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(1));
}
