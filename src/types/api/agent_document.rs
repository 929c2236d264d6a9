//! The document of signed manifests that names the version of the agent. Pure.

use super::map::Map;
use super::metadata::ObjectMeta;

object! {
    pub struct AgentDocument {
        @always {
            api_version: AgentApiVersion,
            kind: AgentKind,
            metadata: ObjectMeta,
        }
        spec: AgentSpec,
    }
}

words! {
    #[derive(Default)]
    pub enum AgentApiVersion {
        #[default]
        V1 = "coracle.dev/v1",
    }
}

words! {
    #[derive(Default)]
    pub enum AgentKind {
        #[default]
        Agent = "Agent",
    }
}

object! {
    pub struct AgentSpec {
        version: String,
        /// `{arch}` in it stands for the architecture.
        url: String,
        /// By architecture. Without it, the program has a signature of its own beside it.
        sha256: Map<String>,
        allow_downgrade: bool,
        /// A KubeletConfiguration as text.
        config: String,
        /// Limit of the trial.
        within_seconds: Option<i64>,
    }
}
