//! Joins the cluster that the file of `--join-file` names, in the background, until it has succeeded.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::discover::{Cluster, DiscoveryQuery, discover};
use super::join::{name_of_board, server_url, write_node_files};
use super::join_step::{JoinFacts, JoinRecord, JoinStep, digest_of};
use super::layout::{KUBERNETES_DIR, Layout};
use crate::platform::config::JoinFile;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::file;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::rt;
use crate::types::time::Backoff;

/// What `coracle status` shows about the file; nothing while there is nothing to tell.
pub(crate) type JoinLine = RefCell<Option<String>>;

pub(crate) struct JoinTask {
    pub(crate) file: PathBuf,
    pub(crate) root_dir: PathBuf,
    /// That of a node that has been started with one.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) line: Rc<JoinLine>,
    /// Requests a restart of the agent, which then is a node of the cluster.
    pub(crate) restart: Sender<()>,
}

/// Below the root directory.
const JOIN_RECORD: &str = "coracle/join-file";
const MAX_JOIN_RECORD_BYTES: u64 = 256;
const MAX_JOIN_FILE_BYTES: u64 = 64 << 10;
const MIN_JOIN_RETRY: Duration = Duration::from_secs(5);
const MAX_JOIN_RETRY: Duration = Duration::from_secs(300);
/// Where the kernel cannot watch the file.
const JOIN_FILE_POLL_INTERVAL: Duration = Duration::from_secs(600);

/// The file, as it was read.
struct Inspection {
    facts: JoinFacts,
    file: Option<JoinFile>,
    layout: Layout,
}

/// The cluster, and what is written for it.
struct Discovered {
    query: DiscoveryQuery,
    of_node: Vec<String>,
    cluster: Cluster,
}

impl JoinTask {
    /// Never returns. Failures are reported and retried.
    pub(crate) async fn run(self) {
        let mut delays = Backoff::new(MIN_JOIN_RETRY, MAX_JOIN_RETRY);
        let mut last = None;
        loop {
            let inspection = self.inspect().await;
            // A watch from before the look would report the task's own changes.
            let watch = FileWatch::new(&[self.file.clone(), self.kubeconfig(&inspection.layout)]);
            if self.inspect().await.facts != inspection.facts {
                continue;
            }
            if last.as_ref() != Some(&inspection.facts) {
                delays.reset();
                last = Some(inspection.facts.clone());
            }
            match inspection.facts.step() {
                JoinStep::Rest => {
                    self.show(None);
                    changed(&watch).await;
                }
                JoinStep::Fault(fault) => {
                    self.show(Some(fault));
                    changed(&watch).await;
                }
                JoinStep::AwaitCredentials => {
                    self.show(Some("waiting for the certificate of this node (kubectl get csr)".to_owned()));
                    changed(&watch).await;
                }
                JoinStep::Finish => {
                    self.show(None);
                    self.finish(&inspection).await;
                }
                JoinStep::Join => {
                    let discovered = async { Some(self.discover(&inspection).await) };
                    let interrupted = async {
                        changed(&watch).await;
                        None
                    };
                    let Some(discovered) = rt::either(discovered, interrupted).await else { continue };
                    let written = match discovered {
                        Ok(discovered) => self.write(&inspection, discovered).await,
                        Err(fault) => Err(fault),
                    };
                    if let Err(fault) = written {
                        self.show(Some(fault));
                        rt::either(rt::sleep(delays.next_wait()), changed(&watch)).await;
                        continue;
                    }
                    log!(info, "joining the cluster, restarting");
                    // A restart that is under way already does the same.
                    let _ = self.restart.try_send(());
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    async fn inspect(&self) -> Inspection {
        let (path, root_dir, kubeconfig) = (self.file.clone(), self.root_dir.clone(), self.kubeconfig.clone());
        rt::blocking(move || inspect(&path, &root_dir, kubeconfig.as_deref())).await
    }

    fn kubeconfig(&self, layout: &Layout) -> PathBuf {
        self.kubeconfig.clone().unwrap_or_else(|| layout.kubeconfig())
    }

    /// Reports each fault once.
    fn show(&self, line: Option<String>) {
        if let Some(line) = line.as_ref().filter(|line| self.line.borrow().as_ref() != Some(line)) {
            log!(warn, "not joined", file = self.file.display(), error = line);
        }
        *self.line.borrow_mut() = line;
    }

    async fn discover(&self, inspection: &Inspection) -> Result<Discovered, String> {
        let (file, root_dir) = (inspection.file.clone().unwrap_or_default(), self.root_dir.clone());
        let (query, of_node) = rt::blocking(move || query(&file, &root_dir)).await?;
        let cluster = discover(&query, &|_| {}).await?;
        Ok(Discovered { query, of_node, cluster })
    }

    async fn write(&self, inspection: &Inspection, discovered: Discovered) -> Result<(), String> {
        let Discovered { query, of_node, cluster } = discovered;
        let (record, layout) = (self.root_dir.join(JOIN_RECORD), inspection.layout.clone());
        let digest = inspection.facts.file.clone().unwrap_or_else(|| Err("no file".to_owned()))?;
        rt::blocking(move || {
            let joining = JoinRecord::Joining(digest).text();
            // The record first: with credentials and without it, the node would seem to have joined in another way, and
            // the token would stay.
            durable::write(&record, joining.as_bytes())
                .map_err(|error| format!("write {}: {error}", record.display()))?;
            write_node_files(&cluster, &query, &layout, &of_node).map(drop)
        })
        .await
    }

    /// The node has its own credentials: removes the tokens.
    async fn finish(&self, inspection: &Inspection) {
        let (file, record) = (self.file.clone(), self.root_dir.join(JOIN_RECORD));
        let bootstrap = inspection.layout.bootstrap_kubeconfig();
        let digest = inspection.facts.file.clone().and_then(Result::ok).unwrap_or_default();
        let removed = rt::blocking(move || {
            remove(&bootstrap)?;
            match remove(&file) {
                // A new file may have the same content.
                Ok(()) => remove(&record).map(|()| true),
                // Such as on a read-only card.
                Err(error) => {
                    log!(warn, "used join file cannot be removed", file = file.display(), error = error);
                    durable::write(&record, JoinRecord::Used(digest).text().as_bytes()).map(|()| false)
                }
            }
        });
        match removed.await {
            Ok(true) => log!(info, "joined the cluster, removed the join file", file = self.file.display()),
            Ok(false) => {}
            Err(error) => {
                self.show(Some(format!("remove the used token: {error}")));
                rt::sleep(MAX_JOIN_RETRY).await;
            }
        }
    }
}

async fn changed(watch: &io::Result<FileWatch>) {
    match watch {
        Ok(watch) if watch.changed().await.is_ok() => {}
        _ => rt::sleep(JOIN_FILE_POLL_INTERVAL).await,
    }
}

fn inspect(path: &Path, root_dir: &Path, kubeconfig: Option<&Path>) -> Inspection {
    let read = match file::read_all(path, MAX_JOIN_FILE_BYTES) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(error) => Some(Err(error.to_string())),
        Ok(text) => Some(JoinFile::read(&text).map(|file| (digest_of(&text), file))),
    };
    let (digest, file) = match read {
        None => (None, None),
        Some(Err(fault)) => (Some(Err(format!("{}: {fault}", path.display()))), None),
        Some(Ok((digest, file))) => (Some(Ok(digest)), Some(file)),
    };
    let kubernetes_dir = file.as_ref().and_then(|file| file.kubernetes_dir.clone());
    let kubernetes_dir = kubernetes_dir.unwrap_or_else(|| PathBuf::from(KUBERNETES_DIR));
    let layout = Layout { kubernetes_dir, root_dir: root_dir.to_owned() };
    let record = match durable::read(&root_dir.join(JOIN_RECORD), MAX_JOIN_RECORD_BYTES) {
        Ok(StoredFile::Whole(text)) => JoinRecord::parse(&text),
        Ok(StoredFile::Damaged | StoredFile::Nothing) | Err(_) => JoinRecord::None,
    };
    let facts = JoinFacts {
        file: digest,
        record,
        has_credentials: kubeconfig.map_or_else(|| layout.kubeconfig(), Path::to_owned).exists(),
        has_bootstrap: layout.bootstrap_kubeconfig().exists(),
    };
    Inspection { facts, file, layout }
}

/// The query of the file, and the flags of this node only. Blocks.
fn query(file: &JoinFile, root_dir: &Path) -> Result<(DiscoveryQuery, Vec<String>), String> {
    let skips = file.unsafe_skip_ca_verification;
    if file.ca_cert_hashes.is_empty() && !skips {
        return Err("caCertHashes: expected sha256:DIGEST, or unsafeSkipCAVerification, found neither".to_owned());
    }
    let pins = file.ca_cert_hashes.iter().filter(|_| !skips).map(|pin| pin.parse());
    let pins = pins.collect::<Result<_, _>>().map_err(|error| format!("caCertHashes: {error}"))?;
    let node_name = match &file.node_name {
        Some(name) => name.clone(),
        None => name_of_board(file.name_template.as_ref(), root_dir)?,
    };
    let is_named = file.node_name.is_some() || file.name_template.is_some();
    let flags = [
        ("--hostname-override", if is_named { node_name.as_str() } else { "" }),
        ("--node-labels", &file.labels),
        ("--register-with-taints", &file.taints),
    ];
    let flags = flags.iter().filter(|(_, value)| !value.is_empty());
    let flags = flags.map(|(flag, value)| format!("{flag}={value}")).collect();
    let query = DiscoveryQuery {
        server: server_url(&file.api_server_endpoint),
        token: file.token.parse().map_err(|fault| format!("token: {fault}"))?,
        pins,
        node_name,
        // The task itself tries again, and shows why.
        patience: Some(Duration::ZERO),
    };
    Ok((query, flags))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
