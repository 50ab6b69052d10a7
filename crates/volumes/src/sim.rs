//! Volumes without a file system, for simulation.
