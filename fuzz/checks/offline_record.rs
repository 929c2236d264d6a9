//! The offline journal that a node reads when it starts without its API server.

use coracle::kubelet::offline::record::{Record, RecordValue, lines};

/// Lines and records must round-trip.
pub(crate) fn check(data: &[u8]) {
    let (whole, rest) = lines(data);
    for line in whole.chain([rest]) {
        if let Ok(record) = Record::read(line) {
            assert_eq!(written(&record), line);
        }
        for value in [RecordValue::Content(line), RecordValue::Sealed(line)] {
            let record = Record { name: "configmap/ns/a", value };
            assert_eq!(Record::read(&written(&record)), Ok(record));
        }
    }
}

/// The record without its newline.
fn written(record: &Record<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    record.write(&mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    line
}
