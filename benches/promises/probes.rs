//! A full node whose pods are all asked how they are, and nothing else happens.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use coracle::wire::grpc::{CONTENT_TYPE, Status, frame_message};
use coracle::wire::hpack::Field;
use coracle::wire::http2::{Connection, Event};

use crate::Effort;
use crate::node::activity::{Activity, Memory};
use crate::node::{Manifest, Node, STAY};
use crate::report::Report;

/// As many as a node takes by default, each with three probes at their default period.
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
    thread::sleep(SETTLE);
    let (before, began) = (Activity::of(node.agent_pid()), Instant::now());
    thread::sleep(effort.rest);
    let (done, seconds) = (Activity::of(node.agent_pid()).since(&before), began.elapsed().as_secs_f64());
    let memory = Memory::of(node.agent_pid());
    let restarts = node.pods().0.iter().filter(|pod| pod.container("main").restarts() > 0).count();
    let wakes = done.wakes as f64 / seconds;
    report.note(&format!("{PODS} pods, {PROBES} probes in {PERIOD} s"), format!("{wakes:.1} wake-ups per s"));
    let cpu = done.cpu.as_secs_f64() / seconds;
    let each = cpu * PERIOD / PROBES as f64 * 1e6;
    report.note("processor time for each answer", format!("{each:.0} µs"));
    let percent = cpu * 100.0;
    report.row("CPU meanwhile", format!("{percent:.2} %"), "at most 1", percent <= 1.0 && restarts == 0);
    report.row("RSS meanwhile", format!("{} KiB", memory.rss), "at most 12288", memory.rss <= 12288);
    report.row("written to disk meanwhile", format!("{} bytes", done.written), "0", done.written == 0);
}

/// Listens on the node's network; the port. Ends with the measurement.
fn serve(node: &Node, answer: fn(TcpStream) -> std::io::Result<()>) -> u16 {
    let listener = node.enclosure().on_network(|| TcpListener::bind("0.0.0.0:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A probe of a port goes without a word.
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

/// Says of every service that it serves.
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
                let content = Field::fixed("content-type", CONTENT_TYPE);
                connection.respond(stream, vec![Field::fixed(":status", "200"), content], false);
                // The field `status`, SERVING.
                connection.send_data(stream, frame_message(vec![8, 1]).unwrap(), false);
                connection.send_trailers(stream, Status::ok().trailers());
            }
        }
        connection.transmit(&mut out);
        stream.write_all(&out)?;
    }
}
