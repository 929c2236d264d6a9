//! Plugins that register by a socket in a directory (pluginregistration v1): device plugins, CSI drivers, DRA drivers.

mod error;

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::platform::host::directories;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::rpc::{self, Client};
use crate::platform::rt;
use crate::protocol::protobuf::{Message, decode, encode, message};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

use error::{CallError, RegisterError};

message! {
    struct InfoRequest {}

    /// A plugin's description of itself.
    pub(crate) struct PluginInfo {
        1 => kind: String,
        2 => name: String,
        /// The socket of the plugin's service; its registration socket if it names none.
        3 => endpoint: String,
        4 => supported_versions: Vec<String>,
    }

    struct RegistrationStatus {
        1 => plugin_registered: bool,
        2 => error: String,
    }

    struct RegistrationStatusResponse {}
}

/// A handler for plugins of one type.
pub(crate) struct PluginHandler {
    /// Such as `DevicePlugin`.
    pub(crate) kind: &'static str,
    pub(crate) register: RegisterHandler,
    /// Called when the socket of a registered plugin is removed.
    pub(crate) deregister: Box<dyn Fn(&PluginInfo)>,
}

type RegisterHandler = Box<dyn Fn(PluginInfo) -> Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>>>>>;

/// Depth of nested directories that are searched.
const MAX_PLUGIN_DIRECTORY_DEPTH: usize = 4;
/// Most sockets, of any type.
const MAX_PLUGIN_SOCKETS: usize = 256;
/// Most directories that are watched and searched, and most entries of all of them.
const MAX_PLUGIN_DIRECTORIES: usize = 256;
const MAX_PLUGIN_ENTRIES: usize = 10_000;
/// Longest answer to GetInfo, which stays in memory.
const MAX_PLUGIN_INFO_BYTES: usize = 16 * 1024;
/// Timeout of each call to a plugin.
const PLUGIN_CALL_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_REGISTRATION_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_REGISTRATION_RETRY_DELAY: Duration = Duration::from_secs(120);
/// Minimum interval between two scans of the directory.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(100);
/// Delay after the directory could not be watched.
const REWATCH_DELAY: Duration = Duration::from_secs(60);

/// Distinguishes a socket from a later one at the same path: file systems use the numbers of inodes again.
#[derive(Debug, PartialEq, Eq)]
struct SocketIdentity {
    inode: u64,
    changed_seconds: i64,
    changed_nanos: i64,
}

/// A socket, and the task that handles it.
struct KnownPlugin {
    identity: SocketIdentity,
    #[expect(dead_code, reason = "dropping the task ends it and deregisters the plugin")]
    task: rt::Task<()>,
}

/// Registers plugins in `directory` as they come and go, until the process exits.
pub(crate) async fn run(directory: PathBuf, handlers: Vec<PluginHandler>) {
    let handlers = Rc::new(handlers);
    let mut known_plugins: SortedMap<PathBuf, KnownPlugin> = SortedMap::new();
    loop {
        let looked = rt::now();
        let watched_directory = directory.clone();
        // The watch begins first: it reports what comes while the sockets are listed.
        let (watch, sockets_by_path) =
            rt::blocking(move || (watch(&watched_directory), sockets(&watched_directory))).await;
        known_plugins.retain(|path, plugin| sockets_by_path.get(path) == Some(&plugin.identity));
        for (path, identity) in sockets_by_path {
            if !known_plugins.contains_key(&path) {
                let task = rt::spawn(keep_registered(path.clone(), Rc::clone(&handlers)));
                known_plugins.insert(path, KnownPlugin { identity, task });
            }
        }
        let changed = async {
            match &watch {
                Ok(watch) => watch.changed().await,
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            }
        };
        next_look(looked, changed, &directory).await;
    }
}

/// Waits for a change since the scan at `looked`, but at least for [`MIN_SCAN_INTERVAL`], so that a directory that
/// changes all the time is not scanned all the time.
async fn next_look(looked: Instant, changed: impl Future<Output = io::Result<()>>, directory: &Path) {
    if let Err(error) = changed.await {
        log!(error, "failed to watch plugin directory", directory = directory.display(), error = error);
        rt::sleep(REWATCH_DELAY).await;
    }
    rt::sleep_until(looked + MIN_SCAN_INTERVAL).await;
}

fn watch(directory: &Path) -> io::Result<FileWatch> {
    directories::make(directory, 0o755)?;
    let watch = FileWatch::of_directory(directory)?;
    Walk::default().each_inside(directory, MAX_PLUGIN_DIRECTORY_DEPTH, &mut |path, kind| {
        if kind.is_dir() {
            // A directory that is gone already was reported by its parent.
            let _ = watch.add_directory(path);
        }
    });
    Ok(watch)
}

/// All sockets.
fn sockets(directory: &Path) -> SortedMap<PathBuf, SocketIdentity> {
    let mut sockets_by_path = SortedMap::new();
    let mut walk = Walk::default();
    walk.each_inside(directory, MAX_PLUGIN_DIRECTORY_DEPTH, &mut |path, kind| {
        let socket = fs::symlink_metadata(path).ok().filter(|_| kind.is_socket());
        if let Some(socket) = socket.filter(|_| sockets_by_path.len() < MAX_PLUGIN_SOCKETS) {
            let identity = SocketIdentity {
                inode: socket.ino(),
                changed_seconds: socket.ctime(),
                changed_nanos: socket.ctime_nsec(),
            };
            sockets_by_path.insert(path.to_owned(), identity);
        }
    });
    if walk.entries > MAX_PLUGIN_ENTRIES || walk.directories > MAX_PLUGIN_DIRECTORIES {
        log!(warn, "plugin directory too large, only a part is searched", directory = directory.display());
    }
    sockets_by_path
}

/// A walk over a tree, as far as its limits allow.
#[derive(Default)]
struct Walk {
    directories: usize,
    entries: usize,
}

impl Walk {
    /// Names with a leading dot are unfinished.
    fn each_inside(&mut self, directory: &Path, depth: usize, see: &mut dyn FnMut(&Path, fs::FileType)) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MAX_PLUGIN_ENTRIES {
                return;
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if kind.is_dir() {
                self.directories += 1;
                if self.directories > MAX_PLUGIN_DIRECTORIES {
                    continue;
                }
            }
            see(&path, kind);
            if kind.is_dir() && depth > 0 {
                self.each_inside(&path, depth - 1, see);
            }
        }
    }
}

/// Registers the plugin, and keeps it registered until the task is dropped.
async fn keep_registered(path: PathBuf, handlers: Rc<Vec<PluginHandler>>) {
    let mut backoff = Backoff::new(FIRST_REGISTRATION_RETRY_DELAY, MAX_REGISTRATION_RETRY_DELAY);
    let shown = path.display().to_string();
    let info = loop {
        match register(&shown, &handlers).await {
            Ok(info) => break info,
            Err(error) => {
                log!(warn, "plugin not registered", socket = shown, error = ErrorChain(&error));
                if !error.is_retryable() {
                    return;
                }
            }
        }
        rt::sleep(backoff.next_wait()).await;
    };
    log!(info, "plugin registered", kind = info.kind, name = info.name, socket = shown);
    let _held = RegisteredPlugin { info, handlers };
    std::future::pending::<()>().await;
}

/// Deregisters the plugin when dropped.
struct RegisteredPlugin {
    info: PluginInfo,
    handlers: Rc<Vec<PluginHandler>>,
}

impl Drop for RegisteredPlugin {
    fn drop(&mut self) {
        log!(info, "plugin deregistered", kind = self.info.kind, name = self.info.name);
        for handler in self.handlers.iter().filter(|handler| handler.kind == self.info.kind) {
            (handler.deregister)(&self.info);
        }
    }
}

async fn register(socket: &str, handlers: &[PluginHandler]) -> Result<PluginInfo, RegisterError> {
    let client = Client::new(socket);
    let info = call(&client, "/pluginregistration.Registration/GetInfo", &InfoRequest {}).await;
    let mut info: PluginInfo = info.map_err(RegisterError::GetInfo)?;
    if info.endpoint.is_empty() {
        socket.clone_into(&mut info.endpoint);
    }
    let handler = handlers.iter().find(|handler| handler.kind == info.kind);
    let taken = match handler {
        Some(handler) => (handler.register)(info.clone()).await.map_err(RegisterError::Refused),
        None => Err(RegisterError::NoHandler { kind: info.kind.clone(), socket: socket.to_owned() }),
    };
    let status = RegistrationStatus {
        plugin_registered: taken.is_ok(),
        error: match &taken {
            Ok(()) => String::new(),
            Err(error) => format!("RegisterPlugin error -- {}", ErrorChain(error)),
        },
    };
    let notified: Result<RegistrationStatusResponse, _> =
        call(&client, "/pluginregistration.Registration/NotifyRegistrationStatus", &status).await;
    taken?;
    if let Err(error) = notified {
        handler.into_iter().for_each(|handler| (handler.deregister)(&info));
        return Err(RegisterError::Notify(error));
    }
    Ok(info)
}

async fn call<M: Message + Default>(
    client: &Client,
    path: &'static str,
    request: &dyn Message,
) -> Result<M, CallError> {
    let response = client.unary(path, encode(request), PLUGIN_CALL_TIMEOUT).await.map_err(CallError::Rpc)?;
    if response.len() > MAX_PLUGIN_INFO_BYTES {
        return Err(CallError::Rpc(rpc::Error::Protocol("answer is too long")));
    }
    decode(&response).map_err(CallError::Answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_directory_is_scanned_ten_times_a_second() {
        let rounds = rt::simulate(1, |world| async move {
            let mut rounds = 0;
            while world.passed() < Duration::from_secs(1) {
                next_look(rt::now(), std::future::ready(Ok(())), Path::new("/plugins")).await;
                rounds += 1;
            }
            rounds
        });
        assert_eq!(rounds, Ok(10));
    }

    #[test]
    fn only_a_part_of_a_large_tree_is_searched() {
        let top = std::env::temp_dir().join(format!("coracle-plugin-tree-{}", std::process::id()));
        for number in 0..300 {
            let directory = top.join(format!("d{number:03}"));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..40 {
                fs::write(directory.join(format!("f{file}")), "").unwrap();
            }
        }
        let (mut directories, mut entries) = (0, 0);
        Walk::default().each_inside(&top, MAX_PLUGIN_DIRECTORY_DEPTH, &mut |_, kind| {
            directories += usize::from(kind.is_dir());
            entries += 1;
        });
        fs::remove_dir_all(&top).unwrap();
        assert!(directories <= MAX_PLUGIN_DIRECTORIES && entries <= MAX_PLUGIN_ENTRIES, "{directories} {entries}");
        assert!(entries > 5000, "{entries}");
    }

    #[test]
    fn change_after_a_pause_is_scanned_at_once() {
        let waited = rt::simulate(1, |world| async move {
            let looked = rt::now();
            rt::sleep(Duration::from_secs(5)).await;
            next_look(looked, std::future::ready(Ok(())), Path::new("/plugins")).await;
            world.passed()
        });
        assert_eq!(waited, Ok(Duration::from_secs(5)));
    }
}
