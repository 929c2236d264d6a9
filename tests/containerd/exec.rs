//! `coracle exec` and `attach`: streams, exit codes, signals and terminals.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use super::node::{Manifest, Node, PATIENCE, STAY, coracle, wait_for};

impl Node {
    /// A `coracle` command that talks to this node's agent.
    pub(crate) fn coracle(&self, command: &str, line: &[&str]) -> Command {
        let mut coracle = Command::new(coracle());
        coracle.args([command, "--local-socket"]).arg(self.folder().join("coracle.sock")).args(line);
        coracle
    }

    fn exec(&self, line: &[&str]) -> Output {
        self.coracle("exec", line).stdin(Stdio::null()).output().unwrap()
    }

    /// A node with a running pod named web.
    fn with_web() -> Self {
        let node = Self::start();
        node.apply(&Manifest::new("web").container("main", STAY).container("other", STAY));
        node.wait_until("both containers run", |pods| pods.has("web", |pod| pod.is_ready()));
        node
    }

    /// The command lines of the processes in a container.
    fn processes(&self) -> Vec<String> {
        let list = self.exec(&["web", "-c", "main", "--", "ps", "-o", "args"]);
        String::from_utf8_lossy(&list.stdout).lines().map(|line| line.trim().to_owned()).collect()
    }

    #[track_caller]
    fn wait_for_process(&self, line: &str) {
        wait_for(line, PATIENCE, || self.processes().iter().any(|process| process == line).then_some(()));
    }

    fn agents_connections(&self) -> usize {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.agent_pid())).unwrap().flatten();
        fds.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))).count()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Peak resident memory of a process, in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

#[test]
fn exec_passes_streams_and_the_exit_code() {
    let node = Node::with_web();
    let done = node.exec(&["web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((text(&done.stdout), done.status.code()), ("out\n", Some(7)));
    let chosen = "coracle: container main of main, other; use -c to choose another\n";
    assert_eq!(text(&done.stderr), format!("{chosen}err\n"));
    let done = node.exec(&["default/web-node-a", "-c", "other", "--", "echo", "a b", "c=&d", "--", "-n"]);
    assert_eq!((text(&done.stdout), text(&done.stderr)), ("a b c=&d -- -n\n", ""));
    assert!(done.status.success());
    // A process killed by a signal exits with 128 plus its number.
    let done = node.exec(&["web", "-c", "main", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(done.status.code(), Some(137));
    // 50 commands at once.
    let all: Vec<Child> = (0..50)
        .map(|number| {
            let script = format!("cat; echo {number}; exit {number}");
            let mut one = node.coracle("exec", &["-i", "web", "-c", "main", "--", "sh", "-c", &script]);
            one.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (number, mut one) in (0..50).zip(all) {
        writeln!(one.stdin.take().unwrap(), "in {number}").unwrap();
        let done = one.wait_with_output().unwrap();
        assert_eq!(text(&done.stderr), "");
        assert_eq!((text(&done.stdout), done.status.code()), (&*format!("in {number}\n{number}\n"), Some(number)));
    }
}

#[test]
fn exec_errors_fit_on_one_line() {
    let node = Node::with_web();
    node.apply(&Manifest::new("done").container("main", "exit 3").spec("restartPolicy: Never"));
    node.wait_until("the other has ended", |pods| pods.has("done", |pod| pod.phase() == "Failed"));
    for (line, told) in [
        (&["wen", "--", "ls"][..], "no pod wen (did you mean web?); coracle pods lists all pods"),
        (&["web", "-c", "x", "--", "ls"], "pod web-node-a has no container x: main, other"),
        (
            &["done", "--", "ls"],
            "container main of pod done-node-a is not running (ended with exit code 3); \
             see coracle describe done-node-a",
        ),
    ] {
        let done = node.exec(line);
        assert_eq!((text(&done.stderr), done.status.code()), (&*format!("coracle: {told}\n"), Some(1)), "{line:?}");
    }
    let done = node.exec(&["web", "-c", "main", "--", "no-such-program"]);
    let told = text(&done.stderr);
    assert_eq!((told.lines().count(), done.status.code()), (1, Some(1)), "{told}");
    assert!(told.starts_with("coracle: ") && told.contains("no-such-program"), "{told}");
}

#[test]
fn exec_streams_large_data_in_constant_memory() {
    const ALL: usize = 100 << 20;
    let node = Node::with_web();
    let before = peak(node.agent_pid());
    let mut cat = node.coracle("exec", &["-i", "web", "-c", "main", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // All pages differ, so that a lost or repeated page is found.
    let page =
        |number: usize| (0..4096_usize).map(move |at| (number.wrapping_mul(0x9e37_79b1) >> (at % 24)).to_le_bytes()[0]);
    let (mut to, mut from) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    let begun = Instant::now();
    let writer = thread::spawn(move || {
        for number in 0..ALL / 4096 {
            to.write_all(&page(number).collect::<Vec<_>>()).unwrap();
        }
    });
    let mut come = vec![0; 4096];
    let mut client = 0;
    for number in 0..ALL / 4096 {
        from.read_exact(&mut come).unwrap();
        assert!(come.iter().copied().eq(page(number)), "page {number}");
        if number == ALL / 4096 - 100 {
            client = peak(cat.id());
        }
    }
    let agent = peak(node.agent_pid());
    eprintln!(
        "100 MiB there and back in {:?}; client {client} KiB, agent {before} KiB, then {agent} KiB",
        begun.elapsed()
    );
    assert_eq!(from.read(&mut come).unwrap(), 0);
    writer.join().unwrap();
    assert!(cat.wait().unwrap().success());
    assert!(client > 0 && client < 24 << 10, "{client} KiB");
    assert!(agent < before + (4 << 10), "{before} KiB, then {agent} KiB");
}

#[test]
fn slow_reader_blocks_exec_and_a_killed_client_leaves_nothing() {
    let node = Node::with_web();
    let connections = node.agents_connections();
    // After a client disconnects, the runtime does not stop a process that reads no input; here the shell ends `cat`.
    let script = "cat /dev/zero & read end; kill $!";
    let mut flood = node.coracle("exec", &["-i", "web", "-c", "main", "--", "sh", "-c", script]);
    let mut flood = flood.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut shell = node.coracle("exec", &["-i", "web", "-c", "main", "--", "sh", "-c", "echo here; cat"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut here = [0; 5];
    shell.stdout.as_mut().unwrap().read_exact(&mut here).unwrap();
    flood.stdout.as_mut().unwrap().read_exact(&mut here).unwrap();
    let held = peak(flood.id());
    // What it holds must not grow while nothing reads.
    thread::sleep(Duration::from_secs(2));
    assert!(peak(flood.id()) < held + 1024, "{held} KiB, then {} KiB", peak(flood.id()));
    assert!(node.processes().iter().any(|process| process == "cat /dev/zero"));
    for child in [&mut flood, &mut shell] {
        signal(child, Signal::SIGKILL);
        child.wait().unwrap();
    }
    wait_for("the commands to end", PATIENCE, || {
        let left = node.processes().into_iter().filter(|process| process.starts_with("cat")).count();
        (left == 0).then_some(())
    });
    wait_for("the agent to have no connection more", PATIENCE, || {
        (node.agents_connections() <= connections).then_some(())
    });
    // A reader that closes its end stops the client.
    let mut flood = node.coracle("exec", &["-i", "web", "-c", "main", "--", "sh", "-c", script]);
    let mut flood = flood.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    flood.stdout.take().unwrap().read_exact(&mut here).unwrap();
    assert_eq!(flood.wait().unwrap().code(), Some(128 + 13));
    // Without a terminal the client reacts to signals as any program does.
    let mut waits = node.coracle("exec", &["web", "-c", "main", "--", "sleep", "500"]).spawn().unwrap();
    node.wait_for_process("sleep 500");
    // Not SIGINT: background jobs of a shell ignore it.
    signal(&waits, Signal::SIGTERM);
    assert_eq!(waits.wait().unwrap().signal(), Some(15));
}

/// A pseudoterminal with a user at it.
struct Terminal {
    keys: File,
    line: OwnedFd,
    /// Output that no call has consumed yet.
    shown: String,
}

impl Terminal {
    fn new(columns: u16, rows: u16) -> Self {
        let pty = nix::pty::openpty(None, None).unwrap();
        let terminal = Self { keys: File::from(pty.master), line: pty.slave, shown: String::new() };
        terminal.resize(columns, rows);
        terminal
    }

    fn resize(&self, ws_col: u16, ws_row: u16) {
        tcsetwinsize(&self.keys, Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    /// Runs a command with this as its controlling terminal.
    fn run(&self, command: &Command) -> Child {
        let mut run = Command::new("setsid");
        run.arg("--ctty").arg(command.get_program()).args(command.get_args());
        let line = || Stdio::from(self.line.as_fd().try_clone_to_owned().unwrap());
        run.stdin(line()).stdout(line()).stderr(line()).spawn().unwrap()
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads the output until it contains `text`.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            assert!(Instant::now() < until, "waited in vain for {text:?} in {:?}", self.shown);
            let mut fds = [nix::poll::PollFd::new(self.keys.as_fd(), nix::poll::PollFlags::POLLIN)];
            if nix::poll::poll(&mut fds, 500_u16).unwrap() > 0 {
                let mut chunk = [0; 1024];
                let read = self.keys.read(&mut chunk).unwrap();
                self.shown.push_str(&String::from_utf8_lossy(&chunk[..read]));
            }
        }
    }

    /// Whether the line discipline edits and echoes input and turns Ctrl-C into a signal.
    fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        let cooked =
            rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ISIG;
        modes.contains(cooked)
    }
}

#[test]
fn exec_hands_the_terminal_over_and_restores_it() {
    let node = Node::with_web();
    let shell = node.coracle("exec", &["-it", "web", "-c", "main", "--", "sh"]);
    let mut terminal = Terminal::new(97, 31);
    assert!(terminal.is_cooked());
    let mut child = terminal.run(&shell);
    terminal.type_in("echo size $(stty size) $TERM; test -t 0 && echo tty $((6*7))\n");
    terminal.wait_for("size 31 97 xterm\r\n");
    terminal.wait_for("tty 42");
    assert!(!terminal.is_cooked());
    terminal.resize(120, 40);
    terminal.type_in("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo now $(stty size)\n");
    terminal.wait_for("now 40 120");
    // Ctrl-C goes to the process in the container.
    terminal.type_in("sleep 1000\n");
    node.wait_for_process("sleep 1000");
    terminal.type_in("\x03");
    terminal.type_in("echo after $?\n");
    terminal.wait_for("after 130");
    terminal.type_in("exit 9\n");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(terminal.is_cooked());

    // A signal ends the client, which restores the terminal.
    let mut child = terminal.run(&shell);
    terminal.type_in("echo $((6*7))\n");
    terminal.wait_for("42");
    assert!(!terminal.is_cooked());
    signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(terminal.is_cooked());
    // Without a terminal as input, -t prints a warning and continues.
    let done = node.exec(&["-it", "web", "-c", "main", "--", "sh", "-c", "test -t 0 || echo none"]);
    assert_eq!(text(&done.stdout), "none\n");
    assert!(text(&done.stderr).contains("no terminal here"), "{}", text(&done.stderr));
}

#[test]
fn attach_streams_a_containers_input_and_output() {
    let node = Node::start();
    let script = "while read line; do echo got $line; done; echo over; exit 5";
    let plain = Manifest::new("plain").container_with("main", script, "stdin: true").spec("restartPolicy: Never");
    let console = Manifest::new("console").container_with("main", "exec sh", "stdin: true, tty: true");
    let deaf = Manifest::new("deaf").container("main", "while sleep 0.2; do echo tick; done");
    for manifest in [&plain, &console, &deaf] {
        node.apply(manifest);
    }
    node.wait_until("all run", |pods| {
        ["plain", "console", "deaf"].iter().all(|name| pods.has(name, |pod| pod.is_ready()))
    });

    let mut attached = node.coracle("attach", &["-i", "plain"]);
    let mut attached = attached.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    attached.stdin.as_mut().unwrap().write_all(b"one\n").unwrap();
    let mut got = [0; 8];
    attached.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    assert_eq!(&got, b"got one\n");
    // A client that disconnects leaves the container unchanged.
    signal(&attached, Signal::SIGKILL);
    attached.wait().unwrap();
    assert!(node.pods().has("plain", |pod| pod.is_ready()));

    let mut terminal = Terminal::new(80, 24);
    let mut child = terminal.run(&node.coracle("attach", &["-it", "console"]));
    terminal.wait_for("attached");
    terminal.type_in("echo $((6*7)) $(stty size)\n");
    terminal.wait_for("42 24 80");
    terminal.type_in("exit\n");
    child.wait().unwrap();
    assert!(terminal.is_cooked());

    let mut attached = node.coracle("attach", &["deaf"]);
    let mut attached = attached.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut got = [0; 5];
    attached.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    assert_eq!(&got, b"tick\n");
    signal(&attached, Signal::SIGTERM);
    assert_eq!(attached.wait().unwrap().signal(), Some(15));
    let done = node.coracle("attach", &["-i", "deaf"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&done.stderr), "coracle: container main takes no input: its manifest has no stdin: true\n");
}
