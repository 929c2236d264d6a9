//! The drop-in of the runtime's unit. Pure.

use crate::cli::gc_variables::GC_VARIABLES;
use crate::cli::outputs::RuntimeName;

pub(super) fn drop_in(runtime: RuntimeName) -> String {
    let program = runtime.program();
    let variables = GC_VARIABLES.map(|(name, value)| format!("{name}={value}")).join(" ");
    format!(
        "# Garbage collection of {program} on a board with little memory, printed by\n\
         # `coracle runtime-config {program} --unit`.\n\
         #\n\
         # This file belongs to /etc/systemd/system/{program}.service.d/coracle-lean.conf; then\n\
         # systemctl daemon-reload && systemctl restart {program}\n\
         #\n\
         # Without systemd the script that starts {program} (with OpenRC /etc/conf.d/{program}) needs this line:\n\
         # export {variables}\n\
         [Service]\n\
         # Collect when the heap has grown by a fifth; try to stay below the limit, which is no hard one.\n\
         Environment={variables}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_in_says_where_it_belongs() {
        let text = drop_in(RuntimeName::Crio);
        assert!(
            text.contains("/etc/systemd/system/crio.service.d/") && text.contains("export GOGC=20 GOMEMLIMIT=64MiB")
        );
        assert!(text.ends_with("\nEnvironment=GOGC=20 GOMEMLIMIT=64MiB\n"));
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), 2);
    }
}
