//! Changes of the objects that pods need. Pure.

use std::fmt;
use std::sync::Arc;

use super::{Attachment, ConfigObject, CsiDriver, PersistentVolume, ResourceClaim, Service, Topic, TrustBundle};

#[derive(Clone, PartialEq)]
pub(crate) enum ObjectEvent {
    /// Its current content; `None`: it does not exist.
    Received(Topic, Option<Content>),
    /// It cannot be read now; one line.
    Failed(Topic, String),
}

#[derive(Clone, PartialEq)]
pub(crate) enum Content {
    Object(Arc<ConfigObject>),
    Services(Vec<Service>),
    Token {
        text: String,
        /// Seconds since 1970.
        expires: i64,
    },
    Volume(Box<PersistentVolume>),
    /// Both in PEM.
    Certificate {
        key: Arc<str>,
        chain: Arc<str>,
    },
    RuntimeHandler(String),
    CsiDriver(CsiDriver),
    Attachment(Attachment),
    ResourceClaim(ResourceClaim),
    TrustBundles(Vec<TrustBundle>),
}

impl fmt::Debug for ObjectEvent {
    // Secrets, tokens and keys are not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received(topic, content) => write!(f, "Received({topic:?}, there: {})", content.is_some()),
            Self::Failed(topic, why) => write!(f, "Failed({topic:?}, {why})"),
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content")
    }
}
