//! ConfigMaps and Secrets. Pure.

use super::bytes::Bytes;
use super::map::Map;
use super::metadata::ObjectMeta;
use super::pod::V1;

object! {
    pub struct ConfigMap {
        @always {
            api_version: V1,
            kind: ConfigMapKind,
            metadata: ObjectMeta,
        }
        data: Map<String>,
        binary_data: Map<Bytes>,
        immutable: bool,
    }
}

words! {
    #[derive(Default)]
    pub enum ConfigMapKind {
        #[default]
        ConfigMap = "ConfigMap",
    }
}

object! {
    pub struct Secret {
        @always {
            api_version: V1,
            kind: SecretKind,
            metadata: ObjectMeta,
        }
        data: Map<Bytes>,
        /// Write-only: the API server merges it into `data`, over keys already there.
        string_data: Map<String>,
        secret_type: String = "type",
        immutable: bool,
    }
}

words! {
    #[derive(Default)]
    pub enum SecretKind {
        #[default]
        Secret = "Secret",
    }
}

impl Secret {
    /// Merges `stringData` into `data`, as the API server does.
    pub fn merge_string_data(&mut self) {
        let text = std::mem::take(&mut self.string_data).into_iter();
        let text = text.map(|(key, text)| (key, Bytes(text.into_bytes())));
        self.data = std::mem::take(&mut self.data).into_iter().chain(text).collect();
    }
}
