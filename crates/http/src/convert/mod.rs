//! Converts between the API and the model: validates requests, and writes responses.

mod answers;
mod audit;
mod checks;
mod diff;
mod images;
mod lineage;
mod memory;
mod merge;
mod network;
mod race;
mod requests;
mod secrets;
mod sleep;
mod snapshots;
mod volumes;

pub use answers::{
    ability, event, exec, exec_report, file_entry, key, output_stream, sandbox, service, stats, watch_event,
};
pub use audit::{audit_consistency, audit_event, audit_inclusion};
pub use burrow_guest::protocol::{parse_signal, signal_name};
pub use checks::{check_path, check_text, image_name, image_reference, name, parse_mode, user};
pub use diff::{diff, diff_options};
pub use images::{check_image_config, image, image_detail};
pub use lineage::{garbage_item, tree_node};
pub use memory::{
    added_entry, artifact, bounded, check_description, check_labels, check_query, conditions,
    consolidate_plan, consolidated, context_block, context_request, entry_change, erased, forgotten, found,
    kv_event, kv_item, kv_operation, kv_version, memory_change, memory_check, memory_entry, memory_id,
    memory_session, memory_spec, memory_stats, memory_version, merge_options, merged, messages, new_entry,
    new_skill, outcome, related, search, skill, space, space_name, stored_turn, which,
};
pub use merge::{merge_sandbox_options, merged_sandbox, past_merge};
pub use network::{
    denied, egress_counters, egress_entry, fault, network, network_change, network_mode, network_policy,
    protocol, request_places,
};
pub use race::{merge_race_options, race, race_spec};
pub use requests::{
    check_variables, create_options, exec_options, expires, key_scope, sandbox_state, service_spec,
    update_options,
};
pub use secrets::{secret, secret_spec};
pub use sleep::{rotate_policy, sleep_policy};
pub use snapshots::{
    fork_options, from_snapshot, snapshot, snapshot_kind_of, snapshot_listed, snapshot_options,
};
pub use volumes::{mount_requests, volume, volume_entry, volume_options, volume_snapshot};
