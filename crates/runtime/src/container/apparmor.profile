# The AppArmor profile of Burrow's container sandboxes. The daemon loads it at its start.
#
# What a sandbox may do is decided by its namespaces, its capabilities and its system call filter. This profile is a second
# barrier: it allows no mount, no change of the profile, and neither signals nor ptrace between a sandbox and the host.
profile burrow-sandbox flags=(attach_disconnected,mediate_deleted) {
  capability,
  file,
  network,
  unix,

  signal (send,receive) peer=burrow-sandbox,
  # The daemon and the host's init stop sandboxes.
  signal (receive) peer=unconfined,

  ptrace (trace,read,tracedby,readby) peer=burrow-sandbox,
  # CRIU reads the processes of a sandbox that is hibernated.
  ptrace (tracedby,readby) peer=unconfined,

  deny /proc/kcore rwklx,
  deny /proc/kmem rwklx,
  deny /proc/mem rwklx,
  deny /proc/sysrq-trigger rwklx,
  deny /proc/sys/kernel/core_pattern wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/security/** rwklx,
  deny /sys/kernel/debug/** rwklx,
}
