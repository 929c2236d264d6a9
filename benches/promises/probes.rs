//! Probes of all pods of a full node, without other work.
//!
//! A bare client sends the same probes at the same rate. Its cost is unavoidable, so the limit applies to what the
//! agent uses beyond that.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use coracle::protocol::grpc::{GRPC_CONTENT_TYPE, Status, frame_message};
use coracle::protocol::hpack::Field;
use coracle::protocol::http2::{Connection, Event};

use nix::sys::signal::Signal;

use crate::Effort;
use crate::bare_probes;
use crate::node::activity::{Activity, Memory};
use crate::node::{Manifest, Node, Process, STAY};
use crate::report::Report;

/// The default maximum of pods on a node, each with three probes at the default period.
const PODS: usize = 110;
const PROBES: usize = 3 * PODS;
const PERIOD: f64 = 10.0;
const SETTLE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let node = Node::start();
    let page = serve(&node, answer_page);
    let health = serve(&node, answer_health);
    let asked =
        format!("readinessProbe: {{httpGet: {{port: {page}}}}}, livenessProbe: {{tcpSocket: {{port: {page}}}}}");
    let other = format!("livenessProbe: {{grpc: {{port: {health}}}}}");
    for index in 0..PODS {
        let manifest = Manifest::new(&format!("pod-{index}"))
            .container_with("main", STAY, &asked)
            .container_with("other", STAY, &other);
        node.apply(&manifest.spec("hostNetwork: true"));
    }
    node.wait_until_within(PATIENCE, "all pods are ready", |seen| {
        seen.0.iter().filter(|pod| pod.is_ready()).count() == PODS
    });
    let bare = start_bare(&node, page, health);
    thread::sleep(SETTLE);
    let pids = [node.agent_pid(), bare.pid()];
    let (before, began) = (pids.map(Activity::of), Instant::now());
    thread::sleep(effort.rest);
    let (now, seconds) = (pids.map(Activity::of), began.elapsed().as_secs_f64());
    bare.end(Signal::SIGKILL);
    let (done, bare) = (now[0].since(&before[0]), now[1].since(&before[1]));
    let memory = Memory::of(node.agent_pid());
    let restarts = node.pods().0.iter().filter(|pod| pod.container("main").restarts() > 0).count();
    let (wakes, written) = (done.wakes as f64 / seconds, done.written);
    report.note(&format!("{PODS} pods, {PROBES} probes in {PERIOD} s"), format!("{wakes:.1} wake-ups per s"));
    // As a fraction of one core.
    let [cpu, bare] = [done, bare].map(|done| done.cpu.as_secs_f64() / seconds);
    let each = |cpu: f64| cpu * PERIOD / PROBES as f64 * 1e6;
    report.note("processor time for each answer", format!("{:.0} µs", each(cpu)));
    report.note("the same, of a bare client", format!("{:.0} µs", each(bare)));
    report.note("CPU meanwhile", format!("{:.2} %", cpu * 100.0));
    let percent = (cpu - bare) * 100.0;
    let beyond = "CPU beyond that of a bare client";
    report.row(beyond, format!("{percent:.2} %"), "at most 1", percent <= 1.0 && restarts == 0);
    report.row("RSS meanwhile", format!("{} KiB", memory.rss), "at most 12288", memory.rss <= 12288);
    report.row("written to disk meanwhile", format!("{written} bytes"), "0", written == 0);
}

/// Starts this program again as the bare client.
fn start_bare(node: &Node, page: u16, health: u16) -> Process {
    let pause = Duration::from_secs_f64(PERIOD / PROBES as f64).as_micros();
    let arguments = [page.to_string(), health.to_string(), pause.to_string()];
    let arguments: Vec<&str> = [bare_probes::NAME].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let program = std::env::current_exe().unwrap();
    node.enclosure().start(&program, &arguments, &node.folder().join("bare_probes.log"))
}

/// Starts a server on the node's network, which runs until the end of the measurement, and returns its port.
fn serve(node: &Node, answer: fn(TcpStream) -> std::io::Result<()>) -> u16 {
    let listener = node.enclosure().on_network(|| TcpListener::bind("0.0.0.0:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A TCP probe disconnects without sending anything.
            let _ = answer(stream);
        }
    });
    port
}

fn answer_page(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    if stream.read(&mut buffer)? > 0 {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
    Ok(())
}

/// Answers every health check with SERVING.
fn answer_health(mut stream: TcpStream) -> std::io::Result<()> {
    let mut connection = Connection::server();
    let mut buffer = [0; 4096];
    loop {
        let (mut events, mut out) = (Vec::new(), Vec::new());
        let read = stream.read(&mut buffer)?;
        if read == 0 || connection.receive(&buffer[..read], Instant::now(), &mut events).is_err() {
            return Ok(());
        }
        for event in events {
            if let Event::Data { stream, end: true, .. } = event {
                let content = Field::fixed("content-type", GRPC_CONTENT_TYPE);
                connection.respond(stream, vec![Field::fixed(":status", "200"), content], false);
                // Field `status` with the value SERVING.
                connection.send_data(stream, frame_message(vec![8, 1]).unwrap(), false);
                connection.send_trailers(stream, Status::ok().trailers());
            }
        }
        connection.transmit(&mut out);
        stream.write_all(&out)?;
    }
}
