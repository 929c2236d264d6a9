//! Pod names on the command line: `web`, `web-node1`, `default/web`. Pure.

#[derive(Clone, Copy, Debug)]
pub(super) struct PodName<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> PodName<'a> {
    /// `namespace` is the option's value, which takes precedence over one in the name.
    pub(super) fn new(name: &'a str, namespace: Option<&'a str>) -> Self {
        let name = name.strip_prefix("pod/").unwrap_or(name);
        match name.split_once('/') {
            Some((within, name)) => Self { namespace: namespace.or(Some(within)), name },
            None => Self { namespace, name },
        }
    }

    /// The namespace, if given, and the name.
    pub(super) fn parts(&self) -> (Option<&'a str>, &'a str) {
        (self.namespace, self.name)
    }

    /// A pod from a manifest on `node` also matches by the name in its manifest.
    pub(super) fn is(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace) && names(name, node).any(|known| known == self.name)
    }
}

/// The names that match a pod: its own, and if it is from a manifest on `node` the name in the manifest.
pub(super) fn names<'a>(name: &'a str, node: &str) -> impl Iterator<Item = &'a str> {
    let in_manifest = name.strip_suffix(node).and_then(|name| name.strip_suffix('-'));
    in_manifest.into_iter().chain([name])
}
