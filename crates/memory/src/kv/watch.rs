//! Watches the changes of keys, without missing one.
//!
//! The log is the queue: a watcher remembers the last sequence number that it has read, and reads from there; a commit only
//! wakes it. So a slow watcher uses no RAM, misses nothing, and can continue later from the last number that it saw.
//!
//! An expiry is no row of the log: it is reported by the clock, after everything that the log contains up to that time. A watcher
//! that continues later receives the expiries since the last change that it saw a second time.

use std::time::Duration;

use rusqlite::{Connection, params};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::KvItem;
use super::read::{Change, find};
use crate::newest::links;
use crate::space::chain::Chain;
use crate::space::load::{integer, unsigned};
use crate::view::moment;
use crate::{MemoryError, View};

/// Events queued for a watcher; it continues to read the log when there is space.
const EVENTS_WAITING_MAX: usize = 256;

/// Changes read at a time.
const CHANGES_MAX: usize = 512;

/// Longest wait for the next expiry, because the host's clock may be changed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// A key changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvEvent {
    /// Pass it as `since` to continue after this event.
    pub seq: u64,
    pub key: String,
    pub change: KvChange,
}

/// The kind of change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum KvChange {
    Set(KvItem),
    Deleted,
    /// Its time to live ended.
    Expired {
        at_ms: u64,
    },
}

/// The position of a watcher.
#[derive(Clone, Copy, Debug)]
struct WatchPosition {
    /// The log was read up to this number.
    seq: u64,
    /// Expiries were reported up to this time and, at this time, up to this row.
    expired_ms: u64,
    expired_seq: u64,
}

/// The result of reading the log.
struct WatchBatch {
    events: Vec<KvEvent>,
    upto: WatchPosition,
    /// There may be more changes already.
    more: bool,
    /// The time until the next expiry.
    next_ms: Option<u64>,
}

impl View {
    /// Every change of the keys that begin with a prefix, after the number `since`, or from now on.
    ///
    /// Ends when the receiver is dropped or memory is closed; an error is the last event.
    pub async fn kv_watch(
        &self,
        prefix: &str,
        since: Option<u64>,
    ) -> Result<mpsc::Receiver<Result<KvEvent, MemoryError>>, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::invalid("the watch", "the past does not change: leave out `as_of`"));
        }
        let from = self.read(move |reader| {
            let (seq, expired_ms) = match since {
                Some(since) => (since, moment(reader.connection(), since)?.unwrap_or(0).min(reader.now_ms())),
                None => (reader.chain().cut(), reader.now_ms()),
            };
            Ok(WatchPosition { seq, expired_ms, expired_seq: u64::MAX })
        });
        let from = from.await?;
        let (events, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let (view, prefix) = (self.clone(), prefix.to_owned());
        // The task ends when its receiver is dropped or memory is closed.
        drop(tokio::spawn(async move {
            if let Err(error) = follow(&view, &prefix, from, &events).await {
                // The receiver may have been dropped.
                let _ = events.send(Err(error)).await;
            }
        }));
        Ok(receiver)
    }
}

async fn follow(
    view: &View,
    prefix: &str,
    mut from: WatchPosition,
    events: &mpsc::Sender<Result<KvEvent, MemoryError>>,
) -> Result<(), MemoryError> {
    // Subscribed before the first read, so that a commit between a read and a wait wakes the watcher.
    let mut commits = view.changes();
    loop {
        let prefix = prefix.to_owned();
        let stretch = view
            .read(move |reader| look(reader.connection(), reader.chain(), &prefix, from, reader.now_ms()))
            .await?;
        from = stretch.upto;
        for event in stretch.events {
            if events.send(Ok(event)).await.is_err() {
                return Ok(());
            }
        }
        if stretch.more {
            continue;
        }
        let expiry = async {
            match stretch.next_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms).min(SLEEP_MAX)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = events.closed() => return Ok(()),
            () = expiry => {}
            received = commits.recv() => match received {
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(MemoryError::Closed),
            },
        }
    }
}

fn look(
    connection: &Connection,
    chain: &Chain,
    prefix: &str,
    from: WatchPosition,
    now_ms: u64,
) -> Result<WatchBatch, MemoryError> {
    // Changes committed after the chain was built are left for the next read; their commit wakes the watcher.
    let cut = chain.cut();
    let mut statement = connection.prepare_cached(
        "SELECT seq, key, value, at_ms, created_ms, expires_ms, branch FROM kv
         WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![integer(from.seq), integer(cut), integer(CHANGES_MAX as u64)])?;
    let mut stretch = WatchBatch { events: Vec::new(), upto: from, more: false, next_ms: None };
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let change = Change::read(row)?;
        count += 1;
        stretch.upto.seq = change.seq;
        if chain.sees(row.get(6)?, change.seq) && change.key.starts_with(prefix) {
            let (seq, key) = (change.seq, change.key.clone());
            let change = change.written()?.map_or(KvChange::Deleted, KvChange::Set);
            stretch.events.push(KvEvent { seq, key, change });
        }
    }
    stretch.more = count == CHANGES_MAX;
    if !stretch.more {
        stretch.upto.seq = from.seq.max(cut);
        read_expired(connection, chain, prefix, now_ms, &mut stretch)?;
    }
    Ok(stretch)
}

/// The keys that expired since the last read, and the time of the next expiry.
fn read_expired(
    connection: &Connection,
    chain: &Chain,
    prefix: &str,
    now_ms: u64,
    stretch: &mut WatchBatch,
) -> Result<(), MemoryError> {
    let (cut, links) = (chain.cut(), links(chain));
    let mut statement = connection.prepare_cached(
        "SELECT seq, key, expires_ms, branch FROM kv WHERE expires_ms IS NOT NULL
         AND (expires_ms, seq) > (?1, ?2) AND expires_ms <= ?3 ORDER BY expires_ms, seq LIMIT ?4",
    )?;
    let WatchPosition { expired_ms, expired_seq, .. } = stretch.upto;
    let limit = integer(CHANGES_MAX as u64);
    let mut rows =
        statement.query(params![integer(expired_ms), integer(expired_seq), integer(now_ms), limit])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let (seq, at_ms) = (unsigned(row, 0)?, unsigned(row, 2)?);
        if seq > cut {
            return Ok(());
        }
        count += 1;
        (stretch.upto.expired_ms, stretch.upto.expired_seq) = (at_ms, seq);
        let key: String = row.get(1)?;
        if !chain.sees(row.get(3)?, seq) || !key.starts_with(prefix) {
            continue;
        }
        // Only if the key still had this value when it expired.
        if find(connection, &links, &key)?.is_some_and(|newest| newest.seq == seq) {
            stretch.events.push(KvEvent { seq: stretch.upto.seq, key, change: KvChange::Expired { at_ms } });
        }
    }
    stretch.more = count == CHANGES_MAX;
    let sql = "SELECT min(expires_ms) FROM kv WHERE expires_ms IS NOT NULL AND expires_ms > ?1";
    let next: Option<i64> =
        connection.prepare_cached(sql)?.query_row(params![integer(now_ms)], |row| row.get(0))?;
    stretch.next_ms = next.map(|next| u64::try_from(next).unwrap_or(u64::MAX).saturating_sub(now_ms).max(1));
    Ok(())
}
