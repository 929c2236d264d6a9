//! What to do about the file of `--join-file`. Pure.
//!
//! ```text
//!   file appears --> Join --> files of a node --> restart --> AwaitCredentials --> Finish --> no file
//!                     | ^
//!                     v | back-off, for ever
//!                    fault
//! ```

use crate::protocol::sha256::sha256;

/// The files that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JoinFacts {
    /// The digest of the file, or why it cannot be read; `None`: there is none.
    pub(super) file: Option<Result<String, String>>,
    pub(super) record: JoinRecord,
    /// The node has credentials of its own.
    pub(super) has_credentials: bool,
    /// The node has a token for its first credentials.
    pub(super) has_bootstrap: bool,
}

/// The file that this node has joined with, as it is stored. A token is used once, also where its file cannot be
/// removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum JoinRecord {
    #[default]
    None,
    /// The files of a node are written.
    Joining(String),
    Used(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JoinStep {
    /// Nothing to do before a change.
    Rest,
    Fault(String),
    Join,
    /// The node requests its certificate.
    AwaitCredentials,
    /// Remove the file and the token.
    Finish,
}

impl JoinFacts {
    pub(super) fn step(&self) -> JoinStep {
        let digest = match &self.file {
            None => return JoinStep::Rest,
            Some(Err(fault)) => return JoinStep::Fault(fault.clone()),
            Some(Ok(digest)) => digest,
        };
        match &self.record {
            JoinRecord::Used(used) if used == digest && self.has_credentials => JoinStep::Rest,
            JoinRecord::Used(used) if used == digest => {
                JoinStep::Fault("this node has joined a cluster with this file before: write a new token".to_owned())
            }
            JoinRecord::Joining(joining) if joining == digest && self.has_credentials => JoinStep::Finish,
            JoinRecord::Joining(joining) if joining == digest && self.has_bootstrap => JoinStep::AwaitCredentials,
            _ if self.has_credentials => {
                JoinStep::Fault("this node has joined a cluster already (coracle leave)".to_owned())
            }
            _ => JoinStep::Join,
        }
    }
}

impl JoinRecord {
    pub(super) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        match text.trim().split_once(' ') {
            Some(("joining", digest)) => Self::Joining(digest.to_owned()),
            Some(("used", digest)) => Self::Used(digest.to_owned()),
            _ => Self::None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Joining(digest) => format!("joining {digest}\n"),
            Self::Used(digest) => format!("used {digest}\n"),
        }
    }
}

/// Identifies a file without its token.
pub(super) fn digest_of(text: &[u8]) -> String {
    sha256(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(record: JoinRecord, has_credentials: bool, has_bootstrap: bool) -> JoinFacts {
        JoinFacts { file: Some(Ok("a".to_owned())), record, has_credentials, has_bootstrap }
    }

    #[test]
    fn file_is_used_until_the_node_has_credentials() {
        let (joining, used) =
            (|name: &str| JoinRecord::Joining(name.to_owned()), |name: &str| JoinRecord::Used(name.to_owned()));
        for (record, has_credentials, has_bootstrap, step) in [
            (JoinRecord::None, false, false, JoinStep::Join),
            // A token that was there before is replaced.
            (JoinRecord::None, false, true, JoinStep::Join),
            (joining("a"), false, true, JoinStep::AwaitCredentials),
            (joining("a"), true, true, JoinStep::Finish),
            (joining("a"), true, false, JoinStep::Finish),
            // A power cut before the files of the node, or `coracle leave` before its certificate.
            (joining("a"), false, false, JoinStep::Join),
            // Another token, as the first has expired.
            (joining("b"), false, true, JoinStep::Join),
            // The file could not be removed.
            (used("a"), true, false, JoinStep::Rest),
            (used("b"), false, false, JoinStep::Join),
        ] {
            assert_eq!(facts(record.clone(), has_credentials, has_bootstrap).step(), step, "{record:?}");
        }
    }

    #[test]
    fn used_file_and_joined_node_are_faults() {
        for (record, has_credentials, words) in [
            (JoinRecord::Used("a".to_owned()), false, "before: write a new token"),
            (JoinRecord::Used("b".to_owned()), true, "already (coracle leave)"),
            (JoinRecord::None, true, "already (coracle leave)"),
        ] {
            let step = facts(record, has_credentials, false).step();
            assert!(matches!(&step, JoinStep::Fault(fault) if fault.contains(words)), "{step:?}");
        }
        let unreadable = JoinFacts { file: Some(Err("why".to_owned())), ..JoinFacts::default() };
        assert_eq!(unreadable.step(), JoinStep::Fault("why".to_owned()));
        assert_eq!(JoinFacts { has_credentials: true, ..JoinFacts::default() }.step(), JoinStep::Rest);
    }

    #[test]
    fn record_survives_its_text() {
        for record in [JoinRecord::None, JoinRecord::Joining("a".to_owned()), JoinRecord::Used("b".to_owned())] {
            assert_eq!(JoinRecord::parse(record.text().as_bytes()), record);
        }
        assert_eq!(JoinRecord::parse(b"lost x"), JoinRecord::None);
    }
}
