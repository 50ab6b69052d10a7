//! Follows the changes of keys, without losing one.
//!
//! The log is the queue: a watcher remembers the number it has come to and reads what follows it; a commit only tells it
//! to look. So a slow watcher costs no RAM, misses nothing, and can go on later from the last number it saw.

use rusqlite::{Connection, params};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::KvItem;
use super::read::Change;
use crate::space::chain::Chain;
use crate::space::load::integer;
use crate::{MemoryError, View};

/// Events that wait for a watcher; it reads on from the log when there is room.
const EVENTS_WAITING_MAX: usize = 256;

/// Changes read at a time.
const CHANGES_MAX: usize = 512;

/// A key changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvEvent {
    /// Give it as `since` to go on after it.
    pub seq: u64,
    pub key: String,
    /// `None`: it was deleted. A key that expires makes no event; `expires_ms` said when it would.
    pub item: Option<KvItem>,
}

/// What was read of the log.
struct Stretch {
    events: Vec<KvEvent>,
    /// Everything up to here has been looked at.
    upto: u64,
    /// There may be more right now.
    more: bool,
}

impl View {
    /// Every change of the keys that begin with a text, after the number `since`, or from now on.
    ///
    /// Ends when the receiver is dropped or memory is closed; an error is the last thing it says.
    pub async fn kv_watch(
        &self,
        prefix: &str,
        since: Option<u64>,
    ) -> Result<mpsc::Receiver<Result<KvEvent, MemoryError>>, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::invalid("the watch", "the past does not change: leave out `as_of`"));
        }
        let from = match since {
            Some(since) => since,
            None => self.read(|reader| Ok(reader.chain().cut())).await?,
        };
        let (events, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let (view, prefix) = (self.clone(), prefix.to_owned());
        // It ends with its receiver, which is what owns it.
        tokio::spawn(async move {
            if let Err(error) = follow(&view, &prefix, from, &events).await {
                // Nobody may be listening any more.
                let _ = events.send(Err(error)).await;
            }
        });
        Ok(receiver)
    }
}

async fn follow(
    view: &View,
    prefix: &str,
    mut from: u64,
    events: &mpsc::Sender<Result<KvEvent, MemoryError>>,
) -> Result<(), MemoryError> {
    // Subscribed before the first look, so that a commit between a look and a wait is not slept through.
    let mut commits = view.changes();
    loop {
        let prefix = prefix.to_owned();
        let stretch =
            view.read(move |reader| look(reader.connection(), reader.chain(), &prefix, from)).await?;
        from = stretch.upto;
        for event in stretch.events {
            if events.send(Ok(event)).await.is_err() {
                return Ok(());
            }
        }
        if stretch.more {
            continue;
        }
        tokio::select! {
            () = events.closed() => return Ok(()),
            told = commits.recv() => match told {
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(MemoryError::Closed),
            },
        }
    }
}

fn look(connection: &Connection, chain: &Chain, prefix: &str, from: u64) -> Result<Stretch, MemoryError> {
    // What was committed after the chain was made is left for the next look, which is told of it.
    let cut = chain.cut();
    let mut statement = connection.prepare_cached(
        "SELECT seq, key, value, at_ms, created_ms, expires_ms, branch FROM kv
         WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![integer(from), integer(cut), integer(CHANGES_MAX as u64)])?;
    let mut stretch = Stretch { events: Vec::new(), upto: from, more: false };
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let change = Change::read(row)?;
        count += 1;
        stretch.upto = change.seq;
        if chain.sees(row.get(6)?, change.seq) && change.key.starts_with(prefix) {
            stretch.events.push(KvEvent {
                seq: change.seq,
                key: change.key.clone(),
                item: change.written()?,
            });
        }
    }
    stretch.more = count == CHANGES_MAX;
    if !stretch.more {
        stretch.upto = from.max(cut);
    }
    Ok(stretch)
}
