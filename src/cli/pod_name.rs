//! How a pod is named on the command line: `web`, `web-node1`, `default/web`. Pure.

/// A name as it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodName<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> PodName<'a> {
    /// `namespace` is that of the option; it goes before one in the name itself.
    pub(super) fn new(name: &'a str, namespace: Option<&'a str>) -> Self {
        let name = name.strip_prefix("pod/").unwrap_or(name);
        match name.split_once('/') {
            Some((within, name)) => Self { namespace: namespace.or(Some(within)), name },
            None => Self { namespace, name },
        }
    }

    /// The namespace that was said, if one was, and the name.
    pub(super) fn parts(&self) -> (Option<&'a str>, &'a str) {
        (self.namespace, self.name)
    }

    /// A pod from a manifest on the node `node` goes by the name in its manifest, too.
    pub(super) fn is(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace) && names(name, node).any(|known| known == self.name)
    }
}

/// What a pod goes by: the name in its manifest, if it is from one on `node`, and its own.
pub(super) fn names<'a>(name: &'a str, node: &str) -> impl Iterator<Item = &'a str> {
    let in_manifest = name.strip_suffix(node).and_then(|name| name.strip_suffix('-'));
    in_manifest.into_iter().chain([name])
}
