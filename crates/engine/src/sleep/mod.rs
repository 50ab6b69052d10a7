//! Activity of sandboxes, and the policies that put them to sleep.

pub(crate) mod activity;
pub(crate) mod idle;
