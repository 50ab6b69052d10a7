//! The devices and resources of a microVM, as the emulator's command line.
//!
//! A machine that is restored from a dump must consist of exactly the same devices: the emulator loads the state device
//! by device, and fails if one is missing. So there is one list of devices, for the first boot and for every restore,
//! and its fingerprint is stored in the dump.

use std::fmt::Write as _;

use burrow_model::Limits;
use burrow_network::SANDBOX_HARDWARE;
use serde::{Deserialize, Serialize};

use crate::launcher::FIRST_DESCRIPTOR;

/// The kernel's own RAM, which users do not count: a machine has this much more than its limit. Debian's cloud kernel
/// needs about 50 MiB after its boot.
const KERNEL_MIB: u32 = 64;

/// More processors make a machine slower to start, and there was no demand for more.
const VCPUS_MAX: u32 = 32;

/// Translated code that the emulator caches; its default would be a gigabyte.
const TRANSLATED_MIB: u32 = 64;

/// The emulator's limit besides the machine's RAM: for itself, its copy of the kernel (which it keeps after a boot,
/// some 50 MiB), and IO buffers. It normally uses less.
const EMULATOR_MIB: u32 = 192;

/// Processors, disk requests in progress, and the emulator's own threads.
const EMULATOR_THREADS: u32 = 160;

/// In the order in which they are passed.
pub(super) const QMP: i32 = FIRST_DESCRIPTOR;
pub(super) const AGENT: i32 = FIRST_DESCRIPTOR + 1;
pub(super) const TAP: i32 = FIRST_DESCRIPTOR + 2;
pub(super) const DISK: i32 = FIRST_DESCRIPTOR + 3;
pub(super) const KVM: i32 = FIRST_DESCRIPTOR + 4;

/// The first disk of a reader machine.
const READ_DISKS: usize = 5;

/// Names in the emulator's root.
pub(super) const PROGRAM: &str = "qemu";
pub(super) const KERNEL: &str = "kernel";
pub(super) const INITRD: &str = "initrd";
pub(super) const RAM: &str = "ram";

/// The name of the port in the guest protocol, on which this crate does not depend.
const PORT: &str = "burrow";
const ROLE: &str = "vm";
const TRIAL_ROLE: &str = "vm-trial";
const READER_ROLE: &str = "vm-reader";

/// How the machine's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// By the processor itself.
    Kvm,
    /// By a program that translates them: ten to thirty times slower, but available everywhere.
    Emulation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Model {
    pub(super) ram_mib: u32,
    pub(super) vcpus: u32,
    pub(super) accelerator: Accelerator,
    /// The clock rate that the machine received at its boot, and that its copies keep using.
    pub(super) tsc_khz: u64,
}

/// The source of a machine's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Boot,
    /// A file that is visible as [`RAM`], and never written.
    Restore,
}

impl Model {
    pub(super) fn new(limits: &Limits, accelerator: Accelerator, tsc_khz: u64) -> Self {
        let vcpus = limits.cpu_millis.div_ceil(1000).clamp(1, VCPUS_MAX);
        Self { ram_mib: limits.ram_mib.saturating_add(KERNEL_MIB), vcpus, accelerator, tsc_khz }
    }

    pub(super) fn ram_bytes(&self) -> u64 {
        u64::from(self.ram_mib) << 20
    }

    /// The limits of the emulator's cgroup. The processes inside are limited by the guest's kernel.
    pub(super) fn emulator_limits(&self, limits: &Limits) -> Limits {
        let translated = match self.accelerator {
            Accelerator::Kvm => 0,
            Accelerator::Emulation => TRANSLATED_MIB,
        };
        Limits {
            ram_mib: self.ram_mib.saturating_add(EMULATOR_MIB + translated),
            cpu_millis: limits.cpu_millis,
            pids: EMULATOR_THREADS + self.vcpus,
            disk_mib: limits.disk_mib,
        }
    }

    /// The complete command line. `append` is the kernel's command line.
    pub(super) fn command(&self, start: Start, append: &str) -> Vec<String> {
        let mut words = program();
        let ram_mib = self.ram_mib;
        match start {
            Start::Boot => {
                words.extend(["-object".to_owned(), format!("memory-backend-ram,id=ram,size={ram_mib}M")]);
                let kernel = ["-kernel", "/kernel", "-initrd", "/initrd", "-append", append];
                words.extend(kernel.map(str::to_owned));
            }
            Start::Restore => {
                let options = "share=off,readonly=on,rom=off";
                let ram = format!("memory-backend-file,id=ram,size={ram_mib}M,mem-path=/{RAM},{options}");
                words.extend(["-object".to_owned(), ram]);
                let waiting = ["-incoming", "defer", "-S", "-global", "migration.send-configuration=off"];
                words.extend(waiting.map(str::to_owned));
            }
        }
        words.extend(self.devices());
        words.extend(self.channels());
        words
    }

    /// A machine with only a processor and RAM, whose kernel starts and ends it.
    pub(super) fn trial_command(&self) -> Vec<String> {
        let append = self.append_for(TRIAL_ROLE);
        let (accelerator, processor) = self.processor();
        let mut words = program();
        words.extend(self.kvm());
        words.extend(
            [
                ["-M", "microvm"],
                ["-bios", "qboot.rom"],
                ["-m", &self.ram_mib.to_string()],
                ["-accel", &accelerator],
                ["-cpu", processor],
                ["-kernel", "/kernel"],
                ["-initrd", "/initrd"],
                ["-append", &append],
                ["-chardev", &format!("socket,id=qmp,fd={QMP},server=on,wait=off")],
                ["-mon", "chardev=qmp,mode=control"],
                ["-display", "none"],
            ]
            .concat()
            .into_iter()
            .chain(["-nodefaults", "-no-user-config", "-no-reboot"])
            .map(str::to_owned),
        );
        words
    }

    /// A machine with this number of disks, a port to the host and nothing else.
    pub(super) fn reader_command(&self, disks: usize) -> Vec<String> {
        let append = self.append_for(READER_ROLE);
        let (accelerator, processor) = self.processor();
        let ram = self.ram_mib.to_string();
        let mut words = program();
        words.extend(
            [
                ["-M", "microvm"],
                ["-bios", "qboot.rom"],
                ["-accel", &accelerator],
                ["-cpu", processor],
                ["-m", &ram],
                ["-kernel", "/kernel"],
                ["-initrd", "/initrd"],
                ["-append", &append],
                ["-device", "virtio-serial-device,max_ports=2"],
                ["-device", &format!("virtserialport,chardev=agent,name={PORT},nr=1")],
                ["-serial", "chardev:console"],
            ]
            .concat()
            .into_iter()
            .map(str::to_owned),
        );
        for number in 0..disks {
            let (fd, set) = (FIRST_DESCRIPTOR.unsigned_abs() as usize + READ_DISKS + number, 10 + number);
            words.extend(
                [
                    ["-add-fd", &format!("fd={fd},set={set}")],
                    [
                        "-blockdev",
                        &format!(
                            "driver=raw,node-name=disk{number},file.driver=file,file.filename=/dev/fdset/{set},\
                             file.locking=off"
                        ),
                    ],
                    // The machine identifies them by their serial numbers, in whatever order it finds them.
                    ["-device", &format!("virtio-blk-device,drive=disk{number},serial=disk{number}")],
                ]
                .concat()
                .into_iter()
                .map(str::to_owned),
            );
        }
        words.extend(self.ends());
        words
    }

    /// The devices that the machine sees.
    fn devices(&self) -> Vec<String> {
        let mut hardware = String::new();
        for (index, byte) in SANDBOX_HARDWARE.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(hardware, "{separator}{byte:02x}").expect("writing to a string cannot fail");
        }
        let (accelerator, processor) = self.processor();
        let card = format!("virtio-net-device,netdev=net,mac={hardware}");
        let (vcpus, ram) = (self.vcpus.to_string(), self.ram_mib.to_string());
        [
            ["-M", "microvm,memory-backend=ram"],
            ["-bios", "qboot.rom"],
            ["-accel", &accelerator],
            ["-cpu", processor],
            ["-smp", &vcpus],
            ["-m", &ram],
            ["-device", "virtio-blk-device,drive=disk"],
            ["-device", &card],
            ["-device", "virtio-rng-device,rng=rng"],
            ["-device", "virtio-serial-device,max_ports=2"],
            ["-device", &format!("virtserialport,chardev=agent,name={PORT},nr=1")],
            ["-serial", "chardev:console"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    /// The host's ends of these devices, which the machine does not see.
    fn channels(&self) -> Vec<String> {
        let disk = "driver=raw,node-name=disk,discard=unmap,file.driver=file,file.filename=/dev/fdset/1,\
                    file.locking=off";
        let mut words: Vec<String> = [
            ["-add-fd", &format!("fd={DISK},set=1")],
            ["-blockdev", disk],
            ["-netdev", &format!("tap,id=net,fd={TAP}")],
            ["-object", "rng-builtin,id=rng"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        words.extend(self.ends());
        words
    }

    /// The arguments that all machines have in common.
    fn ends(&self) -> Vec<String> {
        let sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
        let mut words: Vec<String> = [
            ["-chardev", &format!("socket,id=agent,fd={AGENT},server=on,wait=off")],
            // The end of the kernel's console output, to find out why a machine did not boot.
            ["-chardev", "ringbuf,id=console,size=65536"],
            ["-chardev", &format!("socket,id=qmp,fd={QMP},server=on,wait=off")],
            ["-mon", "chardev=qmp,mode=control"],
            ["-sandbox", sandbox],
            ["-display", "none"],
        ]
        .concat()
        .into_iter()
        .chain(["-nodefaults", "-no-user-config", "-no-reboot"])
        .map(str::to_owned)
        .collect();
        words.extend(self.kvm());
        words
    }

    /// The accelerator, and the processor model that the guest sees.
    fn processor(&self) -> (String, &'static str) {
        match self.accelerator {
            Accelerator::Kvm => ("kvm,device=/dev/fdset/2".to_owned(), "host"),
            Accelerator::Emulation => (format!("tcg,thread=multi,tb-size={TRANSLATED_MIB}"), "max"),
        }
    }

    /// The descriptor that KVM needs.
    fn kvm(&self) -> Vec<String> {
        match self.accelerator {
            Accelerator::Kvm => vec!["-add-fd".to_owned(), format!("fd={KVM},set=2")],
            Accelerator::Emulation => Vec::new(),
        }
    }

    /// A fingerprint: machines of models with different fingerprints cannot load each other's state.
    pub(super) fn fingerprint(&self) -> String {
        short_hash(&[self.devices().join("\n").as_bytes()])
    }

    /// The kernel's command line, for a machine of this model.
    pub(super) fn append(&self) -> String {
        self.append_for(ROLE)
    }

    fn append_for(&self, role: &str) -> String {
        let khz = self.tsc_khz;
        let clock = match self.accelerator {
            Accelerator::Kvm => String::new(),
            // A guest that measures its own clock rate hangs forever on a busy host. Mitigations that protect its
            // processes from each other against flaws of the processor are useless in its own emulator.
            Accelerator::Emulation => {
                let loops = khz * 4;
                format!("tsc_early_khz={khz} tsc=reliable lpj={loops} no_timer_check mitigations=off")
            }
        };
        format!(
            "console=ttyS0 quiet loglevel=3 reboot=t panic=-1 rdinit=/init {clock} 8250.nr_uarts=1 \
             random.trust_cpu=on audit=0 apparmor=0 cryptomgr.notests net.ifnames=0 -- {role}"
        )
    }
}

/// A short hash. FNV-1a: a collision only helps users who restore dumps that they created themselves.
pub(super) fn short_hash(parts: &[&[u8]]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// The command that starts the emulator, with its own libraries.
fn program() -> Vec<String> {
    let place = |name: &str| format!("/{PROGRAM}/{name}");
    vec![
        place("lib/loader"),
        "--library-path".to_owned(),
        place("lib"),
        place("run/qemu-system-x86_64"),
        "-L".to_owned(),
        place("share"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 1500, pids: 64, disk_mib: 64 };

    fn model() -> Model {
        Model::new(&LIMITS, Accelerator::Emulation, 2_000_000)
    }

    #[test]
    fn limits_include_the_kernels_and_the_emulators_own_memory() {
        assert_eq!((model().ram_mib, model().vcpus), (128, 2));
        let emulator = model().emulator_limits(&LIMITS);
        assert!(emulator.ram_mib > 128 && emulator.pids > LIMITS.pids, "{emulator:?}");
        assert_eq!(emulator.cpu_millis, LIMITS.cpu_millis);
    }

    #[test]
    fn the_fingerprint_covers_the_devices_that_the_machine_sees() {
        let same = Model { tsc_khz: 1, ..model() };
        assert_eq!(same.fingerprint(), model().fingerprint());
        for other in [Model { ram_mib: 129, ..model() }, Model { vcpus: 1, ..model() }] {
            assert_ne!(other.fingerprint(), model().fingerprint());
        }
        // A fixed length. A change of the devices must be intended, since earlier dumps can then no longer be loaded.
        assert_eq!(model().fingerprint().len(), 16);
    }

    #[test]
    fn a_restored_machine_has_the_same_devices_and_loads_no_kernel() {
        let (boot, restore) = (model().command(Start::Boot, "x"), model().command(Start::Restore, ""));
        let devices = model().devices();
        for command in [&boot, &restore] {
            assert!(command.windows(devices.len()).any(|words| words == devices));
        }
        assert!(boot.contains(&"-kernel".to_owned()) && !restore.contains(&"-kernel".to_owned()));
        let ram = restore.iter().find(|word| word.starts_with("memory-backend-file")).unwrap();
        assert!(ram.contains("readonly=on,rom=off") && ram.contains("share=off"), "{ram}");
    }
}
