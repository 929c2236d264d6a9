//! Programs of the agent and manifests from a real registry.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::node::CORACLE;
use super::upgrades::{Board, key_and_signature};
use crate::containerd::node::find_program;
use crate::containerd::registry::{HTPASSWD, PASSWORD, USER};
use crate::wait::wait_for;

/// A registry that asks for a password.
struct Registry {
    process: Child,
    address: &'static str,
}

impl Registry {
    fn start(folder: &Path, address: &'static str) -> Self {
        fs::write(folder.join("htpasswd"), HTPASSWD).unwrap();
        let config = folder.join("registry.yml");
        let (store, passwords) = (folder.join("registry"), folder.join("htpasswd"));
        let text = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{address}\"}}\nauth: {{htpasswd: {{realm: test, path: {}}}}}\n",
            store.display(),
            passwords.display()
        );
        fs::write(&config, text).unwrap();
        let log = fs::File::create(folder.join("registry.log")).unwrap();
        let process = Command::new(find_program("docker-registry"))
            .arg("serve")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        wait_for("the registry", || TcpStream::connect(address).is_ok());
        Self { process, address }
    }

    /// Returns the head of the answer.
    fn send(&self, method: &str, target: &str, kind: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let login = base64(format!("{USER}:{PASSWORD}").as_bytes());
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Basic {login}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {target}: {answer}");
        answer.split("\r\n\r\n").next().unwrap().to_owned()
    }

    fn push_blob(&self, repository: &str, bytes: &[u8]) -> Value {
        let head = self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), "text/plain", b"");
        let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let target = location.split_once(self.address).map_or(location, |(_, target)| target);
        let digest = digest(bytes);
        self.send("PUT", &format!("{target}&digest={digest}"), "application/octet-stream", bytes);
        json!({ "mediaType": "application/octet-stream", "digest": digest, "size": bytes.len() })
    }

    /// Pushes the files as ORAS does. Returns the digest of the manifest.
    fn push(&self, repository: &str, tag: &str, files: &[(&str, &[u8])]) -> String {
        let mut layers = Vec::new();
        for (title, bytes) in files {
            let mut layer = self.push_blob(repository, bytes);
            layer["annotations"] = json!({ "org.opencontainers.image.title": title });
            layers.push(layer);
        }
        let mut config = self.push_blob(repository, b"{}");
        config["mediaType"] = "application/vnd.oci.empty.v1+json".into();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": kind, "artifactType": "application/vnd.coracle.agent",
            "config": config, "layers": layers,
        });
        let manifest = manifest.to_string();
        self.send("PUT", &format!("/v2/{repository}/manifests/{tag}"), kind, manifest.as_bytes());
        digest(manifest.as_bytes())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn base64(bytes: &[u8]) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A board with the key, and the login of the registry.
fn board(registry: &str, flags: &[&str]) -> Board {
    Board::with(|folder| {
        fs::write(folder.join("key"), key_and_signature(Path::new(CORACLE)).0).unwrap();
        let auths = json!({ "auths": { registry: { "auth": base64(format!("{USER}:{PASSWORD}").as_bytes()) } } });
        fs::create_dir_all(folder.join("pods")).unwrap();
        fs::write(folder.join("pods/config.json"), auths.to_string()).unwrap();
        let key = ["--manifest-public-key".to_owned(), folder.join("key").display().to_string()];
        flags.iter().map(|flag| (*flag).to_owned()).chain(key).collect()
    })
}

fn signature(file: &Path) -> String {
    key_and_signature(file).1
}

#[test]
fn program_in_a_registry_is_chosen_by_architecture_verified_and_tried() {
    let address = "127.0.58.1:5000";
    // Nobody serves the manifests, so the verdict does not need them.
    let board = board(address, &["--manifest-url", "http://127.0.58.1:9/x"]);
    let folder = board.node.folder();
    let registry = Registry::start(folder, address);
    let path = board.other_program("r");
    let (program, good) = (fs::read(&path).unwrap(), signature(&path));
    let upgrade = |tag: &str| {
        board.run(&["upgrade", &format!("oci://{address}/fleet/coracle:{tag}"), "--within", "2s", "--wait"])
    };
    // Those for other machines need not be programs.
    let names = ["386", "amd64", "arm", "arm64", "riscv64"].map(|one| (format!("c-{one}"), format!("c-{one}.sig")));
    let own = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let push = |tag: &str, signature: Option<&str>| {
        let mut files: Vec<(&str, &[u8])> = Vec::new();
        for (name, signed) in &names {
            let is_own = *name == format!("c-{own}");
            files.push((name, if is_own { &program } else { b"other" }));
            files.extend(signature.map(|signature| (signed.as_str(), signature.as_bytes())));
        }
        registry.push("fleet/coracle", tag, &files);
    };
    let (code, text) = upgrade("absent");
    assert!(code == 1 && text.contains("404"), "{text}");
    push("unsigned", None);
    let (code, text) = upgrade("unsigned");
    assert!(code == 1 && text.contains(&format!("the artifact has no layer c-{own}.sig")), "{text}");
    push("forged", Some(&signature(&folder.join("key"))));
    let (code, text) = upgrade("forged");
    assert!(code == 1 && text.contains("not signed by this node's key"), "{text}");
    push("1", Some(&good));
    let (code, text) = upgrade("1");
    assert!(code == 0 && text.ends_with("accepted\n"), "{text}");
    assert_eq!(format!("sha256:{}", board.record()["current"]["digest"].as_str().unwrap()), digest(&program));
    board.check_pods();
    assert!(fs::read_dir(board.agent().join("oci")).unwrap().next().is_none(), "parts are left");
}

fn pod(name: &str) -> String {
    let spec = "{containers: [{name: main, image: one}]}";
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

#[test]
fn manifests_in_a_registry_follow_their_tag_and_pin_the_agent() {
    let address = "127.0.58.2:5000";
    let place = format!("oci://{address}/fleet/board:stable");
    let store = std::env::temp_dir().join(format!("coracle-registry-sources-{}", std::process::id()));
    fs::create_dir_all(&store).unwrap();
    let registry = Registry::start(&store, address);
    let push = |name: &str, bytes: &[u8]| {
        fs::write(store.join(name), bytes).unwrap();
        let signature = signature(&store.join(name));
        registry.push("fleet/board", "stable", &[(name, bytes), (&format!("{name}.sig"), signature.as_bytes())])
    };
    push("board.yaml", pod("first").as_bytes());
    let board =
        board(address, &["--manifest-url", &place, "--http-check-frequency", "1s", "--manifest-plain-signatures"]);
    let has_pods = |names: &[&str]| {
        let text = board.node.ask(&["pods"]).unwrap_or_default();
        ["first", "second", "third"].iter().all(|name| text.contains(name) == names.contains(name))
    };
    let status_has = |part: &str| board.node.ask(&["status"]).is_some_and(|text| text.contains(part));
    wait_for("the first pod", || has_pods(&["first"]));
    // A bundle, as Flux makes it.
    for name in ["second", "third"] {
        fs::write(store.join(format!("{name}.yaml")), pod(name)).unwrap();
    }
    let tar = Command::new("tar").args(["-czf", "-", "second.yaml", "third.yaml"]).current_dir(&store).output();
    push("board.tgz", &tar.unwrap().stdout);
    wait_for("the pods of the bundle", || has_pods(&["second", "third"]));
    registry.push("fleet/board", "stable", &[("board.yaml", pod("first").as_bytes())]);
    wait_for("the error", || status_has("the artifact has no layer board.yaml.sig"));
    assert!(has_pods(&["second", "third"]));
    // The digest in the signed document is proof enough for a program without a signature.
    let program = fs::read(board.other_program("p")).unwrap();
    let pinned = registry.push("fleet/coracle", "1", &[("coracle", &program)]);
    let url = format!("oci://{address}/fleet/coracle@{pinned}");
    let spec = format!("{{version: 9.9.9, url: '{url}', withinSeconds: 2}}");
    push("board.yaml", format!("apiVersion: coracle.dev/v1\nkind: Agent\nspec: {spec}\n").as_bytes());
    // It was fetched and proven, and is not what the document says.
    wait_for("the end", || status_has(&format!("rejected: it says that it is version {}", env!("CARGO_PKG_VERSION"))));
    drop(registry);
    wait_for("the outage", || status_has("Connection refused") || status_has("connection refused"));
    board.check_pods();
    fs::remove_dir_all(store).unwrap();
}
