//! Credential files of the node, available to every pod.

use std::io;
use std::path::{Path, PathBuf};

use super::docker_config::{ConfigFormat, parse};
use super::keyring::{Keyring, Owner};
use crate::platform::host::file::read_all;
use crate::platform::rt;

/// Possible paths in order of precedence. The first readable file is used.
#[derive(Clone, Debug)]
pub(super) struct NodeFiles {
    candidates: Vec<(PathBuf, ConfigFormat)>,
}

impl NodeFiles {
    /// Upstream's paths. `home` is the user's home directory, if there is one.
    pub(super) fn new(root_dir: &Path, working_dir: &Path, home: Option<&Path>) -> Self {
        let in_each = |folders: [Option<PathBuf>; 4], name: &str, shape| {
            folders.into_iter().flatten().map(|folder| (folder.join(name), shape)).collect::<Vec<_>>()
        };
        let dotted = [
            Some(root_dir.to_owned()),
            Some(working_dir.to_owned()),
            home.map(|home| home.join(".docker")),
            Some(PathBuf::from("/.docker")),
        ];
        let plain = [
            Some(root_dir.to_owned()),
            Some(working_dir.to_owned()),
            home.map(Path::to_owned),
            Some(PathBuf::from("/")),
        ];
        let mut candidates = in_each(dotted, "config.json", ConfigFormat::ConfigJson);
        candidates.extend(in_each(plain, ".dockercfg", ConfigFormat::Dockercfg));
        Self { candidates }
    }

    /// Read for each pull, so that changes apply at once.
    pub(super) async fn keyring(&self) -> Keyring {
        let candidates = self.candidates.clone();
        rt::blocking(move || candidates.iter().find_map(|(path, shape)| read(path, *shape)).unwrap_or_default()).await
    }
}

/// `None` if the file does not exist or is invalid; then the next one is tried.
fn read(path: &Path, shape: ConfigFormat) -> Option<Keyring> {
    let text = match read_all(path, MAX_DOCKER_CONFIG_BYTES) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return None,
        Err(error) => {
            log!(warn, "failed to read registry credentials", file = path.display(), error = error);
            return None;
        }
    };
    match parse(&text, shape) {
        Ok(registries) => {
            let mut keyring = Keyring::default();
            for registry in keyring.add(registries, &Owner::Node) {
                log!(warn, "registry credentials have invalid registry", file = path.display(), registry = registry);
            }
            Some(keyring)
        }
        Err(problem) => {
            log!(warn, "failed to parse registry credentials", file = path.display(), problem = problem);
            None
        }
    }
}

const MAX_DOCKER_CONFIG_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn paths_are_upstreams_in_its_order() {
        let files = NodeFiles::new(Path::new("/var/lib/kubelet"), Path::new("/srv"), Some(Path::new("/root")));
        let paths: Vec<_> = files.candidates.iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(
            paths,
            [
                "/var/lib/kubelet/config.json",
                "/srv/config.json",
                "/root/.docker/config.json",
                "/.docker/config.json",
                "/var/lib/kubelet/.dockercfg",
                "/srv/.dockercfg",
                "/root/.dockercfg",
                "/.dockercfg",
            ]
        );
    }

    #[test]
    fn first_readable_file_is_used_and_read_each_time() {
        let top = std::env::temp_dir().join(format!("coracle-node-files-{}", std::process::id()));
        let work = top.join("work");
        fs::create_dir_all(&work).unwrap();
        let files = NodeFiles::new(&top, &work, Some(&top.join("nowhere")));
        let first = || {
            let keyring = rt::block_on(files.keyring());
            keyring.find("r.io/a").first().map(|found| found.login.username.clone())
        };
        let write = |path: &Path, user: &str| {
            fs::write(path, format!(r#"{{"auths":{{"r.io":{{"username":"{user}","password":"p"}}}}}}"#)).unwrap();
        };
        let mut found = Vec::new();
        fs::write(top.join(".dockercfg"), r#"{"r.io":{"username":"old","password":"p"}}"#).unwrap();
        found.push(first());
        write(&work.join("config.json"), "work");
        found.push(first());
        fs::write(top.join("config.json"), "not JSON").unwrap();
        found.push(first());
        write(&top.join("config.json"), "root");
        found.push(first());
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(found, ["old", "work", "work", "root"].map(|user| Some(user.to_owned())));
    }
}
