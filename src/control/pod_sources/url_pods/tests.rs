//! Tests the source against a scripted server.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use async_channel::Receiver;
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::*;
use crate::protocol::ed25519::PublicKey;
use crate::state::pods::SourceUpdate;
use crate::types::api::Bytes;

const WEB: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: busybox}]}\n";

/// The response to one path.
#[derive(Clone)]
enum Says {
    /// These bytes, after which the connection closes.
    Bytes(Vec<u8>),
    /// No response.
    Nothing,
}

fn ok(body: &str, headers: &str) -> Says {
    Says::Bytes(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes())
}

type Page = Box<dyn Fn(&str) -> Says + Send>;

/// A local server, which ends with the process.
struct Server {
    port: u16,
    page: Arc<Mutex<Page>>,
    /// The headers of the requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(page: impl Fn(&str) -> Says + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let page: Arc<Mutex<Page>> = Arc::new(Mutex::new(Box::new(page)));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (shown, noted) = (Arc::clone(&page), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (page, asked) = (Arc::clone(&shown), Arc::clone(&noted));
                thread::spawn(move || serve(stream, &page, &asked));
            }
        });
        Self { port, page, asked }
    }

    fn says(&self, page: impl Fn(&str) -> Says + Send + 'static) {
        *self.page.lock().unwrap() = Box::new(page);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn last_head(&self) -> String {
        self.asked.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

fn serve(mut stream: TcpStream, page: &Mutex<Page>, asked: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    asked.lock().unwrap().push(head.clone());
    let says = page.lock().unwrap()(&head);
    match says {
        Says::Bytes(bytes) => drop(stream.write_all(&bytes)),
        Says::Nothing => drop(stream.read(&mut [0])),
    }
}

/// A temporary directory for the stored response.
struct Disk(PathBuf);

impl Disk {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("coracle-url-pods-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn kept(&self) -> PathBuf {
        self.0.join("kept")
    }

    fn source(&self, port: u16) -> UrlPods {
        let shown = format!("http://127.0.0.1:{port}/board.yaml");
        UrlPods {
            place: ManifestPlace::Server(Url::parse(&shown).unwrap()),
            configured: shown,
            headers: vec![("X-Board".to_owned(), "7".to_owned())],
            every: Duration::from_millis(20),
            limit: Duration::from_millis(200),
            authorities: None,
            trust: None,
            serial: self.0.join("serial"),
            kept: self.kept(),
            node: ManifestNode::named("node1"),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the source while the test handles its updates.
fn with_source<T>(source: UrlPods, test: impl AsyncFnOnce(&mut Told) -> T) -> T {
    let (inbox, updates) = async_channel::bounded(64);
    rt::block_on(async {
        let _task = rt::spawn(run(source, Dialer::new(), inbox, Rc::default()));
        test(&mut Told(updates)).await
    })
}

struct Told(Receiver<SyncEvent>);

impl Told {
    async fn next(&mut self) -> SourceUpdate {
        match rt::deadline(Duration::from_secs(60), self.0.recv()).await.expect("an update in time").unwrap() {
            SyncEvent::Sources(update) => update,
            other => panic!("{other:?}"),
        }
    }

    async fn until(&mut self, claim: impl Fn(&SourceUpdate) -> bool) -> SourceUpdate {
        loop {
            let update = self.next().await;
            if claim(&update) {
                return update;
            }
        }
    }

    /// Checks that no update is sent during this many requests.
    async fn silent(&mut self, server: &Server, times: usize) {
        let end = server.asked() + times;
        while server.asked() < end {
            rt::sleep(Duration::from_millis(10)).await;
        }
        assert!(self.0.is_empty(), "{:?}", self.0.try_recv());
    }
}

fn names(update: &SourceUpdate) -> Vec<&str> {
    update.pods.iter().map(|pod| pod.pod.metadata.name.as_str()).collect()
}

fn problem(update: &SourceUpdate) -> &str {
    update.problems.first().map_or("", |problem| &problem.message)
}

#[test]
fn unmodified_response_is_free_and_the_next_one_counts() {
    let disk = Disk::new();
    let etag = |body: &'static str, etag: &'static str| {
        move |head: &str| {
            if head.to_lowercase().contains(&format!("if-none-match: {etag}\r\n")) {
                return Says::Bytes(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec());
            }
            ok(body, &format!("ETag: {etag}\r\n"))
        }
    };
    let server = Server::new(etag(WEB, "\"1\""));
    let inode = || fs::metadata(disk.kept()).unwrap().ino();
    with_source(disk.source(server.port), async |told| {
        assert!(!told.next().await.complete, "nothing is kept yet");
        let first = told.next().await;
        assert_eq!((names(&first), first.complete), (vec!["web-node1"], true));
        let kept = inode();
        told.silent(&server, 3).await;
        let head = server.last_head().to_lowercase();
        assert!(
            head.starts_with("get /board.yaml http/1.1\r\n") && head.contains("if-none-match: \"1\"\r\n"),
            "{head}"
        );
        assert!(head.contains("x-board: 7\r\n") && head.contains("user-agent: coracle/"), "{head}");
        server.says(etag("apiVersion: v1\nkind: PodList\nitems: []\n", "\"2\""));
        let second = told.next().await;
        assert!(names(&second).is_empty() && second.complete && second.problems.is_empty());
        assert_ne!(inode(), kept);
    });
}

#[test]
fn any_failure_keeps_the_pods_and_is_reported_once() {
    let disk = Disk::new();
    let server = Server::new(|_| ok(WEB, ""));
    with_source(disk.source(server.port), async |told| {
        let good = told.until(|update| update.complete).await;
        let kept = fs::read(disk.kept()).unwrap();
        let cut = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{WEB}", WEB.len() + 9).into_bytes();
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{WEB}").into_bytes();
        let long = ok(&"#".repeat(MAX_URL_MANIFEST_BYTES + 1), "");
        for (says, why) in [
            (
                Says::Nothing,
                "cannot be fetched: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            ),
            (Says::Bytes(cut), "cannot be fetched: unexpected EOF"),
            (Says::Bytes(endless), "the answer does not say how long it is, so that it may have been cut short"),
            (
                Says::Bytes(b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n".to_vec()),
                "expected 200 OK, found status 503",
            ),
            (
                ok("<html>", "Content-Type: text/html\r\n"),
                "expected a manifest, found a page in HTML: is something else in between?",
            ),
            (
                ok(&WEB.replace("kind: Pod", "kind: Ingress"), ""),
                "kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads",
            ),
            (ok("", ""), "there is nothing in it; to remove its pods, give a PodList without items"),
            (long, "it has more than 1048576 bytes"),
            (Says::Bytes(Vec::new()), "cannot be fetched: EOF"),
        ] {
            server.says(move |_| says.clone());
            let update = told.next().await;
            assert_eq!(problem(&update), why);
            assert!(update.complete && update.problems[0].keeps_last_good, "{why}");
            assert!(Arc::ptr_eq(&update.pods[0].pod, &good.pods[0].pod), "{why}");
            told.silent(&server, 1).await;
            assert_eq!(fs::read(disk.kept()).unwrap(), kept, "{why}");
            server.says(|_| ok(WEB, ""));
            let update = told.next().await;
            assert!(update.problems.is_empty() && Arc::ptr_eq(&update.pods[0].pod, &good.pods[0].pod), "{why}");
        }
    });
}

#[test]
fn start_without_the_server_uses_the_stored_pods() {
    let disk = Disk::new();
    let server = Server::new(|_| ok(WEB, ""));
    let before = with_source(disk.source(server.port), async |told| told.until(|update| update.complete).await);
    // The same URL, with no server behind it.
    server.says(|_| Says::Bytes(Vec::new()));
    with_source(disk.source(server.port), async |told| {
        let kept = told.next().await;
        assert!(kept.complete);
        assert_eq!(names(&kept), names(&before));
        assert_eq!(kept.pods[0].pod.metadata.uid, before.pods[0].pod.metadata.uid);
        assert_eq!(names(&told.next().await), ["web-node1"]);
    });
    // Another URL must not use the stored response.
    let mut other = disk.source(server.port);
    other.configured.push('2');
    with_source(other, async |told| assert!(!told.next().await.complete));
    let whole = fs::read(disk.kept()).unwrap();
    fs::write(disk.kept(), &whole[..whole.len() - 4]).unwrap();
    with_source(disk.source(server.port), async |told| {
        let update = told.next().await;
        assert!(!update.complete, "what runs for no visible reason is left alone");
        assert!(problem(&update).ends_with("is not used: it is damaged"), "{}", problem(&update));
    });
}

#[test]
fn with_a_key_only_signed_manifests_count() {
    let disk = Disk::new();
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key = PublicKey::parse(Bytes(pair.public_key().as_ref().to_vec()).to_base64().as_bytes());
    let trust = key.map(|key| Trust { key, audiences: vec!["node/node1".to_owned()], takes_plain: false });
    let serial = std::cell::Cell::new(5);
    let signed = |text: &str| {
        let head = format!("coracle-manifest-v1\naudience: node/node1\nserial: {}\n", serial.get());
        let signature = Bytes(pair.sign([&head, text].concat().as_bytes()).as_ref().to_vec()).to_base64();
        [head, signature].concat()
    };
    let other = WEB.replace("busybox", "nginx");
    let pages = |manifest: &str, signature: String| {
        let manifest = manifest.to_owned();
        move |head: &str| ok(if head.starts_with("GET /board.yaml.sig ") { &signature } else { &manifest }, "")
    };
    let server = Server::new(pages(WEB, signed(WEB)));
    let source = || UrlPods { trust: trust.clone(), ..disk.source(server.port) };
    with_source(source(), async |told| {
        let good = told.until(|update| update.complete).await;
        server.says(pages(&other, signed(WEB)));
        let update = told.next().await;
        assert_eq!(problem(&update), "the signature is not that of this manifest by this key");
        assert!(Arc::ptr_eq(&update.pods[0].pod, &good.pods[0].pod));
        serial.set(6);
        server.says(pages(&other, signed(&other)));
        assert_eq!(told.next().await.pods[0].pod.spec.containers[0].image, "nginx");
    });
    // A replay is refused, also by a node that has lost the stored response.
    fs::remove_file(disk.kept()).unwrap();
    serial.set(5);
    server.says(pages(WEB, signed(WEB)));
    with_source(source(), async |told| {
        let update = told.until(|update| !update.problems.is_empty()).await;
        assert_eq!(problem(&update), "the serial number 5 is lower than 6 of an earlier manifest");
        serial.set(6);
        server.says(pages(&other, signed(&other)));
        told.until(|update| update.complete).await;
    });
    // The stored response is verified against the key again.
    server.says(|_| Says::Bytes(Vec::new()));
    with_source(source(), async |told| assert!(told.next().await.complete));
    let forged = encode(&source().configured, &SignedManifest { manifest: WEB.as_bytes().to_vec(), signature: None });
    durable::write(&disk.kept(), &forged).unwrap();
    with_source(source(), async |told| {
        let update = told.next().await;
        assert!(!update.complete && update.pods.is_empty());
        assert!(problem(&update).contains("invalid signature"), "{}", problem(&update));
    });
}

#[test]
fn signature_suffix_follows_the_path() {
    for (url, expected) in [("http://h/a.yaml", "http://h/a.yaml.sig"), ("http://h/a?b=c", "http://h/a.sig?b=c")] {
        assert_eq!(with_suffix(&Url::parse(url).unwrap()).to_string(), expected);
    }
}
