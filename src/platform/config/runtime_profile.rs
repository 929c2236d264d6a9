//! How much memory the runtime may take for its own processes. Pure.

/// What the agent asks of the runtime for its own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuntimeProfile {
    /// What upstream asks.
    #[default]
    Default,
    /// Static pods share shims.
    Lean,
}
