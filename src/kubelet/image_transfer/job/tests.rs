//! Fetches from a registry that misbehaves.

mod artifacts;
mod peers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::*;
use crate::kubelet::image_transfer::space::Claims;
use crate::platform::config::Amount;
use crate::platform::net::{AnyCertificate, Connect, ProxySettings, tls_config};
use crate::platform::registry::{Login, Mirror};

/// One misbehaviour; each applies to one answer with a blob, or to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection ends after this many bytes of the body.
    Cut(usize),
    /// This length, which differs from the manifest's, and as many bytes.
    Length(usize),
    /// Wrong bytes of the right length.
    Wrong,
    Status(u16),
    /// 429, with the seconds to wait.
    Busy(u32),
    /// The whole blob instead of the requested range.
    NoRange,
    /// No byte after the head.
    Stall,
    /// The token has expired.
    Expired,
}

#[derive(Default)]
struct State {
    blobs: Vec<Vec<u8>>,
    manifest: Vec<u8>,
    faults: Vec<Fault>,
    /// A fault of every answer.
    forever: Option<Fault>,
    /// Requests for blobs go to this server.
    redirect: Option<String>,
    needs_token: bool,
    /// It has these, and gives them to others only.
    refused: Vec<Digest>,
    knows_no_head: bool,
    tokens: u32,
    /// An answer has stalled.
    stalled: bool,
    /// The heads of all requests.
    requests: Vec<String>,
    /// Bytes of blobs that were sent.
    sent: usize,
}

#[derive(Clone)]
struct FakeRegistry {
    address: String,
    state: Arc<Mutex<State>>,
}

impl FakeRegistry {
    /// A registry with an image of these layers.
    fn start(layers: &[Vec<u8>]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let blob = |bytes: &Vec<u8>| json!({"digest": Digest::of(bytes).to_string(), "size": bytes.len()});
        let config = b"{}".to_vec();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(&config), "layers": layers.iter().map(blob).collect::<Vec<_>>(),
        });
        {
            let mut state = state.lock().unwrap();
            state.manifest = manifest.to_string().into_bytes();
            state.blobs = layers.iter().cloned().chain([config]).collect();
        }
        let registry = Self { address, state };
        let served = registry.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let registry = served.clone();
                thread::spawn(move || registry.serve(stream));
            }
        });
        registry
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    return;
                }
            }
            if self.respond(&head, &stream).is_none() {
                return;
            }
        }
    }

    /// `None` if the connection ends.
    fn respond(&self, head: &str, mut stream: &TcpStream) -> Option<()> {
        let mut state = self.state.lock().unwrap();
        state.requests.push(head.to_owned());
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let is_head = head.starts_with("HEAD ");
        let mut say = |status: &str, headers: &str, body: &[u8]| {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
            stream.write_all(head.as_bytes()).ok()?;
            if is_head { Some(()) } else { stream.write_all(body).ok() }
        };
        if path.starts_with("/token") {
            state.tokens += 1;
            return say("200 OK", "", json!({"token": format!("t{}", state.tokens)}).to_string().as_bytes());
        }
        let is_blob = path.contains("/blobs/");
        let fault = match state.forever {
            _ if is_head => None,
            Some(fault) if is_blob => Some(fault),
            _ if is_blob && !state.faults.is_empty() => Some(state.faults.remove(0)),
            _ => None,
        };
        let expected = format!("authorization: bearer t{}\r\n", state.tokens);
        if state.needs_token && (!head.to_ascii_lowercase().contains(&expected) || fault == Some(Fault::Expired)) {
            let realm = format!("WWW-Authenticate: Bearer realm=\"http://{}/token\",service=\"s\"\r\n", self.address);
            return say("401 Unauthorized", &realm, b"");
        }
        let is_refused = state.refused.iter().any(|digest| path.ends_with(digest.hex()));
        if is_refused || is_head && state.knows_no_head {
            return say(if is_refused { "404 Not Found" } else { "405 Method Not Allowed" }, "", b"{}");
        }
        if !is_blob {
            let named = state.blobs.iter().find(|blob| path.ends_with(Digest::of(blob).hex()));
            return say("200 OK", "", &named.unwrap_or(&state.manifest).clone());
        }
        if let Some(other) = &state.redirect {
            return say("307 Temporary Redirect", &format!("Location: http://{other}{path}\r\n"), b"");
        }
        let blob = state.blobs.iter().find(|blob| path.ends_with(Digest::of(blob).hex())).cloned();
        let Some(mut blob) = blob else { return say("404 Not Found", "", b"{}") };
        let from = head.to_ascii_lowercase();
        let from =
            from.split("range: bytes=").nth(1).and_then(|rest| rest.split('-').next()?.parse().ok()).unwrap_or(0);
        let from: usize = if fault == Some(Fault::NoRange) { 0 } else { from };
        let end =
            head.split("ange: bytes=").nth(1).and_then(|rest| rest.split_once('-')?.1.lines().next()?.parse().ok());
        let end = end.map_or(blob.len(), |last: usize| blob.len().min(last + 1));
        match fault {
            Some(Fault::Status(status)) => return say(&format!("{status} No"), "Retry-After: 0\r\n", b""),
            Some(Fault::Busy(seconds)) => {
                return say("429 Too Many Requests", &format!("Retry-After: {seconds}\r\n"), b"");
            }
            Some(Fault::Length(length)) => return say("200 OK", "", &vec![7; length]),
            Some(Fault::Wrong) => blob.iter_mut().for_each(|byte| *byte ^= 0xff),
            _ => {}
        }
        let (status, range) = match from {
            0 if end == blob.len() => ("200 OK", String::new()),
            from => ("206 Partial Content", format!("Content-Range: bytes {from}-{}/{}\r\n", end - 1, blob.len())),
        };
        let body = &blob[from..end];
        if is_head {
            return say(status, &range, body);
        }
        match fault {
            Some(Fault::Cut(most)) => {
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{range}\r\n", body.len());
                stream.write_all(head.as_bytes()).ok()?;
                stream.write_all(&body[..most.min(body.len())]).ok()?;
                state.sent += most.min(body.len());
                None
            }
            Some(Fault::Stall) => {
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{range}\r\n", body.len());
                stream.write_all(head.as_bytes()).ok()?;
                state.stalled = true;
                drop(state);
                // Until the client leaves.
                let _ = stream.read(&mut [0]);
                None
            }
            _ => {
                state.sent += body.len();
                say(status, &range, body)
            }
        }
    }

    fn set(&self, set: impl FnOnce(&mut State)) {
        set(&mut self.state.lock().unwrap());
    }

    /// Requests that bring bytes of blobs.
    fn blob_requests(&self) -> Vec<String> {
        self.requests_of("GET", "/blobs/")
    }

    fn requests_of(&self, method: &str, path: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let is_it = |head: &&String| head.starts_with(method) && head.contains(path);
        state.requests.iter().filter(is_it).cloned().collect()
    }

    fn server(&self, is_origin: bool, cancelled: &Arc<AtomicBool>) -> Registry {
        server(&self.address, is_origin, cancelled, ProxySettings::default())
    }
}

fn server(address: &str, is_origin: bool, cancelled: &Arc<AtomicBool>, proxies: ProxySettings) -> Registry {
    let base = format!("http://{address}/v2");
    let mirror = Mirror { base, resolves: true, is_origin, ..Mirror::default() };
    let login = Login { username: "u".to_owned(), password: "secret".to_owned() };
    let tls = tls_config(Arc::new(AnyCertificate)).unwrap();
    let connect = Connect { tls, proxies: Arc::new(proxies), cancelled: Arc::clone(cancelled), deadline: None };
    Registry::new(mirror, "team/app", Some(login), connect)
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("coracle-fetch-{name}-{}", std::process::id())))
    }

    fn layout(&self) -> Layout {
        Layout(self.0.clone())
    }

    fn has(&self, bytes: &[u8]) -> bool {
        fs::read(self.layout().blob(&Digest::of(bytes))).is_ok_and(|found| found == bytes)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn job(registries: &[&FakeRegistry], folder: &Folder, boot: &str) -> Job {
    let cancelled = Arc::new(AtomicBool::new(false));
    let last = registries.len() - 1;
    let servers = registries.iter().enumerate().map(|(at, one)| one.server(at == last, &cancelled)).collect();
    let progress = Arc::default();
    Job {
        servers,
        reference: "1".to_owned(),
        layout: folder.layout(),
        space: Space {
            directory: folder.0.join("images"),
            key: "own".to_owned(),
            pod: "u".to_owned(),
            busy: Vec::new(),
            pressure: None,
            claimed: Claims::default().claimed(&progress),
        },
        present: SortedSet::new(),
        machine: "x86_64",
        boot: boot.to_owned(),
        cancelled,
        progress,
        meter: Arc::new(Meter::unlimited()),
        is_urgent: false,
        peers: None,
        waits: (Duration::from_millis(1), Duration::from_millis(2)),
    }
}

#[test]
fn node_without_room_writes_no_manifest() {
    let folder = Folder::new("full");
    let registry = FakeRegistry::start(&[layer(1000)]);
    let mut job = job(&[&registry], &folder, "b");
    job.space.pressure = Some(Amount::Share(0.999_999));
    let error = job.run().unwrap_err();
    assert!(matches!(error, FetchError::Room { .. }), "{error}");
    assert!(registry.state.lock().unwrap().requests.is_empty() && !folder.layout().blobs().exists());
}

fn layer(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
}

#[test]
fn cuts_and_refusals_fetch_no_byte_twice() {
    let (layer, folder) = (layer(300_000), Folder::new("cuts"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    let cuts = [Fault::Cut(0), Fault::Cut(1), Fault::Cut(65_536), Fault::Status(503), Fault::Cut(70_000)];
    let more = [Fault::Status(429), Fault::Status(500), Fault::Cut(10)];
    registry.set(|state| state.faults = cuts.into_iter().chain(more).collect());
    let mut job = job(&[&registry], &folder, "b");
    let top = job.run().unwrap();
    assert_eq!(top.digest, Digest::of(&registry.state.lock().unwrap().manifest));
    assert!(folder.has(&layer) && folder.has(b"{}"));
    let all = layer.len() + 2;
    assert_eq!(registry.state.lock().unwrap().sent, all);
    assert_eq!(job.progress.bytes(), Some((all as u64, all as u64)));
}

#[test]
fn next_fetch_continues_after_a_kill_and_a_power_cut() {
    let (layer, folder) = (layer(9 << 20), Folder::new("restart"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    let mut first = job(&[&registry], &folder, "boot-1");
    // The first answer is the config, of two bytes.
    registry.set(|state| {
        state.faults = vec![Fault::Cut(2), Fault::Cut(5 << 20)];
        state.faults.extend([Fault::Cut(0); 9]);
    });
    assert!(first.run().is_err());
    let sent = registry.state.lock().unwrap().sent;
    registry.set(|state| state.faults.clear());
    // The connection was cut after five megabytes, and the part was synced after four.
    let mut second = job(&[&registry], &folder, "boot-2");
    second.run().unwrap();
    assert!(folder.has(&layer));
    let again = registry.state.lock().unwrap().sent - (layer.len() + 2);
    assert!((1..=(4 << 20) + (64 << 10)).contains(&again), "{again} bytes came twice, of {sent}");
    // A third fetch only resolves the tag, and asks whether the pod may have the blobs.
    let before = registry.blob_requests().len();
    let asked = registry.requests_of("HEAD", "/blobs/").len();
    job(&[&registry], &folder, "boot-2").run().unwrap();
    assert_eq!(registry.blob_requests().len(), before);
    assert_eq!(registry.requests_of("HEAD", "/blobs/").len() - asked, 2);
}

#[test]
fn blob_with_wrong_digest_or_length_is_never_used() {
    let layer = layer(100_000);
    for (name, fault, expected) in [
        ("wrong", Fault::Wrong, "sent content that does not match sha256:"),
        ("short", Fault::Length(99), "has 99 bytes at the registry, and 100000 in the manifest"),
        ("long", Fault::Length(100_001), "has 100001 bytes at the registry"),
    ] {
        let folder = Folder::new(name);
        let registry = FakeRegistry::start(std::slice::from_ref(&layer));
        let config = folder.layout().blob(&Digest::of(b"{}"));
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(&config, b"{}").unwrap();
        registry.set(|state| state.forever = Some(fault));
        let error = job(&[&registry], &folder, "b").run().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!folder.layout().blob(&Digest::of(&layer)).exists());
        // After a single bad answer the fetch continues.
        registry.set(|state| (state.forever, state.faults) = (None, vec![fault]));
        job(&[&registry], &folder, "b").run().unwrap();
        assert!(folder.has(&layer));
    }
}

#[test]
fn server_without_ranges_sends_the_whole_blob_again() {
    let (layer, folder) = (layer(100_000), Folder::new("ranges"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    registry.set(|state| state.faults = vec![Fault::Cut(2), Fault::Cut(50_000), Fault::NoRange]);
    job(&[&registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer));
}

#[test]
fn expired_token_is_renewed_during_a_fetch() {
    let (layer, folder) = (layer(100_000), Folder::new("token"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    registry.set(|state| {
        state.needs_token = true;
        state.faults = vec![Fault::Cut(2), Fault::Cut(50_000), Fault::Expired];
    });
    job(&[&registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer));
    let state = registry.state.lock().unwrap();
    assert_eq!(state.tokens, 2);
    let asked = state.requests.iter().find(|head| head.contains("/token")).unwrap();
    assert!(asked.contains("?service=s&scope=repository:team/app:pull "), "{asked}");
    assert!(asked.to_ascii_lowercase().contains("authorization: basic "), "{asked}");
}

#[test]
fn credentials_are_sent_only_to_the_registry() {
    let (layer, folder) = (layer(1000), Folder::new("redirect"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    let storage = FakeRegistry::start(std::slice::from_ref(&layer));
    registry.set(|state| {
        state.needs_token = true;
        state.redirect = Some(storage.address.clone());
    });
    job(&[&registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer));
    let of_storage = storage.blob_requests();
    assert_eq!(of_storage.len(), 2);
    assert!(of_storage.iter().all(|head| !head.to_ascii_lowercase().contains("authorization")), "{of_storage:?}");

    // A mirror on another host gets no login, and blobs that it lacks come from the registry.
    let (mirror, folder) = (FakeRegistry::start(&[]), Folder::new("mirror"));
    registry.set(|state| state.redirect = None);
    mirror.set(|state| state.manifest = registry.state.lock().unwrap().manifest.clone());
    job(&[&mirror, &registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer));
    let heads = mirror.state.lock().unwrap().requests.concat();
    assert!(heads.contains("/blobs/") && !heads.to_ascii_lowercase().contains("authorization"), "{heads}");
}

#[test]
fn cancelled_fetch_ends_while_the_server_stalls() {
    let (layer, folder) = (layer(1000), Folder::new("cancel"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    registry.set(|state| state.forever = Some(Fault::Stall));
    let mut job = job(&[&registry], &folder, "b");
    let cancelled = Arc::clone(&job.cancelled);
    let fetch = thread::spawn(move || job.run().map(drop));
    while !registry.state.lock().unwrap().stalled {
        assert!(!fetch.is_finished());
        thread::yield_now();
    }
    cancelled.store(true, Ordering::Relaxed);
    assert!(matches!(fetch.join().unwrap(), Err(FetchError::Cancelled)));
}

#[test]
fn image_larger_than_the_free_space_is_not_fetched() {
    let folder = Folder::new("room");
    let registry = FakeRegistry::start(&[]);
    let digest = Digest::of(b"huge").to_string();
    let manifest = json!({"config": {"digest": digest, "size": 1_u64 << 60}, "layers": []});
    registry.set(|state| state.manifest = manifest.to_string().into_bytes());
    let error = job(&[&registry], &folder, "b").run().unwrap_err().to_string();
    assert!(error.starts_with("no space left on device: 115292"), "{error}");
    assert!(registry.blob_requests().is_empty());
}

#[test]
fn layers_that_the_runtime_has_are_not_fetched() {
    let (layers, folder) = ([layer(1000), layer(2000)], Folder::new("present"));
    let registry = FakeRegistry::start(&layers);
    let mut job = job(&[&registry], &folder, "b");
    job.present = SortedSet::from_iter([Digest::of(&layers[0]).to_string()]);
    job.run().unwrap();
    assert!(folder.has(&layers[1]) && !folder.has(&layers[0]));
    assert_eq!(registry.state.lock().unwrap().sent, 2002);
}

/// Content that is on the node already, in each way, is no reason to give it to a pod that the registry refuses.
#[test]
fn registry_judges_what_the_node_has_already() {
    let layers = [layer(1000), layer(2000)];
    for knows_no_head in [false, true] {
        let folder = Folder::new(&format!("judge-{knows_no_head}"));
        let registry = FakeRegistry::start(&layers);
        registry.set(|state| state.knows_no_head = knows_no_head);
        job(&[&registry], &folder, "b").run().unwrap();
        let refuse = |refused: &[Digest]| registry.set(|state| state.refused = refused.to_vec());
        let refused = |job: &mut Job| job.run().unwrap_err().to_string();
        let [first, second] = [0, 1].map(|at: usize| Digest::of(&layers[at]));
        // A whole blob, and one whose bytes are all in the part.
        refuse(std::slice::from_ref(&first));
        let error = refused(&mut job(&[&registry], &folder, "b"));
        assert!(error.contains(&format!("blobs/{first}: 404")), "{error}");
        let whole = folder.layout().blob(&second);
        fs::rename(&whole, whole.with_extension("part")).unwrap();
        fs::write(whole.with_extension("mark"), "b 2000\n").unwrap();
        refuse(std::slice::from_ref(&second));
        let error = refused(&mut job(&[&registry], &folder, "b"));
        assert!(error.contains(&format!("blobs/{second}: 404")), "{error}");
        // A layer that the runtime has.
        let mut present = job(&[&registry], &folder, "b");
        present.present = SortedSet::from_iter([second.to_string()]);
        let error = refused(&mut present);
        assert!(error.contains(&format!("blobs/{second}: 404")), "{error}");
        // The manifest that the pod names by its digest.
        let manifest = Digest::of(&registry.state.lock().unwrap().manifest);
        refuse(std::slice::from_ref(&manifest));
        let mut by_digest = job(&[&registry], &folder, "b");
        by_digest.reference = manifest.to_string();
        let error = refused(&mut by_digest);
        assert!(error.contains(&format!("manifests/{manifest}: 404")), "{error}");
        refuse(&[]);
        by_digest.run().unwrap();
        present.run().unwrap();
    }
}

/// A proxy that connects every client to `behind`. Returns its address and the bytes that clients sent first.
fn proxy(behind: &str, is_socks: bool) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (behind, asked) = (behind.to_owned(), Arc::new(Mutex::new(Vec::new())));
    let heads = Arc::clone(&asked);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let mut server = TcpStream::connect(&behind).unwrap();
            let mut reader = BufReader::new(client.try_clone().unwrap());
            let mut head = String::new();
            if is_socks {
                let mut greeting = [0; 3];
                reader.read_exact(&mut greeting).unwrap();
                (&client).write_all(&[5, 0]).unwrap();
                let mut request = vec![0; 4 + 1 + "registry.test".len() + 2];
                reader.read_exact(&mut request).unwrap();
                (&client).write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
                head = String::from_utf8_lossy(&request[5..18]).into_owned();
            } else {
                while !head.ends_with("\r\n\r\n") {
                    assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
                }
                let own = head.replacen("http://registry.test:5000", "", 1);
                server.write_all(own.as_bytes()).unwrap();
            }
            heads.lock().unwrap().push(head);
            let mut from_server = server.try_clone().unwrap();
            let mut to_client = client.try_clone().unwrap();
            thread::spawn(move || drop(io::copy(&mut from_server, &mut to_client)));
            thread::spawn(move || drop(io::copy(&mut reader, &mut server)));
        }
    });
    (address, asked)
}

#[test]
fn proxy_of_the_environment_is_used() {
    for (name, is_socks) in [("forwards", false), ("socks5", true)] {
        let (layer, folder) = (layer(100_000), Folder::new(name));
        let registry = FakeRegistry::start(std::slice::from_ref(&layer));
        let (address, asked) = proxy(&registry.address, is_socks);
        let proxies = |name: &str| match name {
            "HTTP_PROXY" if is_socks => Some(format!("socks5://{address}")),
            "HTTP_PROXY" => Some(format!("http://user:pass@{address}")),
            _ => None,
        };
        let mut job = job(&[&registry], &folder, "b");
        let proxies = ProxySettings::from_variables(proxies).0;
        job.servers = vec![server("registry.test:5000", true, &job.cancelled, proxies.clone())];
        job.run().unwrap();
        assert!(folder.has(&layer));
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        if is_socks {
            // The blobs are requested over the same connection.
            assert_eq!(asked, ["registry.test"]);
        } else {
            assert_eq!(asked.len(), 3, "{asked:?}");
            let whole = |head: &String| head.starts_with("GET http://registry.test:5000/v2/team/app/");
            assert!(asked.iter().all(whole), "{asked:?}");
            let credentials = "proxy-authorization: basic dxnlcjpwyxnz\r\n";
            assert!(asked.iter().all(|head| head.to_ascii_lowercase().matches(credentials).count() == 1), "{asked:?}");
        }
        // Loopback addresses never use a proxy.
        let folder = Folder::new(&format!("{name}-loopback"));
        job.layout = folder.layout();
        job.servers = vec![server(&registry.address, true, &job.cancelled, proxies)];
        job.run().unwrap();
        assert!(folder.has(&layer));
    }
}

#[test]
fn error_names_the_proxy_that_refuses() {
    // At the usual address another test may get the port.
    let listener = TcpListener::bind("127.71.3.2:0").unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let folder = Folder::new("dead-proxy");
    let mut job = job(&[&FakeRegistry::start(&[])], &folder, "b");
    let proxies = ProxySettings::from_variables(|name| (name == "ALL_PROXY").then(|| dead.to_string())).0;
    job.servers = vec![server("registry.test:5000", true, &job.cancelled, proxies)];
    let error = job.run().unwrap_err().to_string();
    let expected = format!("proxy http://{dead}: dial tcp {dead}: connect: connection refused");
    assert_eq!(error, format!("get http://registry.test:5000/v2/team/app/manifests/1: {expected}"));
}

#[test]
fn layer_that_an_index_names_as_its_manifest_is_not_read_whole() {
    let folder = Folder::new("named");
    let registry = FakeRegistry::start(&[]);
    let job = job(&[&registry], &folder, "b");
    fs::create_dir_all(job.layout.blobs()).unwrap();
    let layer = layer(5 << 20);
    for (bytes, is_known) in [(&layer[..], false), (&layer[..1000], true)] {
        let digest = Digest::of(bytes);
        fs::write(job.layout.blob(&digest), bytes).unwrap();
        assert_eq!(job.known_document(&digest).is_some(), is_known);
    }
}

/// A meter with a record in the folder.
fn metered(folder: &Folder, per_day: u64, per_second: Option<u64>) -> Arc<Meter> {
    fs::create_dir_all(&folder.0).unwrap();
    Arc::new(Meter::open(Some(per_day), per_second, folder.0.join("image-bytes")))
}

#[test]
fn fetch_stops_at_the_budget_and_goes_on_the_next_day() {
    let (layer, folder) = (layer(300_000), Folder::new("budget"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    let mut first = job(&[&registry], &folder, "b");
    first.meter = metered(&folder, 100_000, None);
    assert!(matches!(first.run(), Err(FetchError::Held)));
    let of_manifest = registry.state.lock().unwrap().manifest.len();
    assert_eq!(registry.state.lock().unwrap().sent + of_manifest, 100_000, "not a byte too many");
    assert_eq!(first.meter.used(), Some((100_000, 100_000)));
    // An agent that restarts has not more.
    first.meter.settle();
    let mut same_day = job(&[&registry], &folder, "b");
    same_day.meter = metered(&folder, 100_000, None);
    assert!(matches!(same_day.run(), Err(FetchError::Held)));
    assert_eq!(registry.blob_requests().len(), 2, "the config, and a part of the layer");
    // An urgent pod is not held, and its bytes count.
    same_day.is_urgent = true;
    same_day.run().unwrap();
    assert!(folder.has(&layer));
    assert_eq!(registry.state.lock().unwrap().sent, layer.len() + 2);
    assert!(same_day.meter.used().unwrap().0 > 300_000);
}

#[test]
fn rate_limit_slows_the_fetch() {
    let (layer, folder) = (layer(20_000), Folder::new("rate"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    let mut job = job(&[&registry], &folder, "b");
    job.meter = metered(&folder, 1 << 20, Some(40_000));
    let begun = Instant::now();
    job.run().unwrap();
    let took = begun.elapsed();
    assert!(folder.has(&layer) && took >= Duration::from_millis(500), "{took:?}");
}

#[test]
fn finished_blob_with_wrong_bytes_is_fetched_again() {
    let (layer, folder) = (layer(100_000), Folder::new("damaged"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    job(&[&registry], &folder, "b").run().unwrap();
    let path = folder.layout().blob(&Digest::of(&layer));
    let mut wrong = layer.clone();
    wrong[70_000] ^= 1;
    fs::write(&path, &wrong).unwrap();
    job(&[&registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer));
    assert_eq!(registry.state.lock().unwrap().sent, 2 * layer.len() + 2, "the config was not fetched again");
}

#[test]
fn busy_registry_is_asked_again_when_it_says() {
    let (layer, folder) = (layer(1000), Folder::new("busy"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    registry.set(|state| state.faults = vec![Fault::Busy(1)]);
    let begun = Instant::now();
    job(&[&registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer) && begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(registry.blob_requests().len(), 3);
}

#[test]
fn mirror_that_lies_is_passed_over() {
    let layer = layer(100_000);
    for (name, fault) in [("bytes", Fault::Wrong), ("short", Fault::Length(9)), ("long", Fault::Length(100_001))] {
        let folder = Folder::new(&format!("mirror-{name}"));
        let mirror = FakeRegistry::start(std::slice::from_ref(&layer));
        let registry = FakeRegistry::start(std::slice::from_ref(&layer));
        mirror.set(|state| state.forever = Some(fault));
        job(&[&mirror, &registry], &folder, "b").run().unwrap();
        assert!(folder.has(&layer) && folder.has(b"{}"), "{name}");
        assert_eq!(registry.state.lock().unwrap().sent, layer.len() + 2, "{name}");
    }
}

/// Each answer brings new bytes, so failures in a row never end this fetch.
#[test]
fn wrong_digests_end_fetch_whose_connections_also_break() {
    let (layer, folder) = (layer(100_000), Folder::new("wrong-cuts"));
    let registry = FakeRegistry::start(std::slice::from_ref(&layer));
    registry.set(|state| {
        state.faults = vec![Fault::Cut(2)];
        state.faults.extend([Fault::Cut(50_000), Fault::Wrong].repeat(20));
    });
    let error = job(&[&registry], &folder, "b").run().unwrap_err().to_string();
    assert!(error.contains("sent content that does not match sha256:"), "{error}");
    assert_eq!(registry.blob_requests().len(), 1 + 4, "the config, and the layer twice");
}

#[test]
fn bytes_of_bad_mirror_do_not_spoil_good_ones_after_wrong_digest() {
    let (layer, folder) = (layer(100_000), Folder::new("wrong-mirror"));
    let [mirror, registry] = [(); 2].map(|()| FakeRegistry::start(std::slice::from_ref(&layer)));
    mirror.set(|state| {
        state.faults = vec![Fault::Cut(2), Fault::Cut(10_000)];
        state.faults.extend([Fault::Wrong; 20]);
    });
    registry.set(|state| state.faults = vec![Fault::Cut(10_000); 20]);
    job(&[&mirror, &registry], &folder, "b").run().unwrap();
    assert!(folder.has(&layer));
    assert_eq!(registry.state.lock().unwrap().sent, 10_000 + layer.len());
}

/// What a power cut may leave of a fetch, step by step: names without bytes, zeros, halves, a mark of another time.
#[test]
fn fetch_recovers_from_a_power_cut_at_each_step() {
    type Damage = fn(&Layout, &FakeRegistry, &[u8]);
    let damages: [(&str, Damage); 11] = [
        ("manifest without bytes", |layout, registry, _| {
            fs::write(layout.blob(&Digest::of(&registry.state.lock().unwrap().manifest)), b"").unwrap();
        }),
        ("manifest of zeros", |layout, registry, _| {
            let manifest = registry.state.lock().unwrap().manifest.clone();
            fs::write(layout.blob(&Digest::of(&manifest)), vec![0; manifest.len()]).unwrap();
        }),
        ("config without bytes", |layout, _, _| fs::write(layout.blob(&Digest::of(b"{}")), b"").unwrap()),
        ("part without bytes", |layout, _, layer| {
            fs::write(layout.blob(&Digest::of(layer)).with_extension("part"), b"").unwrap();
        }),
        ("zeros after the mark", |layout, _, layer| {
            let whole = layout.blob(&Digest::of(layer));
            let bytes = [&layer[..70_000], &[0; 80_000]].concat();
            fs::write(whole.with_extension("part"), bytes).unwrap();
            fs::write(whole.with_extension("mark"), "boot-1 70000\n").unwrap();
        }),
        ("part shorter than its mark", |layout, _, layer| {
            let whole = layout.blob(&Digest::of(layer));
            fs::write(whole.with_extension("part"), &layer[..10]).unwrap();
            fs::write(whole.with_extension("mark"), "boot-1 70000\n").unwrap();
        }),
        ("half a mark", |layout, _, layer| {
            fs::write(layout.blob(&Digest::of(layer)).with_extension("mark"), "boot-1 15").unwrap();
        }),
        ("no mark", |layout, _, layer| {
            fs::remove_file(layout.blob(&Digest::of(layer)).with_extension("mark")).unwrap();
        }),
        ("wrong bytes before the mark", |layout, _, layer| {
            let whole = layout.blob(&Digest::of(layer));
            fs::write(whole.with_extension("part"), vec![1; 150_000]).unwrap();
            fs::write(whole.with_extension("mark"), "boot-1 150000\n").unwrap();
        }),
        ("final name with half the bytes", |layout, _, layer| {
            fs::write(layout.blob(&Digest::of(layer)), &layer[..150_000]).unwrap();
        }),
        ("final name with zeros", |layout, _, layer| {
            fs::write(layout.blob(&Digest::of(layer)), vec![0; layer.len()]).unwrap();
        }),
    ];
    let layer = layer(300_000);
    for (index, (name, damage)) in damages.into_iter().enumerate() {
        let folder = Folder::new(&format!("step-{index}"));
        let registry = FakeRegistry::start(std::slice::from_ref(&layer));
        registry.set(|state| {
            state.faults = vec![Fault::Cut(2), Fault::Cut(150_000)];
            state.faults.extend([Fault::Cut(0); 9]);
        });
        assert!(job(&[&registry], &folder, "boot-1").run().is_err(), "{name}");
        registry.set(|state| state.faults.clear());
        damage(&folder.layout(), &registry, &layer);
        let mut second = job(&[&registry], &folder, "boot-2");
        second.run().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(folder.has(&layer) && folder.has(b"{}"), "{name}");
        assert!(folder.has(&registry.state.lock().unwrap().manifest.clone()), "{name}");
        let all = layer.len() as u64 + 2;
        assert_eq!(second.progress.bytes(), Some((all, all)), "{name}");
    }
}
