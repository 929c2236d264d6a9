//! Errors of the node for its status: what they are about, and the message. Pure.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeError {
    pub(crate) subject: ErrorSubject,
    /// Empty if the subject has no error any more.
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorSubject {
    /// Namespace and name, such as `default/web`.
    Pod(String),
    Runtime,
    /// The files of pod versions.
    Versions,
}
