//! P-F2, P-F3 and P-F5: the file interface of a machine, where its own kernel resolves paths and manages the disk.

use super::{MachineRow, nearly_full, own};
use crate::archives::uploads_of;
use crate::files::{ENTRIES, read_endless, swapped_during};
use crate::ground::Sandbox;
use crate::report::{Finding, ensure};

pub(super) const ROWS: &[MachineRow] = &[
    own("P-F2", "links swapped during reads", swapped),
    own("P-F3", "FIFOs, devices, endless files and folders", endless),
    own("P-F5", "upload of hostile archives", uploads),
];

const READS: u32 = 300;
const WRITES: u32 = 50;

fn swapped(sandbox: &Sandbox<'_>) -> Finding {
    swapped_during(sandbox, READS, WRITES)
}

/// Number of hard links to one file, which cost nothing: with separate inodes and blocks the file system would be full
/// before.
fn make_endless() -> String {
    format!(
        "import os,socket\n\
         os.mkfifo('/fifo'); f=open('/sparse','w'); os.ftruncate(f.fileno(),1<<43); os.mkdir('/many')\n\
         assert os.system('mount -t tmpfs -o nr_inodes=0 many /many')==0\n\
         open('/many/x','w').close()\n\
         for n in range({ENTRIES}): os.link('/many/x','/many/%d'%n)\n\
         s=socket.socket(socket.AF_UNIX); s.bind('/socket')\n"
    )
}

fn endless(sandbox: &Sandbox<'_>) -> Finding {
    let made = sandbox.python(&make_endless());
    ensure(made.ok(), || format!("{made:?}"))?;
    // Devices that a container does not have.
    read_endless(sandbox, &["/dev/vda", "/dev/mem", "/dev/kmsg", "/dev/ttyS0", "/dev/console"])
}

/// Far more than the free space of its disk.
const UPLOADED: u32 = 60_000;
const UPLOAD_LEFT_KIB: u32 = 4 << 10;

fn uploads(sandbox: &Sandbox<'_>) -> Finding {
    nearly_full(sandbox, UPLOAD_LEFT_KIB)?;
    uploads_of(sandbox, UPLOADED)
}
