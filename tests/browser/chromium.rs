//! A headless Chromium in a node's namespaces, controlled over a pipe with the DevTools protocol.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use base64::Engine as _;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use super::node::{Node, PATIENCE, Process, find_program};

pub(crate) struct Chromium {
    process: Option<Process>,
    asks: File,
    answers: Receiver<Value>,
    session: Value,
    asked: u64,
    complaints: Vec<String>,
}

/// Flags to run as root, without a display and without background requests.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-proxy-server",
    "--remote-debugging-pipe",
];

impl Chromium {
    /// Starts Chromium with its own profile in the node's folder. It is killed with the node at the latest.
    pub(crate) fn start(node: &Node) -> Self {
        let program = find_program("chromium");
        let folder = node.folder().join("browser");
        fs::create_dir(&folder).unwrap();
        let [asks, answers] = ["asks", "answers"].map(|name| {
            let path = folder.join(name);
            mkfifo(&path, Mode::S_IRWXU).unwrap();
            path
        });
        // Chromium reads commands from descriptor 3 and writes to descriptor 4.
        let mut command = node.enclosure().command("sh");
        command
            .args(["-c", "exec 3<\"$1\" 4>\"$2\"; shift 2; exec \"$@\"", "sh"])
            .args([&asks, &answers])
            .arg(&program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            .envs(["HOME", "TMPDIR"].map(|name| (name, &folder)));
        let log = File::create(folder.join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        // Opening a FIFO blocks until the other side opens it too.
        let opening = std::thread::spawn(move || {
            let asks = File::options().write(true).open(asks).unwrap();
            (asks, File::open(answers).unwrap())
        });
        let process = Process::start(command, Path::new("chromium"));
        let (asks, answers) = opening.join().unwrap();
        let mut browser = Self {
            process: Some(process),
            asks,
            answers: read(answers),
            session: Value::Null,
            asked: 0,
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].take();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a page on a screen of this width and height, in CSS pixels.
    pub(crate) fn open(&mut self, url: &str, screen: (u32, u32), colours: &str) {
        self.look_as(screen, colours);
        let went = self.call("Page.navigate", json!({ "url": url }));
        assert!(went.get("errorText").is_none(), "{url}: {went}");
    }

    pub(crate) fn look_as(&mut self, (width, height): (u32, u32), colours: &str) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", screen);
        let colours = json!({ "features": [{ "name": "prefers-color-scheme", "value": colours }] });
        self.call("Emulation.setEmulatedMedia", colours);
    }

    /// Evaluates an expression in the page, awaiting a promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        self.call("Runtime.evaluate", asked)["result"]["value"].take()
    }

    pub(crate) fn press_enter(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { "\r" } else { "" };
            let key =
                json!({ "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": text });
            self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// The visible part of the page, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    /// Script errors, violations of the content security policy, and failed loads.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Closes the browser and waits for its exit.
    pub(crate) fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end(Signal::SIGTERM);
        }
    }

    #[track_caller]
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": parameters });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.asks.write_all(format!("{message}\0").as_bytes()).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut message = self.answers.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == self.asked {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, event: &Value) {
        let is_complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            _ => false,
        };
        if is_complaint {
            self.complaints.push(event["params"].to_string());
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Do not panic a second time.
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// Reads messages, each terminated by a zero byte.
fn read(answers: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut answers = BufReader::new(answers);
        loop {
            let mut message = Vec::new();
            if answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_ok() {
                    continue;
                }
            }
            return;
        }
    });
    receiver
}
