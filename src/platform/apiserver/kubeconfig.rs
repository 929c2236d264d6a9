//! Parses the kubeconfig: server, CA and credentials. Pure.

use std::fmt;
use std::path::{Path, PathBuf};

use super::exec_credential::ExecPlugin;
use crate::types::api::{Bytes, DecodeError, KubeconfigCluster, KubeconfigFile, KubeconfigUser, decode, yaml};

/// The current context of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kubeconfig {
    /// `https://host:port`, optionally with a path.
    pub(crate) server: String,
    /// The CA of the server's certificate; `None` trusts no server, as the system's CAs are not used.
    pub(crate) authority: Option<Pem>,
    /// The name in the server's certificate; `None` for that in `server`.
    pub(crate) server_name: Option<String>,
    /// Skip verification of the server.
    pub(crate) insecure: bool,
    pub(crate) proxy: Option<String>,
    pub(crate) certificate: Option<(Pem, Pem)>,
    pub(crate) token: Option<Token>,
    /// Asked for the credential, unless there is a token.
    pub(crate) exec: Option<Box<ExecPlugin>>,
}

/// The files of a kubeconfig, of which each name counts as the first file has it (client-go: `ClientConfigLoadingRules`),
/// and the context to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeconfigSource {
    /// Of several, those that do not exist are skipped.
    pub(crate) files: Vec<PathBuf>,
    /// `None`: the current context.
    pub(crate) context: Option<String>,
}

/// PEM, inline or in a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    Data(Vec<u8>),
    File(PathBuf),
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Data(String),
    File(PathBuf),
}

/// One line: the field, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadKubeconfig(String);

impl KubeconfigSource {
    /// The name in errors.
    pub(crate) fn name(&self) -> PathBuf {
        let names: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        names.join(":").into()
    }
}

impl From<&Path> for KubeconfigSource {
    fn from(path: &Path) -> Self {
        Self { files: vec![path.to_owned()], context: None }
    }
}

impl Kubeconfig {
    /// A configuration of which only the server is known.
    pub(crate) fn of_server(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            authority: None,
            server_name: None,
            insecure: false,
            proxy: None,
            certificate: None,
            token: None,
            exec: None,
        }
    }

    /// The cluster of a kubeconfig with one cluster and no user, as in `cluster-info`.
    pub(crate) fn of_only_cluster(text: &[u8]) -> Result<Self, BadKubeconfig> {
        let bad = |what: &dyn fmt::Display| BadKubeconfig(what.to_string());
        let document = yaml::parse_first(text).map_err(|error| bad(&error))?;
        let document = document.ok_or_else(|| bad(&"expected a kubeconfig, found nothing"))?;
        let file: KubeconfigFile = decode(document.value).map_err(|error: DecodeError| bad(&error))?.value;
        let cluster = file.clusters.into_iter().next().map(|named| named.cluster);
        let cluster = cluster.filter(|cluster| !cluster.server.is_empty());
        let cluster = cluster.ok_or_else(|| bad(&"clusters: expected one with a server, found none"))?;
        let non_empty = |text: String| (!text.is_empty()).then_some(text);
        Ok(Self {
            authority: pem(cluster.certificate_authority_data, String::new(), Path::new("/")),
            server_name: non_empty(cluster.tls_server_name),
            proxy: non_empty(cluster.proxy_url),
            ..Self::of_server(&cluster.server)
        })
    }

    /// Parses a kubeconfig. Relative paths in it start at `folder`.
    pub(crate) fn read(text: &[u8], folder: &Path) -> Result<Self, BadKubeconfig> {
        Self::merge(&[(text.to_vec(), folder.to_owned())], None)
    }

    /// Parses the files of a kubeconfig. Relative paths in each start at its folder.
    pub(crate) fn merge(files: &[(Vec<u8>, PathBuf)], context: Option<&str>) -> Result<Self, BadKubeconfig> {
        let bad = |what: &dyn fmt::Display| BadKubeconfig(what.to_string());
        let (mut clusters, mut users, mut contexts, mut current) = (Vec::new(), Vec::new(), Vec::new(), String::new());
        for (text, folder) in files {
            let document = yaml::parse_first(text).map_err(|error| bad(&error))?;
            let document = document.ok_or_else(|| bad(&"expected a kubeconfig, found nothing"))?;
            let file: KubeconfigFile = decode(document.value).map_err(|error: DecodeError| bad(&error))?.value;
            if !file.kind.is_empty() && file.kind != "Config" {
                return Err(bad(&format_args!("kind: expected Config, found {:?}", file.kind)));
            }
            clusters.extend(file.clusters.into_iter().map(|cluster| (cluster, folder)));
            users.extend(file.users.into_iter().map(|user| (user, folder)));
            contexts.extend(file.contexts);
            if current.is_empty() {
                current = file.current_context;
            }
        }
        let (field, name) = match context {
            Some(name) => ("", name),
            None => ("current-context: ", current.as_str()),
        };
        if name.is_empty() {
            return Err(bad(&"current-context: expected the name of a context, found nothing"));
        }
        let field_path = format!("context {name:?}");
        let context = contexts.into_iter().find(|context| context.name == name);
        let context = context.ok_or_else(|| bad(&format_args!("{field}{field_path} not found")))?.context;
        let missing = |what: &str, name: &str| bad(&format_args!("{field_path}: no {what} is called {name:?}"));
        let cluster = clusters.into_iter().find(|(cluster, _)| cluster.name == context.cluster);
        let (cluster, cluster_folder) = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        let (user, folder) = match context.user.as_str() {
            "" => (KubeconfigUser::default(), cluster_folder),
            name => {
                let user = users.into_iter().find(|(user, _)| user.name == name);
                let (user, folder) = user.ok_or_else(|| missing("user", name))?;
                (user.user, folder)
            }
        };
        check_user(&user, &context.user)?;
        let exec = user.exec.map(|config| ExecPlugin::new(*config, &cluster.cluster, &context.user, folder));
        let exec = exec.transpose().map_err(BadKubeconfig)?.map(Box::new);
        let KubeconfigCluster { server, certificate_authority: authority, .. } = cluster.cluster;
        if server.is_empty() {
            return Err(bad(&format_args!(
                "cluster {:?}: server: expected https://HOST:PORT, found nothing",
                cluster.name
            )));
        }
        let non_empty = |text: String| (!text.is_empty()).then_some(text);
        let certificate = pem(user.client_certificate_data, user.client_certificate, folder);
        let key = pem(user.client_key_data, user.client_key, folder);
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let name = &context.user;
                return Err(bad(&format_args!("user {name:?}: expected both of client-certificate and client-key")));
            }
        };
        let token = match (non_empty(user.token_file), non_empty(user.token)) {
            // As upstream, the file takes precedence: it is kept up to date.
            (Some(path), _) => Some(Token::File(folder.join(path))),
            (None, token) => token.map(Token::Data),
        };
        Ok(Self {
            server,
            authority: pem(cluster.cluster.certificate_authority_data, authority, cluster_folder),
            server_name: non_empty(cluster.cluster.tls_server_name),
            insecure: cluster.cluster.insecure_skip_tls_verify,
            proxy: non_empty(cluster.cluster.proxy_url),
            certificate,
            token,
            exec,
        })
    }
}

/// Rejects authentication by password, by a provider that was built into clients, and as another user.
fn check_user(user: &KubeconfigUser, name: &str) -> Result<(), BadKubeconfig> {
    let unsupported = [
        ("auth-provider", !user.auth_provider.is_null()),
        ("username", !user.username.is_empty()),
        ("as", !user.impersonate.is_empty()),
    ];
    match unsupported.into_iter().find(|(_, unsupported)| *unsupported) {
        Some((field, _)) => Err(BadKubeconfig(format!(
            "user {name:?}: {field}: not supported, expected client-certificate and client-key, token, tokenFile or exec"
        ))),
        None => Ok(()),
    }
}

/// Inline data takes precedence over a file.
fn pem(data: Bytes, file: String, folder: &Path) -> Option<Pem> {
    match (data.0, file.as_str()) {
        (data, _) if !data.is_empty() => Some(Pem::Data(data)),
        (_, "") => None,
        (_, path) => Some(Pem::File(folder.join(path))),
    }
}

impl fmt::Display for BadKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadKubeconfig {}

// Debug output must not contain keys or tokens.

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => write!(f, "Data({} bytes)", data.len()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(_) => f.write_str("Data"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters:\n- name: c\n  cluster: {cluster}\n\
             users:\n- name: u\n  user: {user}\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\n"
        )
    }

    fn read(text: &str) -> Result<Kubeconfig, String> {
        Kubeconfig::read(text.as_bytes(), Path::new("/etc/kubernetes")).map_err(|bad| bad.to_string())
    }

    #[test]
    fn paths_are_relative_and_inline_data_wins() {
        let text = with(
            "{server: 'https://h:1', certificate-authority: pki/ca.crt, certificate-authority-data: Yw==}",
            "{client-certificate: a.pem, client-key: /k.pem, tokenFile: t, token: s}",
        );
        let read = read(&text).unwrap();
        assert_eq!(read.authority, Some(Pem::Data(b"c".to_vec())));
        let file = |path: &str| Pem::File(PathBuf::from(path));
        assert_eq!(read.certificate, Some((file("/etc/kubernetes/a.pem"), file("/k.pem"))));
        assert_eq!(read.token, Some(Token::File(PathBuf::from("/etc/kubernetes/t"))));
    }

    #[test]
    fn server_settings_are_parsed() {
        let text = with("{server: 'https://h:1', tls-server-name: api, proxy-url: 'http://p:3'}", "{token: s}");
        let read = read(&text).unwrap();
        assert_eq!((read.server.as_str(), read.server_name.as_deref()), ("https://h:1", Some("api")));
        assert_eq!((read.proxy.as_deref(), read.insecure), (Some("http://p:3"), false));
        assert_eq!(read.token, Some(Token::Data("s".to_owned())));
    }

    #[test]
    fn first_of_several_files_has_each_name_and_relative_paths_start_at_its_own_file() {
        let first = "contexts: [{name: x, context: {cluster: c, user: u}}]\n\
                     clusters: [{name: c, cluster: {server: 'https://first:1', certificate-authority: ca}}]";
        let second = with("{server: 'https://second:1'}", "{tokenFile: t}")
            .replace("current-context: x", "current-context: other")
            + "- name: other\n  context: {cluster: c, user: u}\n";
        let files = [(first.as_bytes().to_vec(), PathBuf::from("/a")), (second.into_bytes(), PathBuf::from("/b"))];
        for context in [None, Some("x"), Some("other")] {
            let merged = Kubeconfig::merge(&files, context).unwrap();
            assert_eq!(merged.server, "https://first:1");
            assert_eq!(merged.authority, Some(Pem::File(PathBuf::from("/a/ca"))));
            assert_eq!(merged.token, Some(Token::File(PathBuf::from("/b/t"))));
        }
        let missing = Kubeconfig::merge(&files, Some("z")).unwrap_err();
        assert_eq!(missing.to_string(), "context \"z\" not found");
    }

    #[test]
    fn errors_name_the_field() {
        let server = "{server: 'https://h:1'}";
        let expected = "expected client-certificate and client-key, token, tokenFile or exec";
        let table = [
            (
                with(server, "{auth-provider: {name: gcp}}"),
                format!("user \"u\": auth-provider: not supported, {expected}"),
            ),
            (with(server, "{username: a, password: b}"), format!("user \"u\": username: not supported, {expected}")),
            (with(server, "{client-key: k}"), "user \"u\": expected both of client-certificate and client-key".into()),
            (with("{}", "{}"), "cluster \"c\": server: expected https://HOST:PORT, found nothing".into()),
            (with(server, "7"), "users[0].user: expected an object, found a number".into()),
            ("{}".into(), "current-context: expected the name of a context, found nothing".into()),
            ("current-context: z".into(), "current-context: context \"z\" not found".into()),
            (String::new(), "expected a kubeconfig, found nothing".into()),
            ("kind: Pod".into(), "kind: expected Config, found \"Pod\"".into()),
        ];
        for (text, line) in table {
            assert_eq!(read(&text), Err(line));
        }
    }

    #[test]
    fn cluster_info_has_only_server_and_ca() {
        let text = "kind: Config\nusers: null\ncontexts: null\ncurrent-context: ''\nclusters:\n\
                    - name: ''\n  cluster: {server: 'https://h:1', certificate-authority-data: Yw==}\n";
        let read = Kubeconfig::of_only_cluster(text.as_bytes()).unwrap();
        let expected = Kubeconfig { authority: Some(Pem::Data(b"c".to_vec())), ..Kubeconfig::of_server("https://h:1") };
        assert_eq!(read, expected);
        let none = Kubeconfig::of_only_cluster(b"clusters: []").unwrap_err();
        assert_eq!(none.to_string(), "clusters: expected one with a server, found none");
    }

    #[test]
    fn debug_output_hides_keys_and_tokens() {
        let text = with("{server: 'https://h:1'}", "{client-certificate: a, client-key-data: c2VjcmV0, token: secret}");
        let shown = format!("{:?}", read(&text).unwrap());
        assert!(!shown.contains("secret") && !shown.contains("c2VjcmV0") && !shown.contains("115, 101"), "{shown}");
    }
}
