//! A test's own registry and proxies in front of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use super::node::{BUSYBOX, Node, PATIENCE, Process, find_program, images, wait_for};

/// A registry inside a node's network, which containerd accesses without TLS.
pub(crate) struct Registry {
    process: Option<Process>,
    /// `127.0.0.1:5000`
    pub(crate) address: String,
    login: Option<&'static str>,
}

/// The login of a registry that asks for a password.
pub(crate) const USER: &str = "carrier";
pub(crate) const PASSWORD: &str = "coracle-on-the-teifi";
/// The login as written by `htpasswd -B`.
pub(crate) const HTPASSWD: &str = "carrier:$2y$05$uVbDP//VB3zVFvhtLZSPBecnCZwKdVBAu/jYg1pi5R/X/B8Aqmxxe\n";

impl Registry {
    pub(crate) fn start(node: &Node) -> Self {
        Self::launch(node, "", None)
    }

    pub(crate) fn with_password(node: &Node) -> Self {
        let file = node.folder().join("htpasswd");
        fs::write(&file, HTPASSWD).unwrap();
        let auth = format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", file.display());
        Self::launch(node, &auth, Some("carrier:coracle-on-the-teifi"))
    }

    fn launch(node: &Node, auth: &str, login: Option<&'static str>) -> Self {
        let address = "127.0.0.1:5000".to_owned();
        let (store, config) = (node.folder().join("registry"), node.folder().join("registry.yml"));
        let text = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{address}\"}}\n{auth}",
            store.display()
        );
        fs::write(&config, text).unwrap();
        let log = node.folder().join("registry.log");
        let arguments = ["serve", &config.display().to_string()];
        let process = node.enclosure().start(&find_program("docker-registry"), &arguments, &log);
        let registry = Self { process: Some(process), address, login };
        wait_for("the registry to answer", PATIENCE, || {
            node.enclosure().on_network(|| TcpStream::connect(&registry.address)).ok()
        });
        registry
    }

    /// Pushes an image of the runtime under this name and returns the full reference.
    pub(crate) fn push(&self, node: &Node, image: &str, name: &str) -> String {
        let target = format!("{}/{name}", self.address);
        node.push_image(image, &target, self.login);
        target
    }

    pub(crate) fn push_busybox(&self, node: &Node, name: &str) -> String {
        self.push(node, BUSYBOX, name)
    }

    pub(crate) fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end(nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// Creates an image of this size in the runtime as `localhost/NAME`. Its shell only stays.
pub(crate) fn make_image(node: &Node, name: &str, bytes: usize) -> String {
    let work = node.folder().join(format!("image-{name}"));
    fs::create_dir_all(work.join("root/bin")).unwrap();
    fs::copy(images().join("pause"), work.join("root/bin/sh")).unwrap();
    // Random data, which does not compress.
    let mut random = fs::File::open("/dev/urandom").unwrap().take(bytes as u64);
    std::io::copy(&mut random, &mut fs::File::create(work.join("root/filling")).unwrap()).unwrap();
    let image = format!("localhost/{name}:1");
    let script = format!(
        r#"cd {0} && tar -cf layer.tar -C root . && layer=$(sha256sum layer.tar | cut -d' ' -f1) &&
        echo '{{"architecture":"'$(dpkg --print-architecture | sed s/armhf/arm/)'","os":"linux","config":{{"Env":["PATH=/bin"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:'$layer'"]}}}}' >config.json &&
        echo '[{{"Config":"config.json","RepoTags":["{image}"],"Layers":["layer.tar"]}}]' >manifest.json &&
        tar -cf image.tar config.json layer.tar manifest.json"#,
        work.display()
    );
    let made = std::process::Command::new("sh").args(["-ec", &script]).status().unwrap();
    assert!(made.success(), "the image {image} could not be made");
    node.import_image(&work.join("image.tar"), &image);
    fs::remove_dir_all(&work).unwrap();
    image
}

/// Behaviour of the connection to the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// All connections are closed after this many bytes in total.
    DeadAfter(usize),
    /// No byte until this changes.
    Held,
    /// A few bytes at a time.
    Slow,
}

/// A proxy for a registry on its own port.
pub(crate) struct Proxy {
    pub(crate) address: String,
    way: Arc<Mutex<Way>>,
    open: Arc<AtomicUsize>,
    given: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn start(node: &Node, registry: &Registry, way: Way) -> Self {
        let listener = node.enclosure().on_network(|| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap().to_string();
        let way = Arc::new(Mutex::new(way));
        let open = Arc::new(AtomicUsize::new(0));
        let network = node.enclosure().network();
        let (to, shared, count) = (registry.address.clone(), Arc::clone(&way), Arc::clone(&open));
        let given = Arc::new(AtomicUsize::new(0));
        let all = Arc::clone(&given);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let (network, to) = (network.try_clone().unwrap(), to.clone());
                let (way, count, given) = (Arc::clone(&shared), Arc::clone(&count), Arc::clone(&given));
                thread::spawn(move || {
                    nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                    if let Ok(far) = TcpStream::connect(to) {
                        serve(&near, &far, &way, &given);
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, way, open, given: all }
    }

    /// The reference of the same image through this proxy.
    pub(crate) fn name(&self, registry: &Registry, image: &str) -> String {
        image.replace(&registry.address, &self.address)
    }

    pub(crate) fn set(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }

    /// Number of bytes that clients were sent.
    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::SeqCst)
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

fn serve(near: &TcpStream, far: &TcpStream, way: &Mutex<Way>, given: &AtomicUsize) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut &*near, &mut &*far);
            // Otherwise the other direction would wait forever.
            let _ = far.shutdown(Shutdown::Both);
        });
        give(far, near, way, given);
        let _ = near.shutdown(Shutdown::Both);
        let _ = far.shutdown(Shutdown::Both);
    });
}

fn give(mut from: &TcpStream, mut to: &TcpStream, way: &Mutex<Way>, given: &AtomicUsize) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let way = *way.lock().unwrap();
            let part = match way {
                Way::Open => rest.len(),
                Way::Held => {
                    // Nothing is sent: only the client's close can end this.
                    thread::sleep(Duration::from_millis(20));
                    if is_closed(to) {
                        return;
                    }
                    continue;
                }
                Way::DeadAfter(most) if given.load(Ordering::SeqCst) + rest.len() > most => return,
                Way::DeadAfter(_) => rest.len(),
                Way::Slow => {
                    // The rate of a slow line.
                    thread::sleep(Duration::from_millis(100));
                    rest.len().min(256)
                }
            };
            if to.write_all(&rest[..part]).is_err() {
                return;
            }
            given.fetch_add(part, Ordering::SeqCst);
            rest = &rest[part..];
        }
    }
}

/// Whether the client has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    !matches!(recv(stream.as_raw_fd(), &mut [0], flags), Ok(1..) | Err(Errno::EAGAIN))
}

/// `{"auths": ...}` with a login for one registry.
pub(crate) fn docker_config(registry: &str, password: &str) -> String {
    serde_json::json!({"auths": {registry: {"username": USER, "password": password}}}).to_string()
}

/// A Secret document to append to a manifest.
pub(crate) fn secret(name: &str, registry: &str, password: &str) -> String {
    let config = serde_json::Value::String(docker_config(registry, password));
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/dockerconfigjson\n\
         stringData: {{.dockerconfigjson: {config}}}\n"
    )
}

/// Writes an executable script.
pub(crate) fn write_program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
