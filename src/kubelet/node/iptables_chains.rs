//! Chains that show other components which variant of iptables the node uses, nft or legacy.
//!
//! `initNetworkUtil` in pkg/kubelet/kubelet_network_linux.go, and `Monitor` in pkg/util/iptables. Components in
//! containers have both variants, and look for `KUBE-IPTABLES-HINT` in the mangle table of each.

use std::fmt;
use std::io;
use std::process::Command;
use std::time::Duration;

use crate::platform::host::program::{self, ProgramError};
use crate::platform::rt;

/// Time between two looks at the canary.
const CANARY_INTERVAL: Duration = Duration::from_secs(60);
/// A flush takes one table after the other.
const FLUSH_STEP: Duration = Duration::from_millis(100);
const FLUSH_STEPS: u32 = 50;
/// Longest run of the program, which waits 5 seconds for the lock of the tables.
const IPTABLES_TIMEOUT: Duration = Duration::from_secs(30);

const CANARY: &str = "KUBE-KUBELET-CANARY";
const CANARY_TABLES: [&str; 3] = ["mangle", "nat", "filter"];
const HINT: &str = "KUBE-IPTABLES-HINT";
const FIREWALL: &str = "KUBE-FIREWALL";
/// kube-proxy has the same rule. With `route_localnet` it lets other hosts reach what listens on 127.0.0.1 only.
const MARTIANS: &[&str] = &[
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];

/// Exit status of iptables: the rule or chain does not exist, or exists already.
const NO_EXIT_STATUS: i32 = 1;
/// The kernel or the lock is short of a resource; the answer is unknown.
const RESOURCE_PROBLEM_EXIT_STATUS: i32 = 4;

/// Makes the chains of both address families, and makes them again after a flush. Returns at once without iptables.
pub(crate) async fn keep_iptables_chains() {
    let families = [("iptables", false), ("ip6tables", true)];
    let families = families.map(|(program, is_v6)| Family { command: vec![program.to_owned()], is_v6, canary: None });
    let mut kept = Vec::new();
    for family in families {
        if family.is_present().await && family.sync_logged().await {
            kept.push(family);
        }
    }
    if kept.is_empty() {
        log!(info, "no iptables on this node, KUBE-IPTABLES-HINT not created");
        return;
    }
    loop {
        for family in &mut kept {
            family.check().await;
        }
        rt::sleep(CANARY_INTERVAL).await;
    }
}

/// The tables of one address family.
struct Family {
    /// The program, after those that run it.
    command: Vec<String>,
    is_v6: bool,
    /// Whether the canaries are in place; `None` before the first attempt.
    canary: Option<bool>,
}

#[derive(Debug)]
enum ChainError {
    /// The chain and the status and output of the program.
    Refused(&'static str, Option<i32>, String),
    Program(ProgramError),
}

impl Family {
    /// The program is installed, and the kernel has the tables.
    async fn is_present(&self) -> bool {
        matches!(self.run(&["-S", "POSTROUTING", "-t", "nat"]).await, Ok((Some(0), _)))
    }

    async fn sync_logged(&self) -> bool {
        let synced = self.sync().await;
        if let Err(error) = &synced {
            log!(warn, "failed to create iptables chains", program = self.name(), error = error);
        }
        synced.is_ok()
    }

    async fn sync(&self) -> Result<(), ChainError> {
        self.ensure_chain("mangle", HINT).await?;
        // IPv6 has no `route_localnet`, so nothing has to be blocked.
        if self.is_v6 {
            return Ok(());
        }
        self.ensure_chain("filter", FIREWALL).await?;
        for chain in ["OUTPUT", "INPUT"] {
            self.ensure_rule("-I", chain, &["-j", FIREWALL]).await?;
        }
        self.ensure_rule("-A", FIREWALL, MARTIANS).await
    }

    /// Makes the chains again where the canary is gone.
    async fn check(&mut self) {
        if self.canary == Some(true) {
            if self.has_chain(CANARY_TABLES[0]).await != Some(false) {
                return;
            }
            self.flushed().await;
            log!(info, "iptables flushed, creating the chains again", program = self.name());
            self.sync_logged().await;
        }
        let was = self.canary.replace(true);
        for table in CANARY_TABLES {
            if let Err(error) = self.ensure_chain(table, CANARY).await {
                if was != Some(false) {
                    log!(warn, "failed to create iptables canary", program = self.name(), error = error);
                }
                self.canary = Some(false);
                return;
            }
        }
    }

    /// Waits until the canaries of the other tables are gone, too.
    async fn flushed(&self) {
        for _ in 0..FLUSH_STEPS {
            let mut all_flushed = true;
            for table in CANARY_TABLES.iter().skip(1) {
                all_flushed &= self.has_chain(table).await == Some(false);
            }
            if all_flushed {
                return;
            }
            rt::sleep(FLUSH_STEP).await;
        }
        log!(info, "iptables canaries of some tables are gone, of others not", program = self.name());
    }

    /// `None`: unknown.
    async fn has_chain(&self, table: &str) -> Option<bool> {
        match self.run(&["-S", CANARY, "-t", table]).await {
            Ok((Some(RESOURCE_PROBLEM_EXIT_STATUS), _)) | Err(_) => None,
            Ok((status, _)) => Some(status == Some(0)),
        }
    }

    async fn ensure_chain(&self, table: &str, chain: &'static str) -> Result<(), ChainError> {
        match self.run(&["-N", chain, "-t", table]).await.map_err(ChainError::Program)? {
            (Some(0 | NO_EXIT_STATUS), _) => Ok(()),
            (status, message) => Err(ChainError::Refused(chain, status, message)),
        }
    }

    /// A rule of the filter table.
    async fn ensure_rule(&self, parent: &str, chain: &'static str, rule: &[&str]) -> Result<(), ChainError> {
        let with = |operation| [&[operation, chain, "-t", "filter"][..], rule].concat();
        match self.run(&with("-C")).await.map_err(ChainError::Program)? {
            (Some(0), _) => return Ok(()),
            (Some(NO_EXIT_STATUS), _) => {}
            (status, message) => return Err(ChainError::Refused(chain, status, message)),
        }
        match self.run(&with(parent)).await.map_err(ChainError::Program)? {
            (Some(0), _) => Ok(()),
            (status, message) => Err(ChainError::Refused(chain, status, message)),
        }
    }

    /// The exit status of the program and its messages.
    async fn run(&self, arguments: &[&str]) -> Result<(Option<i32>, String), ProgramError> {
        let Some((program, before)) = self.command.split_first() else {
            return Err(ProgramError::Start(io::Error::from(io::ErrorKind::NotFound)));
        };
        let mut command = Command::new(program);
        command.args(before).args(["-w", "5"]).args(arguments);
        let ended = program::run(command, Vec::new(), IPTABLES_TIMEOUT).await?;
        Ok((ended.status.code(), String::from_utf8_lossy(&ended.stderr).trim().to_owned()))
    }

    fn name(&self) -> &str {
        self.command.last().map_or("", String::as_str)
    }
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(chain, status, message) => {
                write!(f, "chain {chain}: status {}: {message}", status.unwrap_or(-1))
            }
            Self::Program(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Stdio};

    use super::*;

    /// A network namespace of its own, which ends with its process.
    struct Namespace(Child);

    impl Namespace {
        /// `None` without root or a variant of iptables that works here.
        fn new(program: &str) -> Option<Self> {
            let holder = Command::new("unshare").args(["-n", "sleep", "1000"]).spawn().ok()?;
            let namespace = Self(holder);
            let own = std::fs::read_link("/proc/self/ns/net").ok()?;
            let path = format!("/proc/{}/ns/net", namespace.0.id());
            for _ in 0..500 {
                if std::fs::read_link(&path).is_ok_and(|other| other != own) {
                    return namespace.run(&[program, "-S", "-t", "mangle"]).is_some().then_some(namespace);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            None
        }

        fn inside(&self, program: &str) -> Vec<String> {
            ["nsenter", "-t", &self.0.id().to_string(), "-n", program].map(str::to_owned).to_vec()
        }

        fn run(&self, line: &[&str]) -> Option<String> {
            let (program, rest) = line.split_first()?;
            let inside = self.inside(program);
            let ran = Command::new(&inside[0]).args(&inside[1..]).args(rest).stderr(Stdio::null()).output().ok()?;
            ran.status.success().then(|| String::from_utf8(ran.stdout).unwrap())
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn chains_are_made_in_the_nodes_variant_and_again_after_a_flush() {
        for (program, is_v6) in
            [("iptables-nft", false), ("iptables-legacy", false), ("ip6tables-nft", true), ("ip6tables-legacy", true)]
        {
            let Some(namespace) = Namespace::new(program) else { continue };
            let mut family = Family { command: namespace.inside(program), is_v6, canary: None };
            let rules = |table: &str| {
                let rules = namespace.run(&[program, "-S", "-t", table]).unwrap();
                rules.lines().filter(|rule| rule.contains("KUBE-")).map(str::to_owned).collect::<Vec<_>>()
            };
            let hints = ["-N KUBE-IPTABLES-HINT", "-N KUBE-KUBELET-CANARY"];
            let martians = "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming \
                            localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
            let filter = [
                "-N KUBE-FIREWALL",
                "-N KUBE-KUBELET-CANARY",
                "-A INPUT -j KUBE-FIREWALL",
                "-A OUTPUT -j KUBE-FIREWALL",
                martians,
            ];
            rt::block_on(async {
                assert!(family.is_present().await, "{program}");
                for _ in 0..2 {
                    family.sync().await.unwrap();
                    family.check().await;
                    assert_eq!(rules("mangle"), hints, "{program}");
                    assert_eq!(rules("filter"), if is_v6 { &filter[1..2] } else { &filter[..] }, "{program}");
                }
                for table in CANARY_TABLES {
                    namespace.run(&[program, "-F", "-t", table]).unwrap();
                    namespace.run(&[program, "-X", "-t", table]).unwrap();
                }
                assert_eq!(rules("mangle"), [""; 0], "{program}");
                family.check().await;
                assert_eq!(rules("mangle"), hints, "{program}");
                assert_eq!(rules("filter").len(), if is_v6 { 1 } else { 5 }, "{program}");
            });
        }
    }

    #[test]
    fn node_without_iptables_has_no_chains() {
        let family = Family { command: vec!["/nonexistent/iptables".to_owned()], is_v6: false, canary: None };
        assert!(!rt::block_on(family.is_present()));
        assert!(rt::block_on(family.sync()).unwrap_err().to_string().contains("start"));
    }
}
