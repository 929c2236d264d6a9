//! A minimal probe client: blocking sockets, one thread, no state. Its cost is that of the kernel and its network.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// The argument that makes this program the client. It is followed by the ports of an HTTP and a gRPC server and the
/// interval between probes in microseconds.
pub(crate) const NAME: &str = "bare-probes";

/// Runs an HTTP, a TCP and a gRPC probe in turn, forever.
pub(crate) fn run(arguments: &[String]) {
    let [page, health, pause] = arguments else { panic!("{NAME} takes two ports and a pause") };
    let (page, health) = (page.parse().unwrap(), health.parse().unwrap());
    let pause = Duration::from_micros(pause.parse().unwrap());
    let mut next = Instant::now();
    loop {
        for probe in [probe_url, probe_port, probe_health] {
            next += pause;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            probe(page, health).expect("the servers answer");
        }
    }
}

fn probe_url(page: u16, _: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", page))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer)?;
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
    Ok(())
}

fn probe_port(page: u16, _: u16) -> io::Result<()> {
    TcpStream::connect(("127.0.0.1", page)).map(drop)
}

/// Sends the request after the server's preface, as gRPC requires.
fn probe_health(_: u16, health: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", health))?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
    let mut answer = [0; 4096];
    let mut length = stream.read(&mut answer)?;
    stream.write_all(&request())?;
    while !has_end(&answer[..length]) {
        match stream.read(&mut answer[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    Ok(())
}

/// The acknowledged settings, one header block and one empty message.
fn request() -> Vec<u8> {
    // `:method: POST` and `:scheme: http` are entries of the HPACK static table, as are the names `:path`,
    // `:authority` and `content-type` (4, 1, 31).
    let mut fields = vec![0x83, 0x86];
    let mut field = |name: &[u8], value: &str| {
        fields.extend_from_slice(name);
        fields.push(u8::try_from(value.len()).unwrap());
        fields.extend_from_slice(value.as_bytes());
    };
    field(&[4], "/grpc.health.v1.Health/Check");
    field(&[1], "127.0.0.1");
    field(&[0x0f, 16], "application/grpc");
    field(b"\0\x02te", "trailers");
    let mut out = b"\0\0\0\x04\x01\0\0\0\0".to_vec();
    out.extend_from_slice(&[0, 0, u8::try_from(fields.len()).unwrap(), HEADERS, 4, 0, 0, 0, 1]);
    out.append(&mut fields);
    out.extend_from_slice(b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0");
    out
}

/// Whether the trailers have arrived: a header block with END_STREAM.
fn has_end(mut frames: &[u8]) -> bool {
    while let [a, b, c, kind, flags, rest @ ..] = frames {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some(after) = rest.get(4 + length..) else { return false };
        if *kind == HEADERS && flags & 1 == 1 {
            return true;
        }
        frames = after;
    }
    false
}

const HEADERS: u8 = 1;
