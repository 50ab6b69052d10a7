//! Machines without a kernel, for simulation.
