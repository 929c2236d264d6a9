//! exec over WebSocket through port 10250 and a real runtime, as browsers and newer kubectl use it.

use std::fs;
use std::io::{self, Read, Write};

use serde_json::{Value, json};

use super::door::{OPEN, Tls, ask, connect};
use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

/// Opcodes of frames.
const BINARY: u8 = 2;
const PING: u8 = 9;
const PONG: u8 = 10;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// A WebSocket (RFC 6455) connection whose messages start with a channel number.
struct Channels {
    tls: Tls,
    /// The subprotocol that was chosen.
    protocol: String,
    pongs: Vec<Vec<u8>>,
}

/// In v5, which the agent chooses, a channel can be closed.
const BOTH: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

impl Channels {
    /// Offers these subprotocols. `query` has the command and the streams.
    fn open(node: &Node, protocols: &str, query: &str) -> Self {
        let mut tls = connect(node);
        let head = ask(
            &mut tls,
            &format!(
                "GET /exec/default/web-node-a/main?{query} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Protocol: {protocols}\r\n\r\n"
            ),
        );
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let value = |name: &str| {
            let (_, value) =
                head.lines().filter_map(|line| line.split_once(": ")).find(|line| line.0.eq_ignore_ascii_case(name))?;
            Some(value.to_owned())
        };
        // The key and its digest are the example of RFC 6455.
        assert_eq!(value("Sec-WebSocket-Accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        let protocol = value("Sec-WebSocket-Protocol").unwrap();
        assert!(protocols.split(", ").any(|offered| offered == protocol), "{head}");
        Self { tls, protocol, pongs: Vec::new() }
    }

    fn send(&mut self, channel: u8, text: &str) {
        self.send_bytes(&[&[channel], text.as_bytes()].concat());
    }

    fn send_bytes(&mut self, payload: &[u8]) {
        self.send_frame(BINARY, payload);
    }

    fn send_frame(&mut self, opcode: u8, payload: &[u8]) {
        let mask = [1, 2, 3, 4];
        let length = u8::try_from(payload.len()).unwrap();
        assert!(length < 126);
        let mut frame = vec![0x80 | opcode, 0x80 | length];
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.tls.write_all(&frame).unwrap();
    }

    /// The next message that is not empty; `None` when the other side closes.
    fn next(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            let [first, second] = self.bytes()?;
            let length = match second {
                126 => u64::from(u16::from_be_bytes(self.bytes()?)),
                127 => u64::from_be_bytes(self.bytes()?),
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.tls.read_exact(&mut payload)?;
            match (first & 0x0f, payload.split_first()) {
                (PONG, _) => self.pongs.push(payload),
                (8, _) => return Ok(None),
                (1 | 2, Some((channel, text))) if !text.is_empty() => return Ok(Some((*channel, text.to_vec()))),
                _ => {}
            }
        }
    }

    fn bytes<const COUNT: usize>(&mut self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.tls.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads to the end and returns the output and the status of the command.
    fn until_end(&mut self) -> (String, Value) {
        let (mut said, mut error) = (Vec::new(), Vec::new());
        while let Ok(Some((channel, text))) = self.next() {
            match channel {
                STDOUT => said.extend(text),
                ERROR => error.extend(text),
                other => panic!("channel {other}: {text:?}"),
            }
            if !error.is_empty() && serde_json::from_slice::<Value>(&error).is_ok() {
                break;
            }
        }
        let error = serde_json::from_slice(&error).unwrap_or_else(|_| panic!("{error:?} after {said:?}"));
        (String::from_utf8(said).unwrap(), error)
    }
}

fn web() -> Node {
    let mut node = Node::with_runtime();
    node.configure_agent(OPEN);
    node.start_agent();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("it runs", |pods| pods.has("web", |pod| pod.is_ready()));
    node
}

#[test]
fn exec_passes_output_terminal_size_and_exit_code() {
    let node = web();
    let (said, end) = Channels::open(&node, BOTH, "command=echo&command=a+word&output=1&error=1").until_end();
    assert_eq!((&*said, &end["status"]), ("a word\n", &json!("Success")));
    let script = "while%20[%20%22$(stty%20size)%22%20!=%20%2240%20100%22%20];do%20usleep%2050000;done;\
                  read%20word;echo%20got:$word;exit%207";
    let query = format!("command=sh&command=-c&command={script}&input=1&output=1&tty=1");
    let mut channels = Channels::open(&node, BOTH, &query);
    channels.send(RESIZE, r#"{"Width":100,"Height":40}"#);
    channels.send(STDIN, "hello\n");
    let (said, end) = channels.until_end();
    assert!(said.contains("got:hello\r\n"), "{said:?}");
    assert_eq!((&end["status"], &end["reason"]), (&json!("Failure"), &json!("NonZeroExitCode")));
    assert_eq!(end["details"]["causes"][0], json!({"reason": "ExitCode", "message": "7"}));
}

#[test]
fn client_of_the_current_protocol_can_end_its_input_and_is_answered_when_it_pings() {
    let node = web();
    let mut channels = Channels::open(&node, BOTH, "command=cat&input=1&output=1");
    assert_eq!(channels.protocol, "v5.channel.k8s.io");
    let line = "a line that comes back\n";
    (0..1000).for_each(|_| channels.send(STDIN, line));
    channels.send_frame(PING, b"still there?");
    channels.send_bytes(&[CLOSE, STDIN]);
    let (said, end) = channels.until_end();
    assert_eq!((said.len(), &end["status"]), (1000 * line.len(), &json!("Success")));
    assert_eq!(channels.pongs, [b"still there?".to_vec()]);
}

#[test]
fn client_of_an_older_protocol_is_answered_by_the_runtime() {
    let node = web();
    let mut channels = Channels::open(&node, V4, "command=cat&input=1&output=1");
    channels.send(STDIN, "last words\n");
    assert_eq!(channels.next().unwrap(), Some((STDOUT, b"last words\n".to_vec())));
}

#[test]
fn gate_that_is_off_leaves_web_sockets_to_the_runtime() {
    let mut node = Node::with_runtime();
    node.configure_agent(&format!("{OPEN}featureGates: {{ExtendWebSocketsToKubelet: false}}\n"));
    node.start_agent();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("it runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let mut channels = Channels::open(&node, V4, "command=echo&command=a&output=1");
    assert_eq!(channels.next().unwrap(), Some((STDOUT, b"a\n".to_vec())));
}

#[test]
fn vanished_client_leaves_nothing_behind() {
    let node = web();
    let agent = node.agent_pid();
    let id = node.pods().get("web").unwrap().container("main").id();
    let processes = || node.ctr(&["tasks", "ps", &id]).lines().count();
    let files = || fs::read_dir(format!("/proc/{agent}/fd")).unwrap().count();
    let at_rest = processes();
    let quiet = |before: usize| {
        wait_for("nothing to be left", PATIENCE, || (processes() <= at_rest && files() <= before).then_some(()));
    };
    // The first call leaves cached state that later calls reuse.
    Channels::open(&node, V4, "command=true&output=1").until_end();
    quiet(usize::MAX);
    let before = files();
    for protocols in [V4, BOTH, V4, BOTH, BOTH] {
        let mut channels = Channels::open(&node, protocols, "command=cat&input=1&output=1");
        channels.send(STDIN, "here\n");
        assert_eq!(channels.next().unwrap(), Some((STDOUT, b"here\n".to_vec())));
        assert!(processes() > at_rest);
        // Closes the connection without a close message.
        drop(channels.tls.sock);
        quiet(before);
    }
}
