//! One file per command: its arguments and its implementation.

/// Declares the subcommands of a command, each with the function that runs it, and a function `run` for all of them. A
/// command with `if "daemon"` does not exist in a program without that feature.
macro_rules! subcommands {
    ($(#[$about:meta])* $vis:vis enum $name:ident {
        $($(#[$attribute:meta])* $variant:ident($args:ty) $(if $feature:literal)? => $run:expr,)*
    }) => {
        #[derive(Debug, clap::Subcommand)]
        $(#[$about])*
        $vis enum $name {
            $($(#[cfg(feature = $feature)])? $(#[$attribute])* $variant($args),)*
        }

        $vis async fn run(ctx: &crate::context::Context, command: $name) -> Result<(), crate::failure::Stop> {
            match command {
                $($(#[cfg(feature = $feature)])? $name::$variant(args) => $run(ctx, args).await,)*
            }
        }
    };
}
pub(crate) use subcommands;

/// The names that most commands use.
mod prelude {
    pub(crate) use std::path::{Path, PathBuf};
    pub(crate) use std::time::Duration;

    pub(crate) use burrow_client::Client;
    pub(crate) use clap::{Args, Subcommand};

    pub(crate) use crate::context::Context;
    pub(crate) use crate::failure::{
        CODE_GENERAL, CODE_OWN_FAILURE, CODE_TIMED_OUT, Describe, Failure, OrFail, Stop, fail,
    };
    pub(crate) use crate::parse;
    pub(crate) use crate::print::escape::escape;
    pub(crate) use crate::print::{self, Format, ask, quantity, table};
    pub(crate) use crate::transfer::interrupt::unless_interrupted;
    pub(crate) use crate::transfer::progress::Progress;
}

pub(crate) mod artifact;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod code;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod cp;
pub(crate) mod create;
mod creation;
pub(crate) mod devcontainer;
pub(crate) mod diff;
#[cfg(feature = "daemon")]
pub(crate) mod doctor;
#[cfg(feature = "daemon")]
pub(crate) mod down;
pub(crate) mod egress;
pub(crate) mod env;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod export;
pub(crate) mod files;
mod flags;
pub(crate) mod fork;
pub(crate) mod gc;
pub(crate) mod help;
#[cfg(feature = "daemon")]
mod host;
pub(crate) mod image;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod key;
pub(crate) mod kill;
pub(crate) mod kv;
mod life;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod open;
mod pages;
pub(crate) mod port;
pub(crate) mod port_forward;
pub(crate) mod power;
pub(crate) mod ps;
pub(crate) mod race;
pub(crate) mod rename;
pub(crate) mod rm;
mod rollback;
pub(crate) mod run;
pub(crate) mod secret;
#[cfg(feature = "daemon")]
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod shell;
pub(crate) mod skill;
pub(crate) mod snapshot;
pub(crate) mod space;
pub(crate) mod ssh;
pub(crate) mod stats;
mod target;
pub(crate) mod tree;
#[cfg(feature = "daemon")]
pub(crate) mod up;
pub(crate) mod update;
pub(crate) mod version;
pub(crate) mod volume;
pub(crate) mod wait;
