//! `v1.Config` of client-go: the kubeconfig. Pure.

use serde_json::Value;

use super::Bytes;

object! {
    pub struct KubeconfigFile {
        api_version: String,
        kind: String,
        preferences: Value,
        clusters: Vec<NamedCluster>,
        users: Vec<NamedUser>,
        contexts: Vec<NamedContext>,
        current_context: String = "current-context",
        extensions: Value,
    }
}

object! {
    pub struct NamedCluster {
        name: String,
        cluster: KubeconfigCluster,
    }
}

object! {
    pub struct KubeconfigCluster {
        server: String,
        certificate_authority: String = "certificate-authority",
        certificate_authority_data: Bytes = "certificate-authority-data",
        insecure_skip_tls_verify: bool = "insecure-skip-tls-verify",
        tls_server_name: String = "tls-server-name",
        proxy_url: String = "proxy-url",
        disable_compression: bool = "disable-compression",
        extensions: Value,
    }
}

object! {
    pub struct NamedUser {
        name: String,
        user: KubeconfigUser,
    }
}

object! {
    pub struct KubeconfigUser {
        client_certificate: String = "client-certificate",
        client_certificate_data: Bytes = "client-certificate-data",
        client_key: String = "client-key",
        client_key_data: Bytes = "client-key-data",
        token: String,
        token_file: String = "tokenFile",
        exec: Option<Box<ExecConfig>>,
        auth_provider: Value = "auth-provider",
        username: String,
        password: String,
        impersonate: String = "as",
        extensions: Value,
    }
}

object! {
    /// A program that returns the user's credentials.
    pub struct ExecConfig {
        command: String,
        args: Vec<String>,
        env: Vec<ExecEnvVar>,
        api_version: String,
        install_hint: String,
        provide_cluster_info: bool,
        interactive_mode: String,
    }
}

object! {
    pub struct ExecEnvVar {
        name: String,
        value: String,
    }
}

object! {
    pub struct NamedContext {
        name: String,
        context: KubeconfigContext,
    }
}

object! {
    pub struct KubeconfigContext {
        cluster: String,
        user: String,
        namespace: String,
        extensions: Value,
    }
}
