//! The API server as an operator's machine reaches it: the kubeconfig as kubectl finds it, and lists in pages.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::platform::apiserver::{ApiError, Client, KubeconfigSource, Request};
use crate::platform::net::{Dialer, ProxySettings};
use crate::types::error::ErrorChain;

pub(in crate::cli) struct Operator {
    client: Client,
    requests: u64,
}

/// Nodes with long lists of images have some 20 KB each.
const OPERATOR_PAGE: &str = "250";
const OPERATOR_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

impl Operator {
    pub(in crate::cli) fn new(kubeconfig: Option<&Path>, context: Option<&str>) -> Self {
        let (variable, home) = (std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"));
        let files = kubeconfig_files(kubeconfig, variable.as_deref(), home.as_deref());
        let source = KubeconfigSource { files, context: context.map(str::to_owned) };
        let client = Client::of_operator(source, Dialer::of_server(ProxySettings::from_environment()));
        Self { client, requests: 0 }
    }

    pub(in crate::cli) async fn send(&mut self, request: Request) -> Result<Value, ApiError> {
        self.requests += 1;
        self.client.send(&request.within(OPERATOR_REQUEST_TIMEOUT)).await?.json()
    }

    pub(in crate::cli) async fn get(&mut self, path: &str) -> Result<Value, ApiError> {
        self.send(Request::get(path)).await
    }

    /// Lists in pages, of which one at a time is in memory. `each` gets `None` when the list begins, and again if its
    /// snapshot has expired at the server.
    pub(in crate::cli) async fn list(
        &mut self,
        path: &str,
        selector: &str,
        each: &mut dyn FnMut(Option<&Value>),
    ) -> Result<(), ApiError> {
        each(None);
        match self.pages(path, selector, each).await {
            Err(error) if error.is_expired() => {
                each(None);
                self.pages(path, selector, each).await
            }
            result => result,
        }
    }

    async fn pages(
        &mut self,
        path: &str,
        selector: &str,
        each: &mut dyn FnMut(Option<&Value>),
    ) -> Result<(), ApiError> {
        let mut next = String::new();
        loop {
            let mut request = Request::get(path).with_query("limit", OPERATOR_PAGE).accepting_gzip();
            for (name, value) in [("labelSelector", selector), ("continue", &next)] {
                if !value.is_empty() {
                    request = request.with_query(name, value);
                }
            }
            let page = self.send(request).await?;
            for item in page.get("items").and_then(Value::as_array).into_iter().flatten() {
                each(Some(item));
            }
            next.clear();
            next.push_str(page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default());
            if next.is_empty() {
                return Ok(());
            }
        }
    }

    /// Requests and bytes so far.
    pub(in crate::cli) fn cost(&self) -> String {
        let traffic = self.client.traffic();
        let (sent, received) = (traffic.bytes_sent(), traffic.bytes_received());
        format!("{} requests, {sent} bytes sent, {received} received", self.requests)
    }
}

/// One line, with what helps.
pub(in crate::cli) fn failure(action: &str, error: &ApiError) -> String {
    let hint = if error.is_forbidden() { "; coracle rollout rights prints what it takes" } else { "" };
    format!("{action}: {}{hint}", ErrorChain(error))
}

/// `--kubeconfig`, else those of `$KUBECONFIG`, else `~/.kube/config`.
fn kubeconfig_files(flag: Option<&Path>, variable: Option<&OsStr>, home: Option<&OsStr>) -> Vec<PathBuf> {
    if let Some(path) = flag {
        return vec![path.to_owned()];
    }
    let listed: Vec<PathBuf> = variable.map(|paths| std::env::split_paths(paths).collect()).unwrap_or_default();
    let listed: Vec<PathBuf> = listed.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    match listed.is_empty() {
        true => vec![PathBuf::from(home.unwrap_or_default()).join(".kube/config")],
        false => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_is_found_as_kubectl_finds_it() {
        let (home, listed) = (Some(OsStr::new("/root")), Some(OsStr::new("/a::/b")));
        let files = |flag: Option<&str>, variable| kubeconfig_files(flag.map(Path::new), variable, home);
        assert_eq!(files(Some("x"), listed), [PathBuf::from("x")]);
        assert_eq!(files(None, listed), [PathBuf::from("/a"), PathBuf::from("/b")]);
        for variable in [None, Some(OsStr::new(""))] {
            assert_eq!(files(None, variable), [PathBuf::from("/root/.kube/config")]);
        }
    }
}
