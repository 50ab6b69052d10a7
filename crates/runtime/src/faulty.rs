//! A driver that fails on demand, for walking every failure.
