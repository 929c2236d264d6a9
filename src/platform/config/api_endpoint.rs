//! `apiEndpoint` of Coracle's own file: the endpoint that components of the node use in place of the API server.

use std::net::SocketAddr;

use serde_json::Value;

use super::check::Problem;
use super::fields::Fields;
use super::node_name::is_subdomain;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiEndpointSettings {
    pub(crate) listen: SocketAddr,
    /// `NAMESPACE/NAME` of the ServiceAccounts whose reads are remembered.
    pub(crate) service_accounts: Vec<String>,
}

const MAX_ACCOUNTS: usize = 16;

/// `None`: off. `always_syncs`: whether the node is connected whenever there is a line.
pub(super) fn read(document: &Value, always_syncs: bool) -> Result<Option<ApiEndpointSettings>, Problem> {
    let Some(document) = document.as_object().filter(|document| document.contains_key("apiEndpoint")) else {
        return Ok(None);
    };
    let problem = |path: &str, fault: String| Problem { path: path.to_owned(), fault };
    let fields = Fields(document);
    let listen = fields.text("apiEndpoint.listen").unwrap_or_default();
    let address = listen.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    let listen =
        address.ok_or_else(|| problem("apiEndpoint.listen", format!("expected ADDRESS:PORT, found {listen:?}")))?;
    let texts = fields.at("apiEndpoint.serviceAccounts").and_then(Value::as_array).into_iter().flatten();
    let service_accounts: Vec<String> = texts.filter_map(Value::as_str).map(str::to_owned).collect();
    let is_account = |account: &String| {
        account.split_once('/').is_some_and(|(namespace, name)| is_subdomain(namespace) && is_subdomain(name))
    };
    let path = "apiEndpoint.serviceAccounts";
    if let Some(wrong) = service_accounts.iter().find(|account| !is_account(account)) {
        return Err(problem(path, format!("expected NAMESPACE/NAME, found {wrong:?}")));
    }
    if service_accounts.is_empty() || service_accounts.len() > MAX_ACCOUNTS {
        let account_count = service_accounts.len();
        return Err(problem(path, format!("expected 1 to {MAX_ACCOUNTS} ServiceAccounts, found {account_count}")));
    }
    if !always_syncs {
        let fault = "requires sync.mode watch: without a connection, components have nothing to follow";
        return Err(problem("apiEndpoint", fault.to_owned()));
    }
    Ok(Some(ApiEndpointSettings { listen, service_accounts }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(listen: &str, accounts: &[&str], always_syncs: bool) -> Result<Option<ApiEndpointSettings>, String> {
        let document = json!({"apiEndpoint": {"listen": listen, "serviceAccounts": accounts}});
        read(&document, always_syncs).map_err(|problem| problem.to_string())
    }

    #[test]
    fn endpoint_has_an_address_and_accounts() {
        let read_well = read_one("127.0.0.1:6440", &["kube-system/kube-proxy"], true);
        let (listen, service_accounts) = ("127.0.0.1:6440".parse().unwrap(), vec!["kube-system/kube-proxy".to_owned()]);
        assert_eq!(read_well, Ok(Some(ApiEndpointSettings { listen, service_accounts })));
        assert_eq!(read(&json!({}), false).map_err(|problem| problem.to_string()), Ok(None));
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (listen, accounts, always_syncs, expected) in [
            ("6440", &["a/b"][..], true, "apiEndpoint.listen"),
            ("127.0.0.1:0", &["a/b"], true, "apiEndpoint.listen"),
            ("127.0.0.1:6440", &[], true, "apiEndpoint.serviceAccounts"),
            ("127.0.0.1:6440", &["a/b"; 17], true, "apiEndpoint.serviceAccounts"),
            ("127.0.0.1:6440", &["kube-proxy"], true, "apiEndpoint.serviceAccounts"),
            ("127.0.0.1:6440", &["a/b"], false, "sync.mode"),
        ] {
            let error = read_one(listen, accounts, always_syncs).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
