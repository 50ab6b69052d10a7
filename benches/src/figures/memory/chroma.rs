//! The peer: `chromadb`, with the same texts and the same vectors, so that it need not embed.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use burrow_memory::embed::{BATCH_MAX, BuiltIn, Embedder as _};
use serde::Deserialize;

use super::texts::{Language, Random};
use crate::error::BenchError;
use crate::process::run;
use crate::samples::Samples;

/// Adds in batches, then one by one, then searches; prints how long each took.
const PROGRAM: &str = r#"
import array, json, sys, time
import chromadb
folder, dims, entries, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def vectors(name):
    flat = array.array("f")
    with open(f"{folder}/{name}", "rb") as file: flat.frombytes(file.read())
    return [flat[at:at + dims].tolist() for at in range(0, len(flat), dims)]
texts = open(f"{folder}/texts").read().splitlines()
known, asked = vectors("known"), vectors("asked")
client = chromadb.PersistentClient(path=f"{folder}/chroma", settings=chromadb.Settings(anonymized_telemetry=False))
held = client.create_collection("bench", embedding_function=None, metadata={"hnsw:space": "cosine"})
def add(first, last):
    ids = [str(number) for number in range(first, last)]
    held.add(ids=ids, embeddings=known[first:last], documents=texts[first:last])
begin = time.perf_counter()
for first in range(0, entries, 1000): add(first, min(first + 1000, entries))
bulk = entries / (time.perf_counter() - begin)
single, queries = [], []
for number in range(entries, entries + samples):
    begin = time.perf_counter(); add(number, number + 1); single.append((time.perf_counter() - begin) * 1e3)
for vector in asked:
    begin = time.perf_counter()
    held.query(query_embeddings=[vector], n_results=10, include=["documents", "distances"])
    queries.append((time.perf_counter() - begin) * 1e3)
print(json.dumps({"bulk": bulk, "single": single, "queries": queries}))
"#;

#[derive(Debug, Deserialize)]
struct PeerTimes {
    bulk: f64,
    single: Vec<f64>,
    queries: Vec<f64>,
}

/// The measured times of the peer.
#[derive(Debug)]
pub(super) struct Chroma {
    pub(super) adds_per_second: Samples,
    pub(super) add_ms: Samples,
    pub(super) search_ms: Samples,
}

/// Blocks for minutes, at a hundred thousand entries.
pub(super) fn measure(
    python: &Path,
    state: &Path,
    language: &Language,
    entries: usize,
    samples: usize,
) -> Result<Chroma, BenchError> {
    let folder = tempfile::Builder::new()
        .prefix("bench-chroma-")
        .tempdir_in(state)
        .map_err(BenchError::io("make a folder in", state.display()))?;
    let embedder = BuiltIn::new();
    let texts: Vec<String> = (0..entries + samples).map(|number| language.entry(number)).collect();
    let mut random = Random::new(99);
    let questions: Vec<String> =
        (0..samples).map(|_| language.question(Language::pick(&mut random, entries), &mut random)).collect();
    write_vectors(&embedder, &texts, &folder.path().join("known"))?;
    write_vectors(&embedder, &questions, &folder.path().join("asked"))?;
    let path = folder.path().join("texts");
    fs::write(&path, texts.join("\n")).map_err(BenchError::io("write", path.display()))?;
    let printed = run(Command::new(python).args(["-c", PROGRAM]).arg(folder.path()).args([
        embedder.model().dims.to_string(),
        entries.to_string(),
        samples.to_string(),
    ]))?;
    let answer: PeerTimes = serde_json::from_str(printed.lines().last().unwrap_or_default())
        .map_err(|source| BenchError::WrongAnswer { what: format!("chromadb's answer: {source}") })?;
    let collect = |values: &[f64]| {
        let mut samples = Samples::default();
        values.iter().for_each(|value| samples.push(*value));
        samples
    };
    Ok(Chroma {
        adds_per_second: collect(&[answer.bulk]),
        add_ms: collect(&answer.single),
        search_ms: collect(&answer.queries),
    })
}

fn write_vectors(embedder: &BuiltIn, texts: &[String], path: &Path) -> Result<(), BenchError> {
    let failed = || BenchError::io("write", path.display());
    let mut file = std::io::BufWriter::new(fs::File::create(path).map_err(failed())?);
    for batch in texts.chunks(BATCH_MAX) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        let vectors = embedder
            .embed(&batch)
            .map_err(|error| BenchError::WrongAnswer { what: format!("the built-in embedder: {error}") })?;
        for number in vectors.iter().flatten() {
            file.write_all(&number.to_le_bytes()).map_err(failed())?;
        }
    }
    file.flush().map_err(failed())
}
