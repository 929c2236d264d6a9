//! Answers of device plugins, CSI drivers, credential providers, and of the runtime to a command.

use coracle::platform::cri::v1::ExecSyncResponse;
use coracle::protocol::protobuf::{Cutter, decode, encode};

/// The first byte selects the answerer, and is the size of the pieces in which a command's output arrives.
pub(crate) fn check(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    match choice % 4 {
        0 => coracle::kubelet::devices::v1beta1::check_response(bytes),
        1 => coracle::kubelet::csi::v1::check_answer(bytes),
        2 => coracle::kubelet::image_credentials::check_credentials(bytes),
        _ => check_output(bytes, usize::from(choice / 4).max(1)),
    }
}

/// Cutting the output while it arrives is the same as cutting it afterwards.
fn check_output(bytes: &[u8], piece: usize) {
    const MOST: usize = 16;
    let mut cutter = Cutter::new(MOST, usize::MAX);
    let cut = bytes.chunks(piece).try_for_each(|piece| cutter.take(piece)).and_then(|()| cutter.finish());
    let Ok(mut whole) = decode::<ExecSyncResponse>(bytes) else { return };
    // Groups, a deprecated protobuf feature, are refused.
    let Ok(cut) = cut else { return };
    whole.stdout.truncate(MOST);
    whole.stderr.truncate(MOST);
    if let Ok(cut) = decode::<ExecSyncResponse>(&cut) {
        assert_eq!(encode(&cut), encode(&whole));
    }
}
