//! The speed of memory over HTTP: adding and searching with a hundred thousand and a million entries, forks, `chromadb`.
//!
//! One sandbox is filled in two steps and measured after each. Of the client, the figures include only one kept-alive
//! connection; they include embedding, both indices and the sync of the commit.

use std::time::{Duration, Instant};

use burrow_api::ForkSandbox;
use burrow_api::memory::{NewEntry, SearchMemory};
use burrow_client::{Client, Memory, MemorySelection};

use super::chroma::{self, Chroma};
use super::consolidated;
use super::texts::{Language, Random};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::figures::{Scale, create};
use crate::process::rss_kib;
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Entries per request while filling: the maximum of the API.
const BATCH: usize = 1000;
/// Depth of nested forks.
const DEPTH: u32 = 20;
/// Warm-up runs: page cache, prepared statements, the space's columns.
const WARM_UP: usize = 10;

const SEARCH_SMALL: Target = Target::Below { limit: 10.0 };
const SEARCH_LARGE: Target = Target::Below { limit: 60.0 };
const ADD_SMALL: Target = Target::Below { limit: 2.0 };
const FORK: Target = Target::RatioAtMost { limit: 1.2, wish: 1.0 };
const DEEP: Target = Target::RatioAtMost { limit: 1.5, wish: 1.0 };

/// A sandbox whose memory is being filled.
struct FilledSandbox {
    language: Language,
    memory: Memory,
    entries: usize,
}

/// The measurements at one size.
struct SizeMeasurements {
    adds: Samples,
    searches: Samples,
}

pub(in super::super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let client = daemon.client()?;
    let (empty, full) = (create(&client).await?, create(&client).await?);
    let memory = client.memory(MemorySelection::now(&full));
    let mut filled = FilledSandbox { language: Language::new(), memory, entries: 0 };
    let bulk = filled.fill(scale.memory_small).await?;
    let small = filled.measure(scale).await?;
    let (shallow, deep) = deep(&client, &full, &filled, scale).await?;
    let peer = peer(prepared, scale).await?;
    filled.fill(scale.memory_large).await?;
    let large = filled.measure(scale).await?;
    #[expect(clippy::cast_precision_loss, reason = "a size in KiB")]
    let ram_mib = rss_kib(daemon.pid())? as f64 / 1024.0;
    let mut forks = [Samples::default(), Samples::default()];
    for _ in 0..scale.forks {
        for (sandbox, samples) in [&empty, &full].into_iter().zip(&mut forks) {
            samples.push_ms(fork(&client, sandbox).await?.1);
        }
    }
    let [of_empty, of_full] = &forks;
    let note = "p50 of POST search at a million entries";
    let mut figures = against_peer(bulk, &small, peer.as_ref());
    figures.push(Figure::median("memory.search.million", &large.searches, "ms", note).target(SEARCH_LARGE));
    let note = "p50 of one durable add at a million entries";
    figures.push(Figure::median("memory.add.million", &large.adds, "ms", note));
    figures.push(Figure::new("memory.ram.million", ram_mib, "MiB", "the daemon's resident memory then"));
    let note = "p50 of forking, files only, with a million entries";
    figures.push(
        Figure::median("memory.fork", of_full, "ms", note).against("with no entries", of_empty).target(FORK),
    );
    let note = "p50 of POST search at a hundred thousand entries, 20 forks deep";
    figures.push(
        Figure::median("memory.search.deep", &deep, "ms", note)
            .against("before the first fork", &shallow)
            .target(DEEP),
    );
    figures.extend(consolidated::measure(&client, prepared).await?);
    Ok(figures)
}

fn against_peer(bulk: f64, small: &SizeMeasurements, peer: Option<&Chroma>) -> Vec<Figure> {
    let note = "p50 of POST search at a hundred thousand entries";
    let search = Figure::median("memory.search", &small.searches, "ms", note);
    let note = "p50 of one durable add at a hundred thousand entries";
    let add = Figure::median("memory.add", &small.adds, "ms", note);
    let bulk = Figure::new("memory.bulk", bulk, "1/s", "entries added per second, a thousand per request");
    match peer {
        Some(peer) => vec![
            search.against("chromadb query", &peer.search_ms).target(SEARCH_SMALL),
            add.against("chromadb add", &peer.add_ms).target(ADD_SMALL),
            bulk.against("chromadb add of a thousand", &peer.adds_per_second),
        ],
        None => vec![search.target(SEARCH_SMALL), add.target(ADD_SMALL), bulk],
    }
}

impl FilledSandbox {
    /// Adds entries up to this number, and returns the rate per second.
    #[expect(clippy::cast_precision_loss, reason = "counts of entries are small")]
    async fn fill(&mut self, upto: usize) -> Result<f64, BenchError> {
        let (first, begin) = (self.entries, Instant::now());
        let mut spent = Duration::ZERO;
        while self.entries < upto {
            let last = (self.entries + BATCH).min(upto);
            let batch: Vec<NewEntry> = (self.entries..last).map(|number| self.entry(number)).collect();
            let asked = Instant::now();
            self.memory.add(batch).await.map_err(BenchError::api("add entries"))?;
            spent += asked.elapsed();
            self.entries = last;
        }
        eprintln!("  {} entries after {:.0?}", self.entries, begin.elapsed());
        Ok((self.entries - first) as f64 / spent.as_secs_f64().max(1e-9))
    }

    fn entry(&self, number: usize) -> NewEntry {
        let session = Some(Language::session(number));
        NewEntry { session, ..NewEntry::note(self.language.entry(number)) }
    }

    async fn measure(&mut self, scale: &Scale) -> Result<SizeMeasurements, BenchError> {
        let searches = self.searches(&self.memory, scale).await?;
        let mut adds = Samples::default();
        for round in 0..WARM_UP + scale.memory_samples {
            let entry = self.entry(self.entries);
            let begin = Instant::now();
            self.memory.add(vec![entry]).await.map_err(BenchError::api("add an entry"))?;
            if round >= WARM_UP {
                adds.push_ms(begin.elapsed());
            }
            self.entries += 1;
        }
        Ok(SizeMeasurements { adds, searches })
    }

    async fn searches(&self, memory: &Memory, scale: &Scale) -> Result<Samples, BenchError> {
        let mut random = Random::new(99);
        let mut searches = Samples::default();
        for round in 0..WARM_UP + scale.memory_samples {
            let number = Language::pick(&mut random, self.entries);
            let query = self.language.question(number, &mut random);
            let asked = SearchMemory { query, ..SearchMemory::default() };
            let begin = Instant::now();
            let found = memory.search(&asked).await.map_err(BenchError::api("search"))?;
            if round >= WARM_UP {
                searches.push_ms(begin.elapsed());
            }
            if found.hits.is_empty() {
                let what = format!("nothing was found for `{}`", asked.query);
                return Err(BenchError::WrongAnswer { what });
            }
        }
        Ok(searches)
    }
}

/// Searches before the first fork and below the last, alternately.
async fn deep(
    client: &Client,
    sandbox: &str,
    filled: &FilledSandbox,
    scale: &Scale,
) -> Result<(Samples, Samples), BenchError> {
    let mut below = sandbox.to_owned();
    for depth in 0..DEPTH {
        below = fork(client, &below).await?.0;
        // A branch exists only once something was written to it.
        let note = NewEntry::note(format!("fork number {depth} was here"));
        let memory = client.memory(MemorySelection::now(&below));
        memory.add(vec![note]).await.map_err(BenchError::api("add an entry"))?;
    }
    let below = client.memory(MemorySelection::now(&below));
    let (mut shallow, mut deep) = (Samples::default(), Samples::default());
    for _ in 0..3 {
        shallow.extend(&filled.searches(&filled.memory, scale).await?);
        deep.extend(&filled.searches(&below, scale).await?);
    }
    Ok((shallow, deep))
}

/// The child, and the time to create it.
async fn fork(client: &Client, sandbox: &str) -> Result<(String, Duration), BenchError> {
    let request = ForkSandbox { files_only: true, ..ForkSandbox::default() };
    let begin = Instant::now();
    let forked = client.fork_sandbox(sandbox, &request).await.map_err(BenchError::api("fork a sandbox"))?;
    let elapsed = begin.elapsed();
    let child = forked.children.into_iter().next();
    let child = child.ok_or_else(|| BenchError::WrongAnswer { what: "a fork without a child".to_owned() })?;
    Ok((child.id, elapsed))
}

async fn peer(prepared: &BenchSetup, scale: &Scale) -> Result<Option<Chroma>, BenchError> {
    let Some(python) = prepared.chroma.clone() else {
        eprintln!("  no --chroma: chromadb is not compared with");
        return Ok(None);
    };
    let (state, scale) = (prepared.state.clone(), *scale);
    let measuring = tokio::task::spawn_blocking(move || {
        chroma::measure(&python, &state, &Language::new(), scale.memory_small, scale.memory_samples)
    });
    measuring.await.expect("measuring the peer does not panic").map(Some)
}
