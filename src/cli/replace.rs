//! `coracle replace`: this machine takes the role of a board that is gone, from its card or a copy of it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

use super::cluster_flags::last_value;
use super::command_table::Replace;
use super::doctor::agent_settings;
use super::service::{self, Service};
use super::{failed, print};
use crate::kubelet::certificates::{Store, node_of_kubeconfig};
use crate::kubelet::enrolment::Layout;
use crate::platform::apiserver::{Access, ExecCredentials, Request, SingleRequests};
use crate::platform::config::{self, DEFAULT_CLAIMS_DIR, KEPT_IDENTITY, KeptIdentity};
use crate::platform::host::{board_identity, clock};
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::timestamp::Timestamp;

pub(super) fn run(command: &Replace) -> ExitCode {
    let layout = Layout { kubernetes_dir: command.kubernetes_dir.clone(), root_dir: command.root_dir.clone() };
    match replace(command, &layout) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => failed(&format!("replace: {line}")),
    }
}

fn replace(command: &Replace, layout: &Layout) -> Result<(), String> {
    let old = config::given_node_name(&command.old)
        .ok_or_else(|| format!("expected the name of a node, found {:?}", command.old))?;
    if UnixStream::connect(&command.local_socket).is_ok() {
        return Err("the agent runs on this machine: stop it first (systemctl stop coracle)".to_owned());
    }
    match &command.from {
        None => take_moved_card(&old, layout)?,
        Some(card) => take_role(&old, card, layout, command.force)?,
    }
    if command.no_start {
        return Ok(());
    }
    match service::restart() {
        Service::Restarted => print_line("started: coracle.service"),
        Service::None => print_line("no systemd service found: start coracle"),
        Service::Failed(error) => {
            return Err(format!("everything is copied, but the service failed to start: {error}"));
        }
    }
    Ok(())
}

/// The card of the old board is in this one: the state stays, and is this board's from now on.
fn take_moved_card(old: &str, layout: &Layout) -> Result<(), String> {
    let kept = KeptIdentity::read(&layout.root_dir);
    let name = name_on(layout, &kept, Path::new("/"));
    expect_name(old, name.as_deref(), &layout.root_dir)?;
    keep(KeptIdentity { name: old.to_owned(), ..kept }, layout)
}

/// Copies the role from `card`: the root directory of the old board's card, or of a copy.
fn take_role(old: &str, card: &Path, layout: &Layout, force: bool) -> Result<(), String> {
    // The last file of a copy: without it, an interrupted copy is made again.
    if layout.kubeconfig().exists() {
        let path = layout.kubeconfig();
        return Err(format!("{} exists: this machine is a node of a cluster (coracle leave)", path.display()));
    }
    let on_card =
        Layout { kubernetes_dir: below(card, &layout.kubernetes_dir), root_dir: below(card, &layout.root_dir) };
    if !on_card.root_dir.is_dir() {
        return Err(format!("expected the root directory of a board, found no {}", on_card.root_dir.display()));
    }
    let claims = claims_on(card)?;
    // The kubeconfig on the card names its certificate by a path of this machine.
    let credentials = |layout: &Layout| Store::new(layout.pki(), "kubelet-client").files().unwrap_or_default();
    for file in credentials(&on_card) {
        copy(&file, &layout.pki().join(file.file_name().unwrap_or_default()))?;
    }
    let kept = KeptIdentity::read(&on_card.root_dir);
    let name = name_on(&on_card, &kept, card);
    let checked =
        expect_name(old, name.as_deref(), card).and_then(|()| match on_card.kubeconfig().exists() && !force {
            true => expect_dead(old, &on_card.kubeconfig()),
            false => Ok(()),
        });
    if let Err(line) = checked {
        for file in credentials(layout) {
            let _ = fs::remove_file(file);
        }
        return Err(line);
    }
    copy(&on_card.pki(), &layout.pki())?;
    for part in ["/etc/coracle", "/etc/default/coracle", "/etc/conf.d/coracle"] {
        copy(&below(card, Path::new(part)), Path::new(part))?;
    }
    let claims_on_card = below(card, &claims);
    if !claims_on_card.exists() && claims != Path::new(DEFAULT_CLAIMS_DIR) {
        print_line(&format!("no {} on the card: no volumes of claims copied", claims.display()));
    }
    copy(&claims_on_card, &claims)?;
    copy(&on_card.config(), &layout.config())?;
    copy(&on_card.flags(), &layout.flags())?;
    let state_folder = layout.root_dir.join("coracle");
    copy(&on_card.root_dir.join("coracle"), &state_folder)?;
    // Programs of updates may be for another architecture.
    let _ = fs::remove_dir_all(state_folder.join("agent"));
    keep(KeptIdentity { name: old.to_owned(), ..kept }, layout)?;
    let entries = fs::read_dir(&on_card.kubernetes_dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.path() != on_card.kubeconfig()) {
        copy(&entry.path(), &layout.kubernetes_dir.join(entry.file_name()))?;
    }
    copy(&on_card.kubeconfig(), &layout.kubeconfig())?;
    print_line(&format!("copied the role of {old}"));
    Ok(())
}

/// The directory of claims without a cluster, by the settings on the card.
fn claims_on(card: &Path) -> Result<PathBuf, String> {
    let (flags, readable) = agent_settings::of_service(card);
    readable?;
    let Some(directory) = last_value(&flags, "--local-path-dir") else { return Ok(DEFAULT_CLAIMS_DIR.into()) };
    // As the agent takes a relative path: services start in the root directory.
    let path = Path::new("/").join(directory);
    let is_below_root = |path: &Path| path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if path.file_name().is_none() || !is_below_root(&path) {
        let found = format!("expected a directory below / without \"..\", found {directory:?}");
        return Err(format!("--local-path-dir in the settings on {}: {found}", card.display()));
    }
    Ok(path)
}

/// The name of the node whose state `layout` has, on a card with this root directory.
fn name_on(layout: &Layout, kept: &KeptIdentity, root: &Path) -> Option<String> {
    let kept = Some(kept.name.clone()).filter(|name| !name.is_empty());
    kept.or_else(|| node_of_kubeconfig(&layout.kubeconfig())).or_else(|| {
        let hostname = fs::read_to_string(root.join("etc/hostname")).ok()?;
        config::given_node_name(&hostname)
    })
}

fn expect_name(old: &str, card_name: Option<&str>, path: &Path) -> Result<(), String> {
    match card_name {
        Some(card_name) if card_name == old => Ok(()),
        Some(card_name) => Err(format!("{}: expected the state of {old}, found that of {card_name}", path.display())),
        None => Err(format!("{}: expected the state of {old}, found no name of a node", path.display())),
    }
}

/// Makes the state this board's.
fn keep(kept: KeptIdentity, layout: &Layout) -> Result<(), String> {
    let serial = board_identity::serial(Path::new("/")).unwrap_or_default();
    let path = layout.root_dir.join(KEPT_IDENTITY);
    let name = kept.name.clone();
    let kept = KeptIdentity { serial, ..kept };
    kept.keep(&layout.root_dir).map_err(|error| format!("write {}: {error}", path.display()))?;
    print_line(&format!("this board is {name}"));
    Ok(())
}

/// Fails if the old board still renews its lease, as it sees with the rights that every node has.
fn expect_dead(old: &str, kubeconfig: &Path) -> Result<(), String> {
    let sure = "if you are sure that it is off, add --force";
    let access = rt::block_on(ExecCredentials::default().access(&kubeconfig.into()));
    let access = access.map_err(|error| format!("{}: {sure}", ErrorChain(&error)))?;
    match rt::block_on(lease(old, access)) {
        Ok(lease) => match lease_is_fresh(&lease, clock::now().unix_seconds()) {
            Some(renewed) => Err(format!("node {old} is alive: it renewed its lease at {renewed}; {sure}")),
            None => Ok(()),
        },
        Err(error) => Err(format!("failed to ask the cluster whether node {old} is alive: {error}; {sure}")),
    }
}

/// The lease; `Null` if there is none.
async fn lease(name: &str, access: Access) -> Result<Value, String> {
    let client = SingleRequests::new(access, Dialer::of_server(ProxySettings::from_environment()));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    match client.send(&Request::get(path)).await.and_then(|response| response.json()) {
        Ok(lease) => Ok(lease),
        Err(error) if error.is_not_found() => Ok(Value::Null),
        Err(error) => Err(ErrorChain(&error).to_string()),
    }
}

/// The time of the renewal, unless the lease has ended. A clock that is behind the renewal proves nothing.
fn lease_is_fresh(lease: &Value, now: i64) -> Option<String> {
    let renewed = lease.pointer("/spec/renewTime").and_then(Value::as_str)?;
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(40);
    let at = renewed.parse::<Timestamp>().ok()?.as_second();
    (now <= at.saturating_add(seconds)).then(|| renewed.to_owned())
}

/// Where `path` is on a card that is mounted at `card`.
fn below(card: &Path, path: &Path) -> PathBuf {
    card.join(path.strip_prefix("/").unwrap_or(path))
}

/// Copies a file or a tree with owners, modes and links; nothing if it does not exist.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // Of a link, which may lead to a file that is copied later.
    if fs::symlink_metadata(from).is_err() {
        return Ok(());
    }
    let failed = |why: &str| format!("copy {} to {}: {why}", from.display(), to.display());
    let folder = if from.is_dir() { Some(to) } else { to.parent() };
    if let Some(folder) = folder {
        fs::create_dir_all(folder).map_err(|error| failed(&error.to_string()))?;
    }
    // A dot copies the content of a directory into one that exists.
    let source = if from.is_dir() { from.join(".") } else { from.to_owned() };
    let output = Command::new("cp").arg("-a").arg(source).arg(to).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(stderr.lines().next().unwrap_or("it failed")))
}

fn print_line(line: &str) {
    // If stdout is closed, the exit code still reports the result.
    let _ = print(&format!("{line}\n"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn lease_is_fresh_until_its_duration_has_passed() {
        let lease = json!({"spec": {"renewTime": "2026-01-02T15:04:05.123456Z", "leaseDurationSeconds": 40}});
        let renewed = "2026-01-02T15:04:05Z".parse::<Timestamp>().unwrap().as_second();
        for (now, is_fresh) in [(renewed, true), (renewed + 40, true), (renewed + 41, false), (0, true)] {
            assert_eq!(lease_is_fresh(&lease, now).is_some(), is_fresh, "{now}");
        }
        assert_eq!(lease_is_fresh(&Value::Null, 0), None);
        assert_eq!(lease_is_fresh(&json!({"spec": {"renewTime": "soon"}}), 0), None);
    }

    #[test]
    fn only_the_state_of_the_named_node_is_taken() {
        let place = Path::new("/mnt");
        assert_eq!(expect_name("a", Some("a"), place), Ok(()));
        let error = "/mnt: expected the state of a, found that of b";
        assert_eq!(expect_name("a", Some("b"), place), Err(error.to_owned()));
        let error = "/mnt: expected the state of a, found no name of a node";
        assert_eq!(expect_name("a", None, place), Err(error.to_owned()));
        assert_eq!(below(place, Path::new("/etc/x")), Path::new("/mnt/etc/x"));
    }

    #[test]
    fn directory_of_claims_is_that_of_the_settings_on_the_card() {
        let folder = TestFolder::new("replace-claims");
        let card = &folder.0;
        fs::create_dir_all(card.join("etc/default")).unwrap();
        let found = |line: &str| {
            fs::write(card.join("etc/default/coracle"), line).unwrap();
            claims_on(card).map_err(|error| error.rsplit(", ").next().unwrap().to_owned())
        };
        let refused = |text: &str| Err(format!("found {text:?}"));
        for (arguments, expected) in [
            ("", Ok(DEFAULT_CLAIMS_DIR.into())),
            ("-v=4 --local-path-dir /data/claims", Ok("/data/claims".into())),
            ("--local-path-dir=/a --local_path_dir=/b", Ok("/b".into())),
            ("--local-path-dir=data", Ok("/data".into())),
            ("--local-path-dir=/", refused("/")),
            ("--local-path-dir=", refused("")),
            ("--local-path-dir=/a/../..", refused("/a/../..")),
        ] {
            assert_eq!(found(&format!("CORACLE_ARGS=\"{arguments}\"\n")), expected, "{arguments}");
        }
        fs::remove_file(card.join("etc/default/coracle")).unwrap();
        assert_eq!(claims_on(card).unwrap(), Path::new(DEFAULT_CLAIMS_DIR));
        fs::create_dir(card.join("etc/default/coracle")).unwrap();
        assert!(claims_on(card).unwrap_err().contains("etc/default/coracle: Is a directory"));
    }
}
