//! `coracle validate`: checks manifests and kubelet configurations as the agent would read them.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use super::command_table::Validate;
use super::manifest_files::{ManifestFile, read_all};
use super::manifest_warnings::warnings;
use super::print;
use crate::control::pod_sources::static_pod::{ManifestObject, Object, Origin, WorkloadKind, read_manifest};
use crate::platform::config::{self, FirstDocument};
use crate::state::pods::SourceName;
use crate::types::api::Pod;
use crate::types::sorted::SortedMap;

pub(super) fn run(command: &Validate) -> ExitCode {
    // A host without a name gets a placeholder.
    let node_name = config::host_node_name().unwrap_or_else(|_| "localhost".to_owned());
    let mut report = Report { node_name, ..Report::default() };
    let paths: Vec<PathBuf> = command.filename.iter().chain(&command.files).cloned().collect();
    for ManifestFile { name, text, is_skipped } in read_all(&paths) {
        if is_skipped {
            let why = "in a manifest directory the agent skips a file with this name, which is that of a backup";
            report.line(&name, &format!("warning: {why}"));
        }
        report.check(&name, text);
    }
    match print(&report.text) {
        ExitCode::SUCCESS if report.refused => ExitCode::FAILURE,
        code => code,
    }
}

#[derive(Debug, Default)]
struct Report {
    node_name: String,
    /// The first file with each object and each uid of a pod.
    files: SortedMap<String, String>,
    text: String,
    refused: bool,
}

impl Report {
    /// Adds the lines for one file.
    fn check(&mut self, file: &str, text: io::Result<Vec<u8>>) {
        // Those of a URL may hold everything.
        let origin = Origin {
            source: SourceName::Http,
            path: file,
            node_name: &self.node_name.clone(),
            config_seen: "",
            board_key: None,
        };
        let text = match text {
            Ok(text) => text,
            Err(error) => return self.refuse(file, &error.to_string()),
        };
        if let Some(configuration) = config::configuration(&text) {
            return self.check_configuration(file, configuration);
        }
        match read_manifest(&text, &origin) {
            Ok(objects) if objects.is_empty() => self.refuse(file, "the file is empty"),
            Ok(objects) => objects.iter().for_each(|object| self.check_object(file, object)),
            Err(error) => self.refuse(file, &error.to_string()),
        }
    }

    fn check_configuration(&mut self, file: &str, configuration: FirstDocument) {
        let (mistakes, warnings) = config::check_configuration(configuration, self.node_name.clone());
        warnings.iter().for_each(|warning| self.line(file, &format!("warning: {warning}")));
        mistakes.iter().for_each(|mistake| self.refuse(file, mistake));
        if mistakes.is_empty() {
            self.line(file, "ok (KubeletConfiguration)");
        }
    }

    fn check_object(&mut self, file: &str, object: &ManifestObject) {
        for warning in object.warning_lines() {
            self.line(file, &format!("warning: {warning}"));
        }
        let position = object.position.to_string();
        let position = if position.is_empty() { position } else { format!("{position}: ") };
        match &object.object {
            Ok(Object::Pod(pod)) => {
                for doubt in warnings(pod) {
                    self.line(file, &format!("warning: {position}{doubt}"));
                }
                let name = self.name_of(pod);
                // One that the node derives is as unique as the name.
                self.accept(file, &position, name, &[format!("metadata.uid {}", pod.metadata.uid)]);
            }
            Ok(Object::Config(config)) => self.accept(file, &position, config.key.to_string(), &[]),
            Ok(Object::Workload(workload)) => {
                // The annotation of a trial is not the user's.
                let doubts = workload.pods.first().map(warnings).unwrap_or_default();
                let before = if workload.kind == WorkloadKind::CronJob { "spec.jobTemplate." } else { "" };
                for doubt in doubts.iter().filter(|doubt| doubt.starts_with("spec.")) {
                    self.line(file, &format!("warning: {position}{before}spec.template.{doubt}"));
                }
                let name = format!("{} {}/{}", workload.kind.as_str(), workload.namespace, workload.name);
                // The names of a Job's pods are not known.
                let has_names = !matches!(workload.kind, WorkloadKind::CronJob | WorkloadKind::Job);
                let pods = workload.pods.iter().filter(|_| has_names);
                let pods: Vec<String> = pods.map(|pod| self.name_of(pod)).collect();
                self.accept(file, &position, name, &pods);
            }
            Ok(Object::Agent(agent)) => {
                let warning = "kind Agent: only the signed manifests of --manifest-url have it";
                self.line(file, &format!("warning: {position}{warning}"));
                self.accept(file, &position, format!("version {} of the agent", agent.version), &[]);
            }
            Err(error) => {
                for line in error.lines() {
                    self.refuse(file, &format!("{position}{line}"));
                }
            }
        }
    }

    fn name_of(&self, pod: &Pod) -> String {
        let name = pod.metadata.name.strip_suffix(&format!("-{}", self.node_name));
        format!("pod {}/{}", pod.metadata.namespace, name.unwrap_or(&pod.metadata.name))
    }

    /// Accepts an object, which also takes `names`, unless a file has one of them already.
    fn accept(&mut self, file: &str, position: &str, object: String, names: &[String]) {
        let earlier = std::iter::once(&object).chain(names).find_map(|name| Some((name, self.files.get(name)?)));
        if let Some((name, first)) = earlier {
            let line = format!("{position}{name} is already in {first}");
            return self.refuse(file, &line);
        }
        self.line(file, &format!("{position}ok ({object})"));
        self.files.extend(names.iter().cloned().chain([object]).map(|name| (name, file.to_owned())));
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
    fn version_of_the_agent_is_checked() {
        let agent = "apiVersion: coracle.dev/v1\nkind: Agent\nspec: {version: 0.9.1, url: 'https://f/c'}\n";
        let (text, refused) = report(&[agent]);
        assert!(!refused && text.contains("warning: kind Agent: only the signed manifests"), "{text}");
        assert!(text.contains("ok (version 0.9.1 of the agent)"), "{text}");
        assert!(report(&[&agent.replace("0.9.1", "''")]).1);
    }

    #[test]
    fn unknown_field_is_a_warning() {
        let text = format!("{WEB}extra: 1\n");
        let lines = "a: warning: extra: unknown field, ignored\na: ok (pod default/web)\n";
        assert_eq!(report(&[&text]), (lines.to_owned(), false));
    }

    #[test]
    fn every_document_of_a_file_is_reported() {
        let text = format!("{WEB}---\napiVersion: v1\nkind: Ingress\n---\nkind: Pod\n");
        let lines = "\
a: document 1 (line 1): ok (pod default/web)
a: document 2 (line 5): kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads
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
    fn two_pods_with_one_uid_are_refused() {
        let web = WEB.replace("{name: web}", "{name: web, uid: plc}");
        let db = web.replace("web", "db");
        let lines = "a: ok (pod default/web)\nb: metadata.uid plc is already in a\n";
        assert_eq!(report(&[&web, &db]), (lines.to_owned(), true));
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

    #[test]
    fn all_errors_are_reported_at_once_with_unknown_fields() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: Web_1}\nspec:\n  hostNetwrok: true\n  \
                    containers:\n  - {name: c, image: 7, tty: \"no\"}\n  - {name: c, image: i}\n";
        let (lines, is_refused) = report(&[text]);
        assert!(is_refused);
        for part in [
            "warning: spec.hostNetwrok: unknown field, ignored (did you mean hostNetwork?)\n",
            "a: spec.containers[0].image: expected a string",
            "a: spec.containers[0].tty: expected a boolean",
            "a: metadata.name: \"Web_1",
            "a: spec.containers[1].name: ",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!lines.contains("image: required"), "{lines}");
    }

    #[test]
    fn doubtful_amount_is_a_warning() {
        let text = WEB.replace("image: i", "image: i, resources: {limits: {memory: 64m}}");
        let (lines, is_refused) = report(&[&text]);
        assert!(
            !is_refused && lines.starts_with("a: warning: spec.containers[0].resources.limits.memory: 64m"),
            "{lines}"
        );
    }

    #[test]
    fn kubelet_configuration_is_checked_as_a_whole() {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        assert_eq!(report(&[&format!("{head}maxPods: 20\n")]), ("a: ok (KubeletConfiguration)\n".to_owned(), false));
        let (lines, is_refused) = report(&[&format!("{head}maxPod: 3\nmaxPods: x\nserializeImagePulls: 7\n")]);
        assert!(is_refused);
        for part in ["a: warning: maxPod: ", "did you mean maxPods?", "a: maxPods: ", "a: serializeImagePulls: "] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        // As the agent reads it.
        for (more, warning) in [
            ("maxPods: 30\n", "line 4: maxPods is given twice, the later one counts"),
            ("---\nkind: KubeProxyConfiguration\n", "2 documents, only the first is read"),
            ("---\n{ left by an editor\n", "only the first document is read"),
        ] {
            let (lines, is_refused) = report(&[&format!("{head}maxPods: 20\n{more}")]);
            assert!(!is_refused && lines.ends_with("a: ok (KubeletConfiguration)\n"), "{lines}");
            assert!(lines.starts_with("a: warning: ") && lines.contains(warning), "{lines}");
        }
        assert!(report(&[&format!("kind: Pod\n---\n{head}")]).1, "the agent reads only the first document");
    }
}
