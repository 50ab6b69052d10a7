//! The egress process as a separate program, for the tests of this crate.

fn main() {
    burrow_egress::process::main(burrow_egress::process::confine);
}
