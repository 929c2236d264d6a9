//! The file of `--join-file`: the cluster that this machine joins. Pure.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use super::check::{Problem, check_fields};
use super::fields::Fields;
use super::file::one;
use super::name_template::NameTemplate;
use super::schema::JOIN_FILE;
use super::{node_labels, node_name, taints};
use crate::types::api::yaml;
use crate::types::error::ErrorChain;

/// Names are those of kubeadm's JoinConfiguration, where it has the field.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct JoinFile {
    /// Host, `host:port` or URL.
    pub(crate) api_server_endpoint: String,
    pub(crate) token: String,
    pub(crate) ca_cert_hashes: Vec<String>,
    pub(crate) unsafe_skip_ca_verification: bool,
    pub(crate) node_name: Option<String>,
    pub(crate) name_template: Option<NameTemplate>,
    /// As `--node-labels` has them.
    pub(crate) labels: String,
    /// As `--register-with-taints` has them.
    pub(crate) taints: String,
    pub(crate) kubernetes_dir: Option<PathBuf>,
}

/// Unless another one is given. It may be missing.
pub(super) const JOIN_FILE_PATH: &str = "/etc/coracle/join.yaml";

impl JoinFile {
    /// The error is one line without the file's name, and never has the token.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let documents = yaml::parse(text).map_err(|error| ErrorChain(&error).to_string())?;
        let document = one(documents, "mapping").map_err(|problem| problem.to_string())?;
        let document = document.strict().map_err(|error| ErrorChain(&error).to_string())?;
        // A token of digits is a number without quotes, and errors show numbers.
        if document.get("token").is_some_and(|token| !token.is_string()) {
            return Err("token: expected a string in quotes".to_owned());
        }
        check_fields(&document, JOIN_FILE).map_err(|problem| problem.to_string())?;
        Self::of(&document).map_err(|problem| problem.to_string())
    }

    fn of(document: &Value) -> Result<Self, Problem> {
        let problem = |path: &str, fault: String| Problem { path: path.to_owned(), fault };
        let fields = document.as_object().map(Fields);
        let fields =
            fields.ok_or_else(|| problem("", "expected apiServerEndpoint and token, found nothing".to_owned()))?;
        let required = |path: &str| {
            let text = fields.text(path).filter(|text| !text.is_empty()).map(str::to_owned);
            text.ok_or_else(|| problem(path, "required".to_owned()))
        };
        let name = fields.text("nodeName").map(|text| {
            let name = node_name::from_override(text);
            name.ok_or_else(|| {
                problem("nodeName", format!("expected a DNS name of letters, digits, '-' and '.', found {text:?}"))
            })
        });
        let template =
            fields.text("nameTemplate").map(|text| text.parse().map_err(|fault| problem("nameTemplate", fault)));
        if name.is_some() && template.is_some() {
            return Err(problem("nameTemplate", "only without nodeName".to_owned()));
        }
        let pairs = fields.at("labels").and_then(Value::as_object).into_iter().flatten();
        let labels = pairs.map(|(key, value)| {
            let part = node_labels::flag_part(key, value.as_str().unwrap_or_default());
            part.map_err(|fault| problem(&format!("labels.{key}"), fault))
        });
        let listed = fields.at("taints").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
        let taints = listed.enumerate().map(|(index, taint)| {
            taints::flag_part(taint).map_err(|fault| problem(&format!("taints[{index}]"), fault))
        });
        Ok(Self {
            api_server_endpoint: required("apiServerEndpoint")?,
            token: required("token")?,
            ca_cert_hashes: fields
                .at("caCertHashes")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            unsafe_skip_ca_verification: fields.bool("unsafeSkipCAVerification") == Some(true),
            node_name: name.transpose()?,
            name_template: template.transpose()?,
            labels: labels.collect::<Result<Vec<_>, _>>()?.join(","),
            taints: taints.collect::<Result<Vec<_>, _>>()?.join(","),
            kubernetes_dir: fields.text("kubernetesDir").map(PathBuf::from),
        })
    }
}

impl fmt::Debug for JoinFile {
    // Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinFile({})", self.api_server_endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "apiServerEndpoint: 10.0.0.1\ntoken: abcdef.0123456789abcdef\n";

    #[test]
    fn all_fields_are_read() {
        let more = "caCertHashes: ['sha256:00']\nunsafeSkipCAVerification: true\nnameTemplate: edge-{serial}\n\
                    labels: {site: berlin, example.com/line: '2'}\nkubernetesDir: /k\n\
                    taints: [{key: edge, value: 'yes', effect: NoSchedule}, {key: a, effect: NoExecute}]\n";
        let expected = JoinFile {
            api_server_endpoint: "10.0.0.1".to_owned(),
            token: "abcdef.0123456789abcdef".to_owned(),
            ca_cert_hashes: vec!["sha256:00".to_owned()],
            unsafe_skip_ca_verification: true,
            node_name: None,
            name_template: "edge-{serial}".parse().ok(),
            labels: "example.com/line=2,site=berlin".to_owned(),
            taints: "edge=yes:NoSchedule,a=:NoExecute".to_owned(),
            kubernetes_dir: Some("/k".into()),
        };
        let read = JoinFile::read(format!("{TOKEN}{more}").as_bytes()).unwrap();
        let sorted = |mut read: JoinFile| {
            let mut labels: Vec<&str> = read.labels.split(',').collect();
            labels.sort_unstable();
            read.labels = labels.join(",");
            read
        };
        assert!(sorted(read.clone()) == expected, "{} {} {:?}", read.labels, read.taints, read.ca_cert_hashes);
        assert_eq!(
            JoinFile::read(format!("{TOKEN}nodeName: Edge-7").as_bytes()).unwrap().node_name.as_deref(),
            Some("edge-7")
        );
    }

    #[test]
    fn faults_name_the_field_and_never_show_the_token() {
        for (text, line) in [
            ("", "expected one mapping, found 0 documents"),
            ("- a", "expected a mapping, found a list"),
            ("apiServerEndpoint: a", "token: required"),
            ("token: abcdef.0123456789abcdef", "apiServerEndpoint: required"),
            ("token: 123456.0123456789", "token: expected a string in quotes"),
            ("tokn: abcdef.0123456789abcdef", "tokn: unknown field (did you mean token?)"),
            (
                &format!("{TOKEN}nodeName: no_name"),
                "nodeName: expected a DNS name of letters, digits, '-' and '.', found \"no_name\"",
            ),
            (&format!("{TOKEN}nodeName: a\nnameTemplate: '{{serial}}'"), "nameTemplate: only without nodeName"),
            (
                &format!("{TOKEN}nameTemplate: a"),
                "nameTemplate: expected {serial}, {mac}, {mac:INTERFACE}, {model} or {hostname}, found \"a\"",
            ),
            (
                &format!("{TOKEN}labels: {{site: ' berlin'}}"),
                "labels.site: expected the key and the value of a label, found \"site= berlin\"",
            ),
            (
                &format!("{TOKEN}labels: {{sites: 'berlin,hamburg'}}"),
                "labels.sites: expected the key and the value of a label, found \"sites=berlin,hamburg\"",
            ),
            (
                &format!("{TOKEN}taints: [{{key: a, effect: NoExecute}}, {{key: ' b', effect: NoExecute}}]"),
                "taints[1]: expected taints such as key=value:NoSchedule or key:NoExecute, found \" b=:NoExecute\"",
            ),
        ] {
            let error = JoinFile::read(text.as_bytes()).unwrap_err();
            assert_eq!(error, line, "{text}");
            assert!(!error.contains("0123456789"), "{error}");
        }
        assert!(!format!("{:?}", JoinFile::read(TOKEN.as_bytes()).unwrap()).contains("abcdef"));
    }
}
