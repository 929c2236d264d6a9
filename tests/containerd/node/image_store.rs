//! The runtime's images through its own tool: `ctr` with containerd, skopeo with the store of CRI-O.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Node, crio};

impl Node {
    /// All names, also those by digest.
    pub(crate) fn image_names(&self) -> Vec<String> {
        if crio::programs().is_none() {
            return self.ctr(&["images", "list", "--quiet"]).lines().map(str::to_owned).collect();
        }
        let listed = fs::read_to_string(self.crio_storage("overlay-images/images.json")).unwrap_or_default();
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap_or_default();
        let names = listed.iter().filter_map(|image| image["names"].as_array()).flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Imports a docker-archive that has only the image of this name.
    pub(crate) fn import_image(&self, archive: &Path, name: &str) {
        if crio::programs().is_none() {
            self.ctr(&["images", "import", &archive.display().to_string()]);
        } else {
            self.skopeo_copy(&[], &format!("docker-archive:{}", archive.display()), &in_storage(name));
        }
    }

    /// Writes the image as an archive of an OCI layout.
    pub(crate) fn export_image(&self, name: &str, archive: &Path) {
        let archive = archive.display();
        if crio::programs().is_none() {
            self.ctr(&["images", "export", &archive.to_string(), name]);
        } else {
            self.skopeo_copy(&[], &in_storage(name), &format!("oci-archive:{archive}:{name}"));
        }
    }

    pub(crate) fn tag_image(&self, name: &str, other: &str) {
        if crio::programs().is_none() {
            self.ctr(&["images", "tag", name, other]);
        } else {
            self.skopeo_copy(&[], &in_storage(name), &in_storage(other));
        }
    }

    /// Pushes the image to a registry without TLS, with `USER:PASSWORD` if it asks for it.
    pub(crate) fn push_image(&self, name: &str, target: &str, login: Option<&str>) {
        if crio::programs().is_none() {
            let user: Vec<&str> = login.iter().flat_map(|login| ["--user", login]).collect();
            self.ctr(&[&["images", "push", "--plain-http"], &user[..], &[target, name]].concat());
        } else {
            let user: Vec<&str> = login.iter().flat_map(|login| ["--dest-creds", login]).collect();
            let options = [&["--dest-tls-verify=false"], &user[..]].concat();
            self.skopeo_copy(&options, &in_storage(name), &format!("docker://{target}"));
        }
    }

    /// Removes the image under all of its names, with its content.
    pub(crate) fn remove_image(&self, name: &str) {
        if crio::programs().is_some() {
            self.enclosure().run(&["skopeo", "delete", &in_storage(name)]);
            return;
        }
        let list = self.ctr(&["images", "list"]);
        let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
        let digest = rows.iter().find(|row| row[0] == name).expect("the image is there")[2];
        let names = rows.iter().filter(|row| row[2] == digest).map(|row| row[0]);
        self.ctr(&["images", "remove", "--sync"].into_iter().chain(names).collect::<Vec<_>>());
    }

    fn skopeo_copy(&self, options: &[&str], from: &str, to: &str) {
        self.enclosure().run(&[&["skopeo", "copy", "--quiet"], options, &[from, to]].concat());
    }
}

fn in_storage(name: &str) -> String {
    format!("containers-storage:{name}")
}
