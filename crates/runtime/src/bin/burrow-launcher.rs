//! The launcher role as a separate program, for this crate's tests and benchmarks; `burrow` contains it.

fn main() {
    burrow_runtime::container::launcher_main()
}
