//! A network without a kernel, for simulation.
