//! `burrow files`: reads and changes single files of a sandbox.

use burrow_api::{
    ChangeMode, FileEntry, FileKind, MakeDirectory, MoveFile, OutputStream, WatchEvent, WatchEventKind,
};
use burrow_client::{DownloadRange, UploadBody, UploadOptions, WatchOptions};

use crate::commands::prelude::*;
use crate::print::process_output::ProcessOutput;

/// Read and change single files of a sandbox
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow files ls web /srv
  burrow files cat web /etc/os-release
  echo hello | burrow files write web /srv/index.html --mode 644
  burrow files watch web /srv --recursive --json")]
pub(crate) enum FilesCommand {
    /// List a directory
    Ls {
        sandbox: String,
        #[arg(default_value = "/")]
        path: String,
        /// Depth of the listing
        #[arg(long, default_value_t = 1)]
        depth: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Print a file
    Cat(CatArgs),
    /// Write standard input to a file, atomically
    Write(WriteArgs),
    /// Remove files or directories
    Rm {
        /// Remove directories with their contents
        #[arg(short = 'r', long)]
        recursive: bool,
        sandbox: String,
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Move or rename a file or directory
    Mv { sandbox: String, from: String, to: String },
    /// Create directories
    Mkdir {
        /// Create missing parents; an existing directory is no error
        #[arg(short = 'p', long)]
        parents: bool,
        /// Octal permission bits
        #[arg(short = 'm', long, value_parser = parse::mode)]
        mode: Option<String>,
        /// Owner
        #[arg(short = 'u', long)]
        user: Option<String>,
        sandbox: String,
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Change permission bits
    Chmod {
        sandbox: String,
        /// Octal permission bits, e.g. 755
        #[arg(value_parser = parse::mode)]
        mode: String,
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Show the type, size, owner and mode of a path
    Stat {
        /// Follow symbolic links
        #[arg(short = 'L', long)]
        follow: bool,
        sandbox: String,
        path: String,
        #[command(flatten)]
        format: Format,
    },
    /// Watch a path for changes
    Watch {
        /// Include subdirectories
        #[arg(short = 'r', long)]
        recursive: bool,
        sandbox: String,
        path: String,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Offset of the first byte
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Maximum number of bytes
    #[arg(long)]
    length: Option<u64>,
    /// Print control characters to the terminal unescaped
    #[arg(long)]
    raw: bool,
    sandbox: String,
    path: String,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Octal permission bits
    #[arg(short = 'm', long, value_parser = parse::mode)]
    mode: Option<String>,
    /// Owner
    #[arg(short = 'u', long)]
    user: Option<String>,
    /// Create missing parent directories
    #[arg(short = 'p', long)]
    parents: bool,
    /// Write at this offset of the existing file instead of replacing it
    #[arg(long)]
    offset: Option<u64>,
    /// Sync the file to disk before the command ends
    #[arg(long)]
    sync: bool,
    sandbox: String,
    path: String,
}

pub(crate) async fn run(ctx: &Context, command: FilesCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        FilesCommand::Ls { sandbox, path, depth, format } => {
            ls(&client, &sandbox, &path, depth, format).await
        }
        FilesCommand::Cat(args) => cat(&client, args).await,
        FilesCommand::Write(args) => write(&client, args).await,
        FilesCommand::Rm { recursive, sandbox, paths } => {
            for path in paths {
                let removed = client.remove_file(&sandbox, &path, recursive).await;
                removed.or_fail(|| format!("could not remove `{sandbox}:{path}`"))?;
            }
            Ok(())
        }
        FilesCommand::Mv { sandbox, from, to } => {
            let what = || format!("could not move `{sandbox}:{from}` to `{to}`");
            let request = MoveFile { from: from.clone(), to: to.clone() };
            client.move_file(&sandbox, &request).await.or_fail(what).map(drop)
        }
        FilesCommand::Mkdir { parents, mode, user, sandbox, paths } => {
            for path in paths {
                let what = || format!("could not create directory `{sandbox}:{path}`");
                let request =
                    MakeDirectory { path: path.clone(), parents, mode: mode.clone(), user: user.clone() };
                client.make_directory(&sandbox, &request).await.or_fail(what)?;
            }
            Ok(())
        }
        FilesCommand::Chmod { sandbox, mode, paths } => {
            for path in paths {
                let what = || format!("could not change the mode of `{sandbox}:{path}`");
                let request = ChangeMode { path: path.clone(), mode: mode.clone() };
                client.change_mode(&sandbox, &request).await.or_fail(what)?;
            }
            Ok(())
        }
        FilesCommand::Stat { follow, sandbox, path, format } => {
            let entry = client.stat(&sandbox, &path, follow).await;
            let entry = entry.or_fail(|| format!("could not stat `{sandbox}:{path}`"))?;
            format.show(&entry, |entry| show(std::slice::from_ref(entry), |entry| &entry.path))
        }
        FilesCommand::Watch { recursive, sandbox, path, format } => {
            watch(&client, &sandbox, &path, WatchOptions { recursive }, format).await
        }
    }
}

async fn ls(client: &Client, sandbox: &str, path: &str, depth: u32, format: Format) -> Result<(), Stop> {
    let list = client.list_files(sandbox, path, depth).await;
    let entries = list.or_fail(|| format!("could not list `{sandbox}:{path}`"))?.entries;
    // Below the first level, a bare name would be ambiguous.
    format.show(&entries, |entries| show(entries, |entry| if depth > 1 { &entry.path } else { &entry.name }))
}

fn show(entries: &[FileEntry], name: impl Fn(&FileEntry) -> &String) -> Result<(), Stop> {
    let header = &["MODE", "USER", "GROUP", "SIZE", "MODIFIED", "NAME"];
    table::print(header, entries, |entry| row(entry, name(entry)))
}

fn row(entry: &FileEntry, name: &str) -> Vec<String> {
    let kind = match entry.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Other => '?',
    };
    let shown = match &entry.target {
        Some(target) => format!("{name} -> {target}"),
        None => name.to_owned(),
    };
    vec![
        format!("{kind}{}", entry.mode),
        entry.user.clone().unwrap_or_else(|| entry.uid.to_string()),
        entry.group.clone().unwrap_or_else(|| entry.gid.to_string()),
        entry.size.to_string(),
        quantity::timestamp(u64::try_from(entry.modified_ms).unwrap_or_default()),
        shown,
    ]
}

async fn cat(client: &Client, args: CatArgs) -> Result<(), Stop> {
    let what = || format!("could not read `{}:{}`", args.sandbox, args.path);
    let part = args.offset > 0 || args.length.is_some();
    let end = args.length.map(|length| args.offset.saturating_add(length));
    let range = part.then_some(DownloadRange { start: args.offset, end });
    if args.length == Some(0) {
        return Ok(());
    }
    let mut download = client.download(&args.sandbox, &args.path, range).await.or_fail(what)?;
    // A file may contain control characters; a pipe gets the bytes unchanged.
    let mut output = ProcessOutput::new(args.raw);
    while let Some(chunk) = download.bytes.chunk().await.or_fail(what)? {
        output.write(OutputStream::Stdout, &chunk)?;
    }
    output.finish()
}

async fn write(client: &Client, args: WriteArgs) -> Result<(), Stop> {
    let options = UploadOptions {
        mode: args.mode,
        user: args.user,
        parents: args.parents,
        offset: args.offset,
        sync: args.sync,
    };
    let body = UploadBody::from_reader(tokio::io::stdin(), None);
    let written = client.upload(&args.sandbox, &args.path, &options, body).await;
    written.or_fail(|| format!("could not write `{}:{}`", args.sandbox, args.path)).map(drop)
}

async fn watch(
    client: &Client,
    sandbox: &str,
    path: &str,
    options: WatchOptions,
    format: Format,
) -> Result<(), Stop> {
    let what = || format!("could not watch `{sandbox}:{path}`");
    let mut events = client.watch(sandbox, path, options).await.or_fail(what)?;
    while let Some(event) = events.next().await.or_fail(what)? {
        match event.kind == WatchEventKind::Ready && !format.json {
            true => print::note(format!("watching `{}`", escape(&event.path))),
            false => format.line(&event, change)?,
        }
    }
    Ok(())
}

fn change(event: &WatchEvent) -> String {
    let kind = print::json::word(event.kind);
    match &event.from {
        Some(from) => format!("{kind:<10}  {} -> {}", escape(from), escape(&event.path)),
        None => format!("{kind:<10}  {}", escape(&event.path)),
    }
}
