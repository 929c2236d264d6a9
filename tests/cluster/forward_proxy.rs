//! A proxy for connections to other servers: HTTP with CONNECT, the same over TLS, and SOCKS 5.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};

use crate::fake_api::certificates::Certified;

/// The protocol towards the client.
pub(crate) enum Speaks {
    Http,
    Https(Certified),
    Socks5,
    /// Answers each CONNECT with this status.
    Refusal(&'static str),
}

/// Connects clients to one server, whichever name they ask for. Ends with the process.
pub(crate) struct ForwardProxy {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

struct Settings {
    speaks: Speaks,
    credentials: Option<(&'static str, &'static str)>,
    server: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ForwardProxy {
    pub(crate) fn start(speaks: Speaks, credentials: Option<(&'static str, &'static str)>, server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let settings = Arc::new(Settings { speaks, credentials, server, asked: Arc::clone(&asked) });
        thread::spawn(move || {
            for tcp in listener.incoming() {
                let (tcp, settings) = (tcp.unwrap(), Arc::clone(&settings));
                // A client that disconnects ends only its own connection.
                thread::spawn(move || drop(serve(&settings, tcp)));
            }
        });
        Self { address, asked }
    }

    /// The hosts and ports that clients have asked for, also in vain.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(settings: &Settings, tcp: TcpStream) -> io::Result<()> {
    let mut client = Side { tcp, tls: None };
    if let Speaks::Https(own) = &settings.speaks {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.key.clone()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![own.certificate.clone()], key).unwrap();
        client.tls = Some(Arc::new(Mutex::new(ServerConnection::new(Arc::new(config)).unwrap())));
    }
    let is_admitted = match settings.speaks {
        Speaks::Http | Speaks::Https(_) => connect(settings, &mut client, None)?,
        Speaks::Refusal(status) => connect(settings, &mut client, Some(status))?,
        Speaks::Socks5 => socks(settings, &mut client)?,
    };
    if !is_admitted {
        return Ok(());
    }
    let mut server = Side { tcp: TcpStream::connect(settings.server)?, tls: None };
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || copy(&mut from_client, &mut to_server));
    copy(&mut server, &mut client);
    Ok(())
}

fn connect(settings: &Settings, client: &mut Side, refusal: Option<&str>) -> io::Result<bool> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.read_exactly(1)?);
    }
    let head = String::from_utf8(head).unwrap();
    let line = head.lines().next().unwrap();
    let target = line.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")).expect("a CONNECT");
    settings.asked.lock().unwrap().push(target.to_owned());
    let shown = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: Basic "));
    let is_known = settings
        .credentials
        .is_none_or(|(user, password)| shown == Some(STANDARD.encode(format!("{user}:{password}")).as_str()));
    let status = match refusal {
        Some(status) => status,
        None if is_known => "200 Connection established",
        None => "407 Proxy Authentication Required",
    };
    client.write(format!("HTTP/1.1 {status}\r\nVia: test\r\n\r\n").as_bytes())?;
    Ok(status.starts_with("200"))
}

fn socks(settings: &Settings, client: &mut Side) -> io::Result<bool> {
    let greeting = client.read_exactly(2)?;
    let methods = client.read_exactly(greeting[1].into())?;
    match settings.credentials {
        None => client.write(&[5, 0])?,
        Some((user, password)) => {
            assert!(methods.contains(&2), "{methods:?}");
            client.write(&[5, 2])?;
            let head = client.read_exactly(2)?;
            let shown_user = client.read_exactly(head[1].into())?;
            let length = client.read_exactly(1)?;
            let shown_password = client.read_exactly(length[0].into())?;
            let is_known = (&*shown_user, &*shown_password) == (user.as_bytes(), password.as_bytes());
            client.write(&[1, u8::from(!is_known)])?;
            if !is_known {
                return Ok(false);
            }
        }
    }
    let request = client.read_exactly(4)?;
    assert_eq!(request, [5, 1, 0, 3], "expected CONNECT to a name");
    let length = client.read_exactly(1)?;
    let name = String::from_utf8(client.read_exactly(length[0].into())?).unwrap();
    let port = client.read_exactly(2)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    settings.asked.lock().unwrap().push(format!("{name}:{port}"));
    client.write(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 1])?;
    Ok(true)
}

/// Copies until one side ends, and then ends both.
fn copy(from: &mut Side, to: &mut Side) {
    while let Ok(bytes) = from.read() {
        if bytes.is_empty() || to.write(&bytes).is_err() {
            break;
        }
    }
    for side in [from, to] {
        let _ = side.tcp.shutdown(Shutdown::Both);
    }
}

/// One side of a connection. Clones share it.
struct Side {
    tcp: TcpStream,
    tls: Option<Arc<Mutex<ServerConnection>>>,
}

impl Side {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { tcp: self.tcp.try_clone()?, tls: self.tls.clone() })
    }

    /// Empty at the end.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 16 * 1024];
        let Some(tls) = &self.tls else {
            let length = self.tcp.read(&mut buffer)?;
            buffer.truncate(length);
            return Ok(buffer);
        };
        loop {
            if let Some(length) = tls.lock().unwrap().reader().read(&mut buffer).ok().filter(|length| *length > 0) {
                buffer.truncate(length);
                return Ok(buffer);
            }
            // Without the lock, so that it does not block the other direction.
            let mut received = vec![0; 16 * 1024];
            let length = self.tcp.read(&mut received)?;
            let mut left = &received[..length];
            if left.is_empty() {
                return Ok(Vec::new());
            }
            let mut tls = tls.lock().unwrap();
            while !left.is_empty() {
                tls.read_tls(&mut left)?;
                tls.process_new_packets().map_err(io::Error::other)?;
            }
            while tls.wants_write() {
                tls.write_tls(&mut self.tcp)?;
            }
        }
    }

    fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let Some(tls) = &self.tls else { return self.tcp.read_exact(&mut bytes).map(|()| bytes) };
        let mut tls = tls.lock().unwrap();
        let mut have = 0;
        while have < length {
            match tls.reader().read(&mut bytes[have..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => have += read,
                Err(_) => drop(tls.complete_io(&mut self.tcp)?),
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return self.tcp.write_all(bytes) };
        let mut tls = tls.lock().unwrap();
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }
}
