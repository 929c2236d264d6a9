//! The values of a pod's cgroup during a resize. Pure.

use crate::platform::cgroups::Values;

/// The cgroup first gets limits in which both the old and the new resources fit, then the new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResizeSteps {
    present: Values,
    wider: Values,
    wanted: Values,
}

impl ResizeSteps {
    pub(super) fn new(present: Values, wanted: Values) -> Self {
        Self { wider: wanted.clone().widest(&present), present, wanted }
    }

    pub(crate) fn present(&self) -> &Values {
        &self.present
    }

    /// The values before the containers are resized, if they differ from the present ones.
    pub(crate) fn before(&self) -> Option<&Values> {
        (!is_same(&self.present, &self.wider)).then_some(&self.wider)
    }

    /// The values after that, if they differ once more.
    pub(crate) fn after(&self) -> Option<&Values> {
        (!is_same(&self.wider, &self.wanted)).then_some(&self.wanted)
    }
}

fn is_same(one: &Values, other: &Values) -> bool {
    (one.cpu_weight, one.cpu_max, one.memory_max) == (other.cpu_weight, other.cpu_max, other.memory_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::cgroups::{CpuMax, Limit};

    fn values(quota: u64, memory: Limit) -> Values {
        let cpu_max = Some(CpuMax { quota: Limit::At(quota), period: 100_000 });
        Values {
            cpu_weight: Some(1),
            cpu_max,
            memory_max: Some(memory),
            pids_max: Some(Limit::Max),
            ..Values::default()
        }
    }

    #[test]
    fn limits_grow_before_the_containers_and_shrink_after_them() {
        let steps = |present, wanted| ResizeSteps::new(present, wanted);
        let (small, large) = (values(1000, Limit::At(1)), values(2000, Limit::Max));
        let grows = steps(small.clone(), large.clone());
        assert_eq!((grows.before(), grows.after()), (Some(&large), None));
        let shrinks = steps(large.clone(), small.clone());
        assert_eq!((shrinks.before(), shrinks.after()), (None, Some(&small)));
        let mixed = steps(values(2000, Limit::At(1)), values(1000, Limit::At(2)));
        assert_eq!(mixed.before(), Some(&values(2000, Limit::At(2))));
        assert_eq!(mixed.after(), Some(&values(1000, Limit::At(2))));
        let stays = steps(small.clone(), small);
        assert_eq!((stays.before(), stays.after()), (None, None));
    }
}
