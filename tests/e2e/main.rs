//! End-to-end tests: the real binary, real namespaces, real btrfs.
//!
//! They need root and what `scripts/test.sh` prepares (a btrfs pool with the default image, the static guest); `make
//! test` does both. A test that lacks something fails and says so.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod asking;
mod belongings;
mod harness;
mod http;
mod inventory;
mod island;
mod ssh_client;
mod survivor;
mod terminal;
mod upstream;

mod api;
mod audit;
mod backup;
mod basics;
mod cli;
mod code;
mod completion;
mod crash;
mod daemon;
mod dead_guest;
mod diff;
mod dockerfiles;
mod egress;
mod execs;
mod files;
mod full_disk;
mod host;
mod host_sets;
mod images;
mod keys;
mod lives;
mod memory;
mod memory_blobs;
mod memory_kv;
mod memory_moving;
mod memory_skills;
mod merge;
mod microvm_disks;
mod microvms;
mod mirrors;
mod moving;
mod own_listener;
mod ports;
mod race;
mod rates;
mod recovery;
mod sandbox_world;
mod secret_canary;
mod secret_clients;
mod secret_headers;
mod secret_placeholders;
mod secrets;
mod services;
mod sleep;
mod sleep_crash;
mod snapshots;
mod ssh;
mod ssh_files;
mod ssh_keys;
mod ssh_shells;
mod survival;
mod talking;
mod volumes;
mod workloads;
mod zoo;
