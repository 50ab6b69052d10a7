//! Between the wire and the model: requests are checked as they come in, answers are written as they go out.

mod answers;
mod checks;
mod requests;
mod signal;

pub(crate) use answers::{
    ability, event, exec, exec_started, file_entry, image, key, sandbox, service, stats, stream_of,
    watch_event,
};
pub(crate) use checks::{check_path, check_text, name, parse_mode};
pub(crate) use requests::{
    create_options, exec_options, expires, key_scope, sandbox_state, service_spec, update_options,
};
pub(crate) use signal::parse_signal;
