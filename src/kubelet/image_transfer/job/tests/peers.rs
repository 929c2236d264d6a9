//! Fetches from other nodes, some of which misbehave.

use std::io::{Seek as _, SeekFrom};

use super::*;
use crate::kubelet::image_transfer::peers::{AvoidedPeers, Peer, PeerWaits, Peers};
use crate::kubelet::image_transfer::shared_images::{SharedAnswer, SharedImages};
use crate::platform::net::Deadline;

/// Shorter than those of the agent, but not the wait for bytes.
const SHORT: PeerWaits = PeerWaits {
    response: Duration::from_secs(1),
    round: Duration::from_millis(20),
    claim: Duration::from_millis(100),
    bytes: Duration::from_secs(30),
    lost: Duration::from_secs(15),
};

/// A node that shares.
struct SharingNode {
    folder: Folder,
    shared: SharedImages,
    avoided: AvoidedPeers,
    address: String,
}

impl SharingNode {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let shared = SharedImages::new(&folder.0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = served.clone();
                thread::spawn(move || serve(&shared, &stream));
            }
        });
        Self { folder, shared, avoided: AvoidedPeers::default(), address }
    }

    fn layout(&self) -> Layout {
        Layout(self.folder.0.join("fetch/image"))
    }

    fn job(&self, registry: &FakeRegistry, peers: &[&str]) -> Job {
        self.job_with(registry, peers, SHORT)
    }

    fn job_with(&self, registry: &FakeRegistry, peers: &[&str], waits: PeerWaits) -> Job {
        let mut job = Job { layout: self.layout(), ..job(&[registry], &self.folder, "b") };
        let peer = |address: &&str| {
            let deadline = Arc::new(Deadline::new());
            let connect = Connect {
                tls: tls_config(Arc::new(AnyCertificate)).unwrap(),
                proxies: Arc::default(),
                cancelled: Arc::clone(&job.cancelled),
                deadline: Some(Arc::clone(&deadline)),
            };
            let mirror = Mirror { base: format!("http://{address}/v2"), ..Mirror::default() };
            Peer::new(Registry::new(mirror, "images", None, connect), deadline)
        };
        let peers = peers.iter().map(peer).collect();
        job.peers = Some(Peers::new(peers, self.shared.clone(), self.avoided.clone(), waits));
        job
    }

    fn has(&self, bytes: &[u8]) -> bool {
        fs::read(self.layout().blob(&Digest::of(bytes))).is_ok_and(|found| found == bytes)
    }
}

/// Answers requests for blobs as the kubelet API does.
fn serve(shared: &SharedImages, mut stream: &TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let lower = head.to_ascii_lowercase();
        assert!(!lower.contains("authorization"), "{head}");
        let digest = head.split(' ').nth(1).unwrap().rsplit('/').next().unwrap();
        let range = lower.split_once("range: bytes=").unwrap().1.split_once('-').unwrap();
        let (first, last): (u64, u64) = (range.0.parse().unwrap(), range.1.lines().next().unwrap().parse().unwrap());
        let client = stream.peer_addr().unwrap().to_string();
        let refuse = |mut stream: &TcpStream, status: &str, message: &str| {
            let body = json!({"errors": [{"message": message}]}).to_string();
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        let sent = match shared.find(digest, first, &client) {
            SharedAnswer::Part(mut part) => {
                let end = part.length.min(last + 1);
                let total = if part.is_whole { part.length.to_string() } else { "*".to_owned() };
                part.file.seek(SeekFrom::Start(first)).unwrap();
                write!(
                    stream,
                    "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{}/{total}\r\n\r\n",
                    end - first,
                    end - 1
                )
                .and_then(|()| io::copy(&mut part.file.take(end - first), &mut stream).map(drop))
            }
            SharedAnswer::Claimed(claim) => refuse(stream, "503 No", &format!("fetching {claim}")),
            SharedAnswer::Busy => refuse(stream, "429 No", ""),
            SharedAnswer::Absent => refuse(stream, "404 No", ""),
        };
        if sent.is_err() {
            return;
        }
    }
}

#[test]
fn ten_nodes_that_start_at_once_fetch_each_blob_once() {
    let layers = [layer(3_000_000), layer(700_001), layer(40_000)];
    let registry = FakeRegistry::start(&layers);
    let nodes: Vec<SharingNode> = (0..10).map(|number| SharingNode::start(&format!("ten-{number}"))).collect();
    // The same configuration on each: a node is its own peer.
    let addresses: Vec<&str> = nodes.iter().map(|node| node.address.as_str()).collect();
    let jobs: Vec<_> = nodes.iter().map(|node| node.job(&registry, &addresses)).collect();
    let threads: Vec<_> = jobs.into_iter().map(|mut job| thread::spawn(move || job.run().map(drop))).collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert!(nodes.iter().all(|node| layers.iter().all(|layer| node.has(layer))));
    let once = layers.iter().map(Vec::len).sum::<usize>() + b"{}".len();
    assert_eq!(registry.state.lock().unwrap().sent, once);
}

#[test]
fn node_copies_a_part_and_fetches_the_rest() {
    let layers = [layer(2_000_000)];
    let registry = FakeRegistry::start(&layers);
    let (first, second) = (SharingNode::start("half-1"), SharingNode::start("half-2"));
    // The first node loses the registry in the middle of the layer.
    registry.set(|state| {
        state.faults = vec![Fault::Cut(2), Fault::Cut(1_000_000)];
        state.faults.extend([Fault::Cut(0); 9]);
    });
    first.job(&registry, &[]).run().unwrap_err();
    registry.set(|state| (state.faults, state.sent) = (Vec::new(), 0));
    let _under_way = first.shared.begin(&Digest::of(&layers[0]));
    second.job(&registry, &[&first.address]).run().unwrap();
    assert!(second.has(&layers[0]));
    // The configuration is whole.
    assert_eq!(registry.state.lock().unwrap().sent, 1_000_000);
}

#[test]
fn claim_that_brings_no_byte_is_waited_for_once() {
    let layers = [layer(30_000), layer(20_000), layer(10_000)];
    let registry = FakeRegistry::start(&layers);
    let (first, second) = (SharingNode::start("claim-1"), SharingNode::start("claim-2"));
    let under_way: Vec<_> = layers.iter().map(|layer| first.shared.begin(&Digest::of(layer))).collect();
    under_way.iter().for_each(|under_way| under_way.claims(0));
    let begun = Instant::now();
    let bytes = Duration::from_millis(700);
    second.job_with(&registry, &[&first.address], PeerWaits { bytes, ..SHORT }).run().unwrap();
    let took = begun.elapsed();
    assert!(second.has(&layers[2]));
    assert!((bytes..bytes * 2 + Duration::from_secs(1)).contains(&took), "{took:?}");
}

#[test]
fn misbehaving_peers_cost_a_bounded_time_and_no_wrong_byte() {
    let layers = [layer(300_000), layer(200_000)];
    for (name, fault) in [
        ("wrong", Fault::Wrong),
        ("length", Fault::Length(300_001)),
        ("short", Fault::Length(1_000)),
        ("silent", Fault::Stall),
        ("cut", Fault::Cut(60_000)),
        ("empty", Fault::Cut(0)),
        ("status", Fault::Status(500)),
        ("expired", Fault::Status(401)),
        ("no-range", Fault::NoRange),
    ] {
        let registry = FakeRegistry::start(&layers);
        let peer = FakeRegistry::start(&layers);
        peer.set(|state| state.forever = Some(fault));
        let node = SharingNode::start(&format!("bad-{name}"));
        let begun = Instant::now();
        node.job(&registry, &[&peer.address, "127.0.0.1:1"]).run().unwrap();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{name} took {took:?}");
        assert!(layers.iter().all(|layer| node.has(layer)), "{name}");
        let asked = peer.blob_requests().len();
        // It is not asked again, by the next image either.
        if !matches!(fault, Fault::NoRange | Fault::Cut(0)) {
            fs::remove_dir_all(&node.layout().0).unwrap();
            node.job(&registry, &[&peer.address]).run().unwrap();
            assert_eq!(peer.blob_requests().len(), asked, "{name}");
        }
    }
}

/// The tenant's own registry has an index that names a private manifest of another tenant, which the peer has.
#[test]
fn private_image_of_another_tenant_does_not_come_from_a_peer() {
    let layers = [layer(1000)];
    let theirs = FakeRegistry::start(&layers);
    let (first, second) = (SharingNode::start("private-1"), SharingNode::start("private-2"));
    first.job(&theirs, &[]).run().unwrap();
    let private = Digest::of(&theirs.state.lock().unwrap().manifest);
    let size = theirs.state.lock().unwrap().manifest.len();
    let platform = json!({"os": "linux", "architecture": "amd64"});
    let named = json!({"digest": private.to_string(), "size": size, "platform": platform});
    let own = FakeRegistry::start(&[]);
    own.set(|state| {
        state.manifest = json!({"schemaVersion": 2, "manifests": [named]}).to_string().into_bytes();
        state.refused = vec![private.clone()];
    });
    let error = second.job(&own, &[&first.address]).run().unwrap_err().to_string();
    assert!(error.contains(&format!("manifests/{private}: 404")), "{error}");
    assert!(!second.layout().blob(&private).exists() && !second.has(&layers[0]));
    // Nor does a layer, whose digest the tenant has learned in some way.
    let blob = |bytes: &[u8]| json!({"digest": Digest::of(bytes).to_string(), "size": bytes.len()});
    own.set(|state| {
        state.refused = vec![Digest::of(&layers[0])];
        state.manifest = json!({"config": blob(b"{}"), "layers": [blob(&layers[0])]}).to_string().into_bytes();
    });
    let error = second.job(&own, &[&first.address]).run().unwrap_err().to_string();
    assert!(error.contains(&format!("blobs/{}: 404", Digest::of(&layers[0]))), "{error}");
    assert!(!second.has(&layers[0]));
}

#[test]
fn silent_peers_are_given_up_together() {
    let registry = FakeRegistry::start(&[layer(30_000)]);
    let silent: Vec<_> = (0..6).map(|_| FakeRegistry::start(&[layer(30_000)])).collect();
    silent.iter().for_each(|peer| peer.set(|state| state.forever = Some(Fault::Stall)));
    let node = SharingNode::start("silent");
    let addresses: Vec<&str> = silent.iter().map(|peer| peer.address.as_str()).collect();
    let waits = PeerWaits { response: Duration::from_millis(1100), lost: Duration::from_secs(2), ..SHORT };
    let begun = Instant::now();
    node.job_with(&registry, &addresses, waits).run().unwrap();
    let asked = silent.iter().filter(|peer| !peer.blob_requests().is_empty()).count();
    assert!(asked < silent.len() && node.has(&layer(30_000)), "{asked} asked in {:?}", begun.elapsed());
}

/// The node would send requests where the peer wants.
#[test]
fn peers_redirect_and_challenge_in_vain() {
    let layers = [layer(1000)];
    let (registry, peer, target) =
        (FakeRegistry::start(&layers), FakeRegistry::start(&layers), FakeRegistry::start(&layers));
    let node = SharingNode::start("redirect");
    peer.set(|state| state.redirect = Some(target.address.clone()));
    node.job(&registry, &[&peer.address]).run().unwrap();
    assert_eq!((peer.blob_requests().is_empty(), target.blob_requests().len()), (false, 0));
    let peer = FakeRegistry::start(&layers);
    peer.set(|state| state.needs_token = true);
    let node = SharingNode::start("challenge");
    node.job(&registry, &[&peer.address]).run().unwrap();
    assert_eq!(peer.state.lock().unwrap().tokens, 0);
    assert!(node.has(&layers[0]));
}

/// The registry decides what a tag means, and whether the credentials are good for an image.
#[test]
fn peers_do_not_replace_the_registry() {
    let layers = [layer(1000)];
    let registry = FakeRegistry::start(&layers);
    let first = SharingNode::start("alone-1");
    first.job(&registry, &[]).run().unwrap();
    let manifest = Digest::of(&registry.state.lock().unwrap().manifest);
    for reference in ["1".to_owned(), manifest.to_string()] {
        let second = SharingNode::start("alone-2");
        let mut job = second.job(&registry, &[&first.address]);
        job.servers = vec![server("127.0.0.1:1", true, &job.cancelled, ProxySettings::default())];
        job.reference = reference;
        job.run().unwrap_err();
        assert!(!second.has(&layers[0]));
    }
}

#[test]
fn cancelled_job_stops_waiting_for_peers() {
    let layers = [layer(1000)];
    let registry = FakeRegistry::start(&layers);
    let (first, second) = (SharingNode::start("cancel-1"), SharingNode::start("cancel-2"));
    let under_way = first.shared.begin(&Digest::of(&layers[0]));
    under_way.claims(0);
    let mut job = second.job(&registry, &[&first.address]);
    let cancelled = Arc::clone(&job.cancelled);
    let fetch = thread::spawn(move || job.run().map(drop));
    // A fetch that does not wait for the peer would have ended.
    thread::sleep(Duration::from_millis(500));
    assert!(!fetch.is_finished());
    cancelled.store(true, Ordering::Relaxed);
    assert!(matches!(fetch.join().unwrap(), Err(FetchError::Cancelled)));
    assert!(!second.has(&layers[0]));
}
