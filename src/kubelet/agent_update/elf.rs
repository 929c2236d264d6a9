//! The architecture of a program, from its ELF header. Pure.

/// Why this machine cannot execute `program`; `None` if it may.
pub(crate) fn foreign_program(program: &[u8]) -> Option<String> {
    let header = program.first_chunk::<20>().filter(|header| header.starts_with(b"\x7fELF"));
    let Some([_, _, _, _, class, order, .., low, high]) = header else {
        return Some("it is not a program for Linux (no ELF header)".to_owned());
    };
    let machine = if *order == 2 { u16::from_be_bytes([*low, *high]) } else { u16::from_le_bytes([*low, *high]) };
    let host_format = (u8::from(cfg!(target_pointer_width = "64")) + 1, 1, OWN_MACHINE);
    ((*class, *order, machine) != host_format)
        .then(|| format!("it is for {}, and this program for {}", name(machine), name(OWN_MACHINE)))
}

fn name(machine: u16) -> String {
    match MACHINES.iter().find(|(number, _)| *number == machine) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("another architecture ({machine})"),
    }
}

/// `e_machine` of the architectures with releases.
const MACHINES: [(u16, &str); 5] = [(3, "x86"), (40, "arm"), (62, "x86_64"), (183, "aarch64"), (243, "riscv64")];
const OWN_MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "x86") {
    3
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    40
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_is_not_foreign_and_each_other_machine_is() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(foreign_program(&own), None);
        for (machine, name) in MACHINES.iter().filter(|(machine, _)| *machine != OWN_MACHINE) {
            let mut other = own[..64].to_vec();
            other[18..20].copy_from_slice(&machine.to_le_bytes());
            assert!(foreign_program(&other).unwrap().starts_with(&format!("it is for {name}, ")));
        }
        let mut class = own[..64].to_vec();
        class[4] ^= 3;
        assert!(foreign_program(&class).is_some());
        for text in [&b""[..], b"#!/bin/sh\nexit 0\n more text", &own[..19]] {
            assert!(foreign_program(text).unwrap().contains("no ELF header"));
        }
    }
}
