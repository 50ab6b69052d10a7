//! The egress process by itself, for this crate's tests.

fn main() {
    burrow_egress::process::main(burrow_egress::process::confine);
}
