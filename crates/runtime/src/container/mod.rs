//! Namespaces, seccomp and cgroups.
