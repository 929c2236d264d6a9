//! `coracle validate`: checks manifests as the agent would read them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use super::command_table::Validate;
use super::print;
use crate::control::pod_sources::static_pod::{ManifestObject, Object, ObjectError, Origin, read_manifest};
use crate::platform::config;
use crate::state::pods::SourceName;
use crate::types::api::yaml::MAX_BYTES;
use crate::types::sorted::SortedMap;

pub(super) fn run(command: &Validate) -> ExitCode {
    // A host without a name gets a placeholder.
    let node_name = config::host_node_name().unwrap_or_else(|_| "localhost".to_owned());
    let mut report = Report { node_name, ..Report::default() };
    for path in &command.files {
        report.check(&path.display().to_string(), read(path));
    }
    match print(&report.text) {
        ExitCode::SUCCESS if report.refused => ExitCode::FAILURE,
        code => code,
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

#[derive(Debug, Default)]
struct Report {
    node_name: String,
    /// The first file with each object.
    files: SortedMap<String, String>,
    text: String,
    refused: bool,
}

impl Report {
    /// Adds the lines for one file.
    fn check(&mut self, file: &str, text: io::Result<Vec<u8>>) {
        let origin = Origin { source: SourceName::File, path: file, node_name: &self.node_name.clone(), seen: "" };
        let text = match text {
            Ok(text) => text,
            Err(error) => return self.refuse(file, &error.to_string()),
        };
        match read_manifest(&text, &origin) {
            Ok(objects) if objects.is_empty() => self.refuse(file, "the file is empty"),
            Ok(objects) => objects.iter().for_each(|object| self.check_object(file, object)),
            Err(error) => self.refuse(file, &error.to_string()),
        }
    }

    fn check_object(&mut self, file: &str, object: &ManifestObject) {
        for warning in object.warning_lines() {
            self.line(file, &format!("warning: {warning}"));
        }
        let place = object.place.to_string();
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        match &object.object {
            Ok(Object::Pod(pod)) => {
                let name = pod.metadata.name.strip_suffix(&format!("-{}", self.node_name));
                let pod = format!("pod {}/{}", pod.metadata.namespace, name.unwrap_or(&pod.metadata.name));
                self.accept(file, &place, pod);
            }
            Ok(Object::Config(config)) => self.accept(file, &place, config.key.to_string()),
            Err(ObjectError::Invalid(errors)) => {
                for error in errors {
                    self.refuse(file, &format!("{place}{error}"));
                }
            }
            Err(error) => self.refuse(file, &format!("{place}{error}")),
        }
    }

    fn accept(&mut self, file: &str, place: &str, object: String) {
        match self.files.get(&object) {
            Some(first) => {
                let line = format!("{place}{object} is already in {first}");
                self.refuse(file, &line);
            }
            None => {
                self.line(file, &format!("{place}ok ({object})"));
                self.files.insert(object, file.to_owned());
            }
        }
    }

    fn refuse(&mut self, file: &str, line: &str) {
        self.refused = true;
        self.line(file, line);
    }

    fn line(&mut self, file: &str, line: &str) {
        self.text.push_str(&format!("{file}: {line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report for files with these texts, named a, b and so on, on node `n`.
    fn report(texts: &[&str]) -> (String, bool) {
        let mut report = Report { node_name: "n".to_owned(), ..Report::default() };
        for (file, text) in ["a", "b", "c"].iter().zip(texts) {
            report.check(file, Ok(text.as_bytes().to_vec()));
        }
        (report.text, report.refused)
    }

    const WEB: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";

    #[test]
    fn valid_manifest_is_reported_with_its_pod() {
        assert_eq!(report(&[WEB]), ("a: ok (pod default/web)\n".to_owned(), false));
    }

    #[test]
    fn unknown_field_is_a_warning() {
        let text = format!("{WEB}extra: 1\n");
        let lines = "a: warning: extra: unknown field, ignored\na: ok (pod default/web)\n";
        assert_eq!(report(&[&text]), (lines.to_owned(), false));
    }

    #[test]
    fn every_document_of_a_file_is_reported() {
        let text = format!("{WEB}---\napiVersion: v1\nkind: Service\n---\nkind: Pod\n");
        let lines = "\
a: document 1 (line 1): ok (pod default/web)
a: document 2 (line 5): kind Service is not supported yet in a manifest
a: document 3 (line 8): apiVersion: required
";
        assert_eq!(report(&[&text]), (lines.to_owned(), true));
    }

    #[test]
    fn config_maps_and_secrets_are_checked() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\napiVersion: v1\nkind: Secret\n\
                    metadata: {name: s, namespace: boats}\ndata: {k: '%'}\n";
        let lines = "\
a: document 1 (line 1): ok (ConfigMap default/c)
a: document 2 (line 4): data.k: expected base64, with padding
";
        assert_eq!(report(&[text]), (lines.to_owned(), true));
    }

    #[test]
    fn pod_defined_twice_is_refused_in_the_second_file() {
        let lines = "a: ok (pod default/web)\nb: pod default/web is already in a\n";
        assert_eq!(report(&[WEB, WEB]), (lines.to_owned(), true));
    }

    #[test]
    fn empty_file_is_refused() {
        for (text, line) in [
            ("", "the file is empty"),
            ("# nothing\n", "the file is empty"),
            ("just text", "expected an object with apiVersion and kind"),
        ] {
            assert_eq!(report(&[text]), (format!("a: {line}\n"), true));
        }
        assert!(report(&["a: [\n"]).1);
    }

    #[test]
    fn unreadable_file_is_refused() {
        let mut report = Report::default();
        report.check("a", Err(io::Error::from_raw_os_error(2)));
        assert_eq!((report.text.as_str(), report.refused), ("a: No such file or directory (os error 2)\n", true));
    }
}
