//! The drop-in of CRI-O's configuration. Pure.

use super::board::{Board, quoted};
use crate::platform::config::CgroupDriver;

pub(super) fn configuration(board: &Board) -> String {
    let driver = match board.driver {
        CgroupDriver::Cgroupfs => "cgroupfs",
        CgroupDriver::Systemd => "systemd",
    };
    let mut text = format!(
        "# CRI-O on a board with little memory, printed by `coracle runtime-config crio`.\n\
         #\n\
         # This file belongs to /etc/crio/crio.conf.d/90-coracle-lean.conf. Its second part,\n\
         # `coracle runtime-config crio --unit`, says where it belongs. Then systemctl restart crio.\n\
         \n\
         [crio.runtime]\n\
         # The driver of the agent: `cgroupDriver`.\n\
         cgroup_manager = \"{driver}\"\n"
    );
    if board.driver == CgroupDriver::Cgroupfs {
        text.push_str("# Other values are for systemd.\nconmon_cgroup = \"pod\"\n");
    }
    text.push_str("# No pause process for pods that share no PID namespace.\ndrop_infra_ctr = true\n");
    if let Some(crun) = &board.crun {
        text.push_str(&format!(
            "# Starts faster than runc, and takes less memory meanwhile.\n\
             default_runtime = \"crun\"\n\
             \n\
             [crio.runtime.runtimes.crun]\n\
             runtime_path = {}\n\
             runtime_root = \"/run/crun\"\n\
             runtime_type = \"oci\"\n\
             monitor_cgroup = \"pod\"\n",
            quoted(crun)
        ));
    }
    if let Some(image) = &board.pause_image {
        text.push_str(&format!("\n[crio.image]\npause_image = {}\n", quoted(image)));
    }
    text.push_str("\n# What a kubelet does not use.\n[crio.nri]\nenable_nri = false\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::board::board;
    use super::*;

    #[test]
    fn crun_and_the_driver_are_those_of_the_board() {
        let mut board = board((1, 30));
        let text = configuration(&board);
        assert!(text.contains("cgroup_manager = \"cgroupfs\"\n") && text.contains("conmon_cgroup = \"pod\"\n"));
        assert!(!text.contains("crun") && !text.contains("pause_image"), "{text}");
        board.crun = Some("/usr/bin/crun".to_owned());
        board.pause_image = Some("localhost/pause:1".to_owned());
        board.driver = CgroupDriver::Systemd;
        let text = configuration(&board);
        assert!(text.contains("cgroup_manager = \"systemd\"\n") && !text.contains("conmon_cgroup"), "{text}");
        assert!(text.contains("default_runtime = \"crun\"\n") && text.contains("runtime_path = \"/usr/bin/crun\"\n"));
        assert!(text.contains("pause_image = \"localhost/pause:1\"\n"), "{text}");
    }
}
