//! Runs the exec credential plugin of the kubeconfig, and keeps its credential until it expires.

use std::cell::RefCell;
use std::io;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::access::{Access, AccessError, Loaded};
use super::exec_credential::{ExecCredential, ExecPlugin};
use super::kubeconfig::{KubeconfigSource, Pem, Token};
use super::request::SharedToken;
use crate::platform::host::clock;
use crate::platform::host::program::{self, ProgramError};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

/// The credential of the plugin, for all connections of a client.
pub(crate) struct ExecCredentials {
    credential: RefCell<Option<HeldCredential>>,
    /// When the last call failed, and why.
    failed: RefCell<Option<(Instant, String)>>,
    token: SharedToken,
    /// One call at a time.
    run_lock: rt::Semaphore,
}

struct HeldCredential {
    plugin: ExecPlugin,
    authority: Option<Vec<u8>>,
    credential: ExecCredential,
    since: Instant,
    until: Option<Instant>,
}

const EXEC_PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the error of a failed call is returned without another one: attempts to connect follow each second.
const EXEC_PLUGIN_RETRY_DELAY: Duration = Duration::from_secs(10);
/// A credential is renewed after nine tenths of its time, at the earliest after this.
const MIN_EXEC_RENEWAL: Duration = Duration::from_secs(10);
const MAX_EXEC_STDERR_CHARS: usize = 300;

impl Default for ExecCredentials {
    fn default() -> Self {
        Self {
            credential: RefCell::default(),
            failed: RefCell::default(),
            token: SharedToken::default(),
            run_lock: rt::Semaphore::new(1),
        }
    }
}

impl ExecCredentials {
    /// Loads the kubeconfig and the files that it refers to, with the credential of its plugin if it has one.
    pub(crate) async fn access(&self, source: &KubeconfigSource) -> Result<Access, AccessError> {
        let (owned, path) = (source.clone(), source.name());
        let (mut kubeconfig, plugin, authority) = match rt::blocking(move || Access::load_unless_exec(&owned)).await? {
            Loaded::Access(access) => return Ok(*access),
            Loaded::Plugin { kubeconfig, plugin, authority } => (kubeconfig, plugin, authority),
        };
        let wrong = |problem| AccessError::Wrong { path: path.clone(), problem };
        let credential = self.credential(&plugin, authority).await.map_err(wrong)?;
        kubeconfig.token = credential.token.map(Token::Data);
        if let Some((certificate, key)) = credential.pair {
            kubeconfig.certificate = Some((Pem::Data(certificate), Pem::Data(key)));
        }
        let mut access = rt::blocking(move || Access::new(&kubeconfig, &path)).await?;
        access.plugin_token = true;
        Ok(access)
    }

    /// The token of the newest credential.
    pub(super) fn token(&self) -> SharedToken {
        Rc::clone(&self.token)
    }

    /// The server has refused the credential.
    pub(super) fn forget(&self) {
        self.credential.replace(None);
    }

    /// Renews the credential before it expires. Returns when a new client certificate needs a new connection; never
    /// without a plugin.
    pub(super) async fn renew(&self) {
        loop {
            let Some(due) = self.credential.borrow().as_ref().and_then(HeldCredential::renewal) else {
                return std::future::pending().await;
            };
            rt::sleep_until(due).await;
            let Some((plugin, authority, former)) = self.due_for_renewal() else { continue };
            let _turn = self.run_lock.acquire().await;
            match self.call(&plugin, authority).await {
                Ok(new) if new.pair == former.pair => {}
                Ok(_) => return,
                Err(error) => {
                    log!(warn, "failed to renew credential", error = error);
                    rt::sleep(EXEC_PLUGIN_RETRY_DELAY * 3).await;
                }
            }
        }
    }

    /// `None` if another connection has renewed it.
    fn due_for_renewal(&self) -> Option<(ExecPlugin, Option<Vec<u8>>, ExecCredential)> {
        let held = self.credential.borrow();
        let held = held.as_ref()?;
        let is_due = held.renewal().is_some_and(|due| rt::now() >= due);
        is_due.then(|| (held.plugin.clone(), held.authority.clone(), held.credential.clone()))
    }

    async fn credential(&self, plugin: &ExecPlugin, authority: Option<Vec<u8>>) -> Result<ExecCredential, String> {
        let _turn = self.run_lock.acquire().await;
        if let Some(held) = &*self.credential.borrow() {
            let is_valid = held.until.is_none_or(|until| rt::now() < until);
            if is_valid && held.plugin == *plugin && held.authority == authority {
                return Ok(held.credential.clone());
            }
        }
        if let Some((at, why)) = &*self.failed.borrow() {
            if rt::elapsed(*at) < EXEC_PLUGIN_RETRY_DELAY {
                return Err(why.clone());
            }
        }
        self.call(plugin, authority).await
    }

    /// Runs the plugin and keeps its credential, or its error. The caller must hold the turn.
    async fn call(&self, plugin: &ExecPlugin, authority: Option<Vec<u8>>) -> Result<ExecCredential, String> {
        let result = run(plugin, authority.as_deref()).await;
        match &result {
            Ok(credential) => {
                self.failed.replace(None);
                self.token.replace(credential.token.clone());
                let credential = credential.clone();
                self.credential.replace(Some(HeldCredential::new(plugin.clone(), authority, credential)));
            }
            Err(why) => {
                self.failed.replace(Some((rt::now(), why.clone())));
            }
        }
        result
    }
}

impl HeldCredential {
    /// Its time is measured on the monotonic clock from now on.
    fn new(plugin: ExecPlugin, authority: Option<Vec<u8>>, credential: ExecCredential) -> Self {
        let since = rt::now();
        let time_left =
            |until: i64| Duration::from_secs(u64::try_from(until - clock::now().unix_seconds()).unwrap_or(0));
        let until = credential.expires.map(|until| since + time_left(until.unix_seconds()));
        Self { plugin, authority, credential, since, until }
    }

    fn renewal(&self) -> Option<Instant> {
        let valid = self.until?.saturating_duration_since(self.since);
        Some(self.since + (valid / 10 * 9).max(MIN_EXEC_RENEWAL))
    }
}

async fn run(plugin: &ExecPlugin, authority: Option<&[u8]>) -> Result<ExecCredential, String> {
    let mut command = Command::new(&plugin.program);
    command.args(&plugin.args).envs(plugin.env.iter().map(|(name, value)| (name, value)));
    command.env("KUBERNETES_EXEC_INFO", plugin.info(authority));
    let program = plugin.program.display();
    let count = |code: &str, status| metrics::count(Count::ExecPluginCalls, &[status, code]);
    let ended = match program::run(command, Vec::new(), EXEC_PLUGIN_TIMEOUT).await {
        Ok(ended) => ended,
        Err(ProgramError::Start(error)) if error.kind() == io::ErrorKind::NotFound => {
            count("1", "plugin_not_found_error");
            let hint = match plugin.install_hint.lines().next() {
                Some(hint) => format!(": {hint}"),
                None => String::new(),
            };
            return Err(format!("exec: program {program} not found{hint}"));
        }
        Err(error) => {
            count("1", "plugin_execution_error");
            return Err(format!("exec: program {program}: {}", ErrorChain(&error)));
        }
    };
    if !ended.status.success() {
        let code = ended.status.code().unwrap_or(1);
        count(&code.to_string(), "plugin_execution_error");
        let stderr_text: String = String::from_utf8_lossy(&ended.stderr).chars().take(MAX_EXEC_STDERR_CHARS).collect();
        let stderr_text = stderr_text.split_whitespace().collect::<Vec<_>>().join(" ");
        return Err(format!("exec: program {program} failed with {}: {stderr_text}", ended.status));
    }
    match plugin.read_response(&ended.stdout) {
        Ok(credential) => {
            count("0", "no_error");
            Ok(credential)
        }
        Err(invalid) => {
            count("1", "client_internal_error");
            Err(format!("exec: program {program}: {invalid}"))
        }
    }
}
