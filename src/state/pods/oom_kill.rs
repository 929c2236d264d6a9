//! Parses OOM kills in the kernel log. Pure.

/// A process killed by the OOM killer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OomKill {
    /// The machine ran out of memory, not a limited cgroup.
    pub(crate) is_systems: bool,
    /// Path of the process's cgroup.
    pub(crate) group: String,
    pub(crate) process: String,
    pub(crate) pid: u32,
}

impl OomKill {
    /// Parses a record of `/dev/kmsg` written by `dump_oom_summary` in mm/oom_kill.c; `None` for every other record.
    pub(crate) fn read(record: &str) -> Option<Self> {
        let (head, text) = record.split_once(';')?;
        // The lower three bits are the level, the rest the facility: 0 is the kernel, which user space cannot forge.
        let written_by = head.split(',').next()?.parse::<u32>().ok()? >> 3;
        if written_by != 0 {
            return None;
        }
        let text = text.lines().next()?.strip_prefix("oom-kill:")?;
        // Process names may contain anything, so the fields after the name are parsed from the end.
        let (text, _) = text.rsplit_once(",uid=")?;
        let (text, pid) = text.rsplit_once(",pid=")?;
        let (text, group) = text.split_once(",task_memcg=")?;
        let (group, process) = group.split_once(",task=")?;
        Some(Self {
            is_systems: text.ends_with(",global_oom"),
            group: group.to_owned(),
            process: process.to_owned(),
            pid: pid.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITED: &str = "6,1234,5678,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,\
                           oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=d,pid=1,d,pid=546,uid=0\n";

    #[test]
    fn kill_has_its_cgroup_and_process() {
        let group = "/kubepods/pod1/c1".to_owned();
        let kill = OomKill { is_systems: false, group, process: "d,pid=1,d".to_owned(), pid: 546 };
        assert_eq!(OomKill::read(LIMITED), Some(kill));
        let global = LIMITED.replace("oom_memcg=/kubepods/pod1", "global_oom");
        assert!(OomKill::read(&global).is_some_and(|kill| kill.is_systems));
    }

    #[test]
    fn only_the_summary_record_of_a_global_oom_counts() {
        let log = "4,1010,81234567,-;stress invoked oom-killer: gfp_mask=0x140dca, order=0, oom_score_adj=0\n\
                   4,1011,81234570,-;CPU: 0 PID: 812 Comm: stress Not tainted 6.1.0-28-amd64 #1\n\
                   6,1034,81239990,-;[    812]     0   812    65793    60122   520192        0          1000 stress\n\
                   6,1035,81240001,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=c1,mems_allowed=0,\
                   global_oom,task_memcg=/kubepods/besteffort/pod1/c1,task=stress,pid=812,uid=0\n\
                   3,1036,81240012,-;Out of memory: Killed process 812 (stress) total-vm:263172kB, anon-rss:240488kB\n";
        let kills: Vec<OomKill> = log.lines().filter_map(OomKill::read).collect();
        let group = "/kubepods/besteffort/pod1/c1".to_owned();
        assert_eq!(kills, [OomKill { is_systems: true, group, process: "stress".to_owned(), pid: 812 }]);
    }

    #[test]
    fn record_written_by_a_program_is_ignored() {
        for head in ["14", "12", "x", ""] {
            let record = LIMITED.replacen('6', head, 1);
            assert_eq!(OomKill::read(&record), None, "{record}");
        }
    }

    #[test]
    fn other_and_truncated_records_are_ignored() {
        for end in 0..LIMITED.len() - 7 {
            assert_eq!(OomKill::read(LIMITED.get(..end).unwrap()), None, "{end}");
        }
        assert_eq!(OomKill::read("6,1,2,-;Memory cgroup out of memory: Killed process 546 (dd)\n"), None);
    }
}
