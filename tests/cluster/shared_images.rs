//! Images that nodes copy from each other: real agents, a fake runtime for each, and a registry that counts.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::door::Place;
use super::node::{BUSYBOX, Manifest, Node};
use super::serving::{ALLOWS_ALL, Served};
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::{FakeApi, Options};

const CONTENT: &str = "content of a layer";

/// A node with kept content, and the path of that at the node's server.
fn start_with_content(images: &str) -> (Served, String) {
    let mut served = Served::new(Options::default());
    let config = served.path("coracle.yaml");
    fs::write(&config, format!("images: {{{images}}}\n")).unwrap();
    let kept = served.path("pods/coracle/share");
    fs::create_dir_all(&kept).unwrap();
    let hex = hex(CONTENT.as_bytes());
    fs::write(kept.join(&hex), CONTENT).unwrap();
    served.start(ALLOWS_ALL, &["--coracle-config", &config.display().to_string()]);
    (served, format!("/v2/library/app/blobs/sha256:{hex}"))
}

#[test]
fn images_are_served_to_nodes_with_their_certificates_only() {
    let (served, blob) = start_with_content("fetch: resumable, share: true");
    let node = served.client("system:node:node-b", &["system:nodes"]);
    assert_eq!(served.place.get("/v2/", Some(&node)), (200, "{}".to_owned()));
    assert_eq!(served.place.get(&blob, Some(&node)), (200, CONTENT.to_owned()));
    let range = |range: &str| served.place.reach(Some(&node)).get(&blob, &format!("Range: bytes={range}\r\n"));
    assert_eq!(range("11-"), (206, "a layer".to_owned()));
    assert_eq!(range("0-6"), (206, "content".to_owned()));
    assert_eq!(range("-6").0, 400);
    assert_eq!(range("18-").0, 404);
    for path in ["/v2/library/app/manifests/latest", "/v2/app/blobs/sha256:../../etc/passwd", "/v2/app/tags/list"] {
        assert_eq!(served.place.get(path, Some(&node)).0, 404, "{path}");
    }
    let put = format!("PUT {blob} HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(served.place.reach(Some(&node)).say(&put).unwrap().0, 405);
    let others =
        [served.admin(), served.client("system:node:node-b", &["viewers"]), served.client("viewer", &["system:nodes"])];
    for path in [&*blob, "/v2/"] {
        assert_eq!(served.place.get(path, None).0, 401, "{path}");
        for other in &others {
            assert_eq!(served.place.get(path, Some(other)).0, 403, "{path}");
        }
    }
}

#[test]
fn node_that_does_not_share_serves_nothing_and_keeps_nothing() {
    let (served, blob) = start_with_content("fetch: resumable");
    let node = served.client("system:node:node-b", &["system:nodes"]);
    assert_eq!(served.place.get(&blob, Some(&node)).0, 404);
    assert!(!served.path("pods/coracle/share").exists());
}

/// A node of a cluster whose runtime imports every image.
struct Board {
    node: Node,
    place: Place,
}

impl Board {
    fn new() -> Self {
        let board = Self { node: Node::new(), place: Place::new() };
        board.node.fake.set_name("containerd");
        let (bin, folder) = (board.path("bin"), board.node.folder().display());
        fs::create_dir(&bin).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n*\"images import\"*) cat >{folder}/new && mv {folder}/new {folder}/imported ;;\nesac\n"
        );
        fs::write(bin.join("ctr"), script).unwrap();
        fs::set_permissions(bin.join("ctr"), fs::Permissions::from_mode(0o755)).unwrap();
        board
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.folder().join(name)
    }

    fn address(&self) -> String {
        format!("{}:10250", self.place.ip())
    }

    /// Starts the agent with a pod of this image.
    fn start(&mut self, name: &str, api: &FakeApi, image: &str, peers: &[String]) {
        let authority = self.path("clients.crt");
        fs::write(&authority, api.authority_pem()).unwrap();
        self.node.configure(&format!(
            "{}{ALLOWS_ALL}authentication: {{x509: {{clientCAFile: {}}}}}\nimageGCHighThresholdPercent: 100\n\
             evictionHard: {{}}\n",
            self.place.configuration(),
            authority.display()
        ));
        let config = self.path("coracle.yaml");
        let peers = peers.join(", ");
        fs::write(&config, format!("images: {{fetch: resumable, share: true, peers: [{peers}]}}\n")).unwrap();
        let manifest = Manifest::new("web").container_with("main", "", "imagePullPolicy: IfNotPresent");
        self.node.write_manifest("web", &manifest.text().replace(BUSYBOX, image));
        let kubeconfig = api.kubeconfig(self.node.folder(), &Credentials::of_node(name));
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        self.node.start_agent_with(|command| {
            command.arg("--kubeconfig").arg(kubeconfig).arg("--coracle-config").arg(config);
            command.args(["--make-iptables-util-chains=false", "--hostname-override", name]).env("PATH", path);
        });
    }

    /// Lets the runtime list the image once it has been imported; returns when the pod runs.
    fn wait_until_running(&self, image: &str) {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.path("imported").exists() {
            assert!(Instant::now() < end, "nothing was imported");
            thread::sleep(Duration::from_millis(20));
        }
        self.node.fake.add_image(image);
        self.node.fake.wait_for("the container to run", |world| world.running("main").is_some());
    }

    fn keeps(&self, blob: &[u8]) -> bool {
        fs::read(self.path("pods/coracle/share").join(hex(blob))).is_ok_and(|found| found == blob)
    }
}

/// A registry with one image.
struct CountingRegistry {
    address: String,
    layer: Arc<Vec<u8>>,
    /// Bytes of bodies that were sent.
    sent: Arc<AtomicUsize>,
}

impl CountingRegistry {
    /// `rate`: bytes a second of each connection.
    fn start(length: usize, rate: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let layer: Vec<u8> = (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
        let config = b"{}".to_vec();
        let blob = |bytes: &[u8]| json!({"digest": format!("sha256:{}", hex(bytes)), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(&config), "layers": [blob(&layer)],
        });
        let (layer, sent) = (Arc::new(layer), Arc::new(AtomicUsize::new(0)));
        let contents = Arc::new([Arc::clone(&layer), Arc::new(config), Arc::new(manifest.to_string().into_bytes())]);
        let all = Arc::clone(&sent);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (contents, sent) = (Arc::clone(&contents), Arc::clone(&all));
                thread::spawn(move || serve(&stream, &contents, rate, &sent));
            }
        });
        Self { address, layer, sent }
    }

    fn image(&self) -> String {
        format!("{}/team/app:1", self.address)
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: &TcpStream, contents: &[Arc<Vec<u8>>; 3], rate: usize, sent: &AtomicUsize) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        let head: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let path = head.first()?.split(' ').nth(1)?.to_owned();
        let is_head = head.first()?.starts_with("HEAD ");
        let [.., manifest] = contents;
        let content = contents.iter().find(|content| path.ends_with(&hex(content))).unwrap_or(manifest);
        let range =
            head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        let first: usize = range.as_ref().map_or(0, |range| range.split('-').next().unwrap().parse().unwrap());
        let body = &content[first..];
        let head = match range {
            Some(_) => {
                format!("206 Partial Content\r\nContent-Range: bytes {first}-{}/{}", content.len() - 1, content.len())
            }
            None => "200 OK".to_owned(),
        };
        write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).ok()?;
        if is_head {
            continue;
        }
        for part in body.chunks(rate / 50) {
            stream.write_all(part).ok()?;
            sent.fetch_add(part.len(), Ordering::SeqCst);
            if part.len() == rate / 50 {
                // The rate: fifty parts a second.
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of the manifest and configuration that each node asks the registry for.
const DOCUMENTS: usize = 1024;

#[test]
fn second_node_copies_from_the_first_and_a_node_of_another_cluster_does_not() {
    let api = FakeApi::start(Options::default());
    let registry = CountingRegistry::start(3_000_000, 50_000_000);
    let image = registry.image();
    let mut first = Board::new();
    first.start("node-1", &api, &image, &[]);
    first.wait_until_running(&image);
    let alone = registry.sent();
    assert!((3_000_000..3_000_000 + DOCUMENTS).contains(&alone), "{alone} bytes");
    let mut second = Board::new();
    second.start("node-2", &api, &image, &[first.address()]);
    second.wait_until_running(&image);
    assert!(registry.sent() - alone < DOCUMENTS, "{} bytes more", registry.sent() - alone);
    assert!(second.keeps(&registry.layer));
    let before = registry.sent();
    let (foreign, mut stranger) = (FakeApi::start(Options::default()), Board::new());
    stranger.start("node-3", &foreign, &image, &[first.address(), second.address()]);
    stranger.wait_until_running(&image);
    assert!(registry.sent() - before >= 3_000_000, "{} bytes", registry.sent() - before);
    assert!(stranger.node.log().contains("node is not asked for images for a while"));
}

/// The figure of docs/performance.md.
#[test]
fn ten_agents_download_an_image_once() {
    const NODES: usize = 10;
    const LENGTH: usize = 20_000_000;
    let api = FakeApi::start(Options::default());
    let registry = CountingRegistry::start(LENGTH, 5_000_000);
    let image = registry.image();
    let mut boards: Vec<Board> = (0..NODES).map(|_| Board::new()).collect();
    // The same list on each node, with the node itself.
    let peers: Vec<String> = boards.iter().map(Board::address).collect();
    let begun = Instant::now();
    for (number, board) in boards.iter_mut().enumerate() {
        board.start(&format!("node-{number}"), &api, &image, &peers);
    }
    thread::scope(|scope| {
        for board in &boards {
            scope.spawn(|| board.wait_until_running(&image));
        }
    });
    let (sent, took) = (registry.sent(), begun.elapsed());
    println!("{NODES} agents, an image of {LENGTH} bytes: {sent} bytes from the registry, {took:.1?}");
    assert!(sent < LENGTH + NODES * DOCUMENTS, "{sent} bytes for an image of {LENGTH}");
}
