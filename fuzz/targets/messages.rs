//! Messages of the host–guest protocol: what a hostile host or guest may put into a control frame.
#![no_main]

use burrow_guest::protocol::{
    AttachInput, AttachNotice, Boot, BootReport, ExecInfo, FileEntry, Hello, Reply, Request,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    let _ = serde_json::from_slice::<Hello>(json);
    let _ = serde_json::from_slice::<Boot>(json);
    let _ = serde_json::from_slice::<BootReport>(json);
    let _ = serde_json::from_slice::<AttachInput>(json);
    let _ = serde_json::from_slice::<AttachNotice>(json);
    let _ = serde_json::from_slice::<Reply<ExecInfo>>(json);
    let _ = serde_json::from_slice::<Reply<Vec<FileEntry>>>(json);
    if let Ok(request) = serde_json::from_slice::<Request>(json) {
        let again = serde_json::to_vec(&request).expect("what was read can be written");
        serde_json::from_slice::<Request>(&again).expect("what was written can be read");
    }
});
