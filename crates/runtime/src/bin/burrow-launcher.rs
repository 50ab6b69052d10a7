//! The launcher role as a program of its own, for this crate's tests and benchmarks; `burrow` has it built in.

fn main() {
    burrow_runtime::container::launcher_main()
}
