//! Whether this node takes a pod: what it may not do here, or what the node cannot do for it, has it refused before
//! anything of it is made.

mod app_armor;
mod host;
mod sysctls;

use crate::api::{Pod, Reason, SupplementalGroupsPolicy};
use crate::config::Config;

use sysctls::AllowedSysctls;

/// Why a pod is not taken, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// What pods are asked for.
#[derive(Debug)]
pub(crate) struct Admission {
    sysctls: AllowedSysctls,
}

impl Admission {
    pub(crate) fn new(config: &Config) -> Self {
        Self { sysctls: AllowedSysctls::new(&config.allowed_unsafe_sysctls, host::kernel()) }
    }

    /// `strict_groups` tells whether the runtime can keep to the groups that a pod names.
    pub(crate) fn admit(&self, pod: &Pod, strict_groups: bool) -> Result<(), Rejection> {
        self.sysctls.check(pod)?;
        check_groups(pod, strict_groups)?;
        if app_armor::is_wanted(pod) {
            app_armor::check(pod, &host::app_armor())?;
        }
        Ok(())
    }
}

fn check_groups(pod: &Pod, strict_groups: bool) -> Result<(), Rejection> {
    let policy = pod.spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy);
    if policy == Some(SupplementalGroupsPolicy::Strict) && !strict_groups {
        return Err(Rejection {
            reason: Reason::SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
            message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodSecurityContext;

    #[test]
    fn a_pod_that_needs_its_groups_and_no_others_is_taken_only_where_that_can_be_kept() {
        let mut pod = Pod::default();
        assert_eq!(check_groups(&pod, false), Ok(()));
        for (policy, expected) in [(SupplementalGroupsPolicy::Merge, true), (SupplementalGroupsPolicy::Strict, false)] {
            let supplemental_groups_policy = Some(policy);
            let context = PodSecurityContext { supplemental_groups_policy, ..PodSecurityContext::default() };
            pod.spec.security_context = Some(Box::new(context));
            assert_eq!(check_groups(&pod, false).is_ok(), expected);
            assert_eq!(check_groups(&pod, true), Ok(()));
        }
    }
}
