//! The proxies that this process's environment sets.

use super::ProxySettings;

impl ProxySettings {
    /// Reads the environment. Logs variables without effect.
    pub(crate) fn from_environment() -> Self {
        let (settings, ignored) = Self::from_variables(|name| std::env::var(name).ok());
        for name in ignored {
            // Not the value: it may have a password.
            log!(warn, "proxy ignored: expected http, https or socks5://HOST:PORT", variable = name);
        }
        settings
    }
}
