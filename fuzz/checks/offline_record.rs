//! The journal that a node reads when it starts without its cluster.

use coracle::kubelet::offline::record::{Record, Said, lines};

/// What is read of a line is written as that line, and what is written is read again.
pub(crate) fn check(data: &[u8]) {
    let (whole, rest) = lines(data);
    for line in whole.chain([rest]) {
        if let Ok(record) = Record::read(line) {
            assert_eq!(written(&record), line);
        }
        for said in [Said::Content(line), Said::Sealed(line)] {
            let record = Record { name: "configmap/ns/a", said };
            assert_eq!(Record::read(&written(&record)), Ok(record));
        }
    }
}

/// Without the end of the line.
fn written(record: &Record<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    record.write(&mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    line
}
