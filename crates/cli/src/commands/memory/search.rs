//! `burrow memory search`: entries that match a query, best first.

use burrow_api::defaults;
use burrow_api::memory::{ArmState, MemoryHit, SearchMemory, SearchResult, SearchWeights};

use super::flags::{FilterFlags, SearchFlags};
use super::show::{self, date, excerpt};
use crate::commands::prelude::*;

/// Width of the columns before the text of a hit: score, date, kind, id, space, and the gaps between them.
const COLUMNS_WIDTH: usize = 72;

/// Search entries, best matches first
///
/// The search combines words, meaning and neighbours; standard error names an arm that was not available. Scores are
/// from 0 to 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory search web 'where is the deploy key'
  burrow memory search web postgres --kind decision --since 30d --why
  burrow memory search web 'failing test' --meta target=install -n 3 --json
  burrow memory search web 'api key' --as-of before-upgrade
  burrow memory forget web $(burrow memory search web 'old office' -q)")]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    target: SearchFlags,
    /// Words, a question, or a whole message
    query: String,
    /// Maximum number of hits
    #[arg(short = 'n', long, default_value_t = defaults::MEMORY_HITS, value_parser = clap::value_parser!(u32).range(1..=i64::from(defaults::MEMORY_HITS_MAX)))]
    limit: u32,
    /// Show why each hit was found, by arm
    #[arg(long)]
    why: bool,
    /// Print ids only
    #[arg(short = 'q', long, conflicts_with_all = ["json", "why"])]
    quiet: bool,
    /// Only search this space: `own`, or an attached space; may be repeated
    #[arg(long = "space", value_name = "SPACE")]
    spaces: Vec<String>,
    /// Half-life of the recency score, e.g. 30d
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    half_life: Option<Duration>,
    /// Only hits with at least this score
    #[arg(long, value_name = "SCORE", value_parser = super::arguments::share)]
    min_score: Option<f32>,
    /// Weight of an arm, e.g. words=1,meaning=0.5; also neighbours, recency, importance
    #[arg(long, value_name = "ARM=WEIGHT", value_delimiter = ',', value_parser = weight)]
    weights: Vec<(String, f32)>,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    format: Format,
}

fn place<'w>(weights: &'w mut SearchWeights, arm: &str) -> Option<&'w mut Option<f32>> {
    Some(match arm {
        "words" | "lexical" => &mut weights.lexical,
        "meaning" | "vector" => &mut weights.vector,
        "neighbours" => &mut weights.neighbours,
        "recency" => &mut weights.recency,
        "importance" => &mut weights.importance,
        _ => return None,
    })
}

fn weight(text: &str) -> Result<(String, f32), String> {
    let bad = || format!("`{text}` is not ARM=WEIGHT, such as words=1 or meaning=0.5");
    let (arm, weight) = text.split_once('=').ok_or_else(bad)?;
    place(&mut SearchWeights::default(), arm).ok_or_else(bad)?;
    match weight.parse::<f32>() {
        Ok(weight) if (0.0..=10.0).contains(&weight) => Ok((arm.to_owned(), weight)),
        _ => Err(format!("{}, from 0 to 10", bad())),
    }
}

fn weights(given: &[(String, f32)]) -> Option<SearchWeights> {
    let mut weights = SearchWeights::default();
    for (arm, weight) in given {
        *place(&mut weights, arm)? = Some(*weight);
    }
    Some(weights).filter(|_| !given.is_empty())
}

pub(super) async fn run(ctx: &Context, args: SearchArgs) -> Result<(), Stop> {
    let request = SearchMemory {
        query: args.query,
        limit: Some(args.limit),
        filter: args.filter.given(),
        spaces: args.spaces,
        half_life_seconds: args.half_life.map(|time| time.as_secs()),
        weights: weights(&args.weights),
        include_cold: args.filter.cold,
        min_score: args.min_score,
        explain: args.why || args.format.json,
    };
    let found = args.target.memory(ctx)?.search(&request).await;
    let found = found.or_fail(|| format!("could not search the memory of `{}`", args.target.of))?;
    if args.format.json {
        return print::json::pretty(&found);
    }
    print::notes(show::missing_arms(&found.arms));
    if args.quiet {
        return print::lines(found.hits.iter().map(|hit| &hit.entry.id));
    }
    print::data(&shown(&found, args.why, show::text_width(COLUMNS_WIDTH)))?;
    if args.why {
        print::note(arms(&found));
    }
    Ok(())
}

fn shown(found: &SearchResult, why: bool, width: usize) -> String {
    let mut header = vec!["SCORE", "DATE", "KIND", "ID"];
    // The column is useless if all hits are in one space.
    let several = found.hits.iter().any(|hit| hit.space != found.hits[0].space);
    if several {
        header.push("SPACE");
    }
    header.push("TEXT");
    let rows: Vec<_> = found.hits.iter().map(|hit| row(hit, several, width)).collect();
    let table = table::render(&header, &rows);
    if !why {
        return table;
    }
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, hit) in lines.zip(&found.hits) {
        text.push_str(&format!("{line}\n       {}\n", reasons(hit)));
    }
    text
}

fn row(hit: &MemoryHit, several: bool, width: usize) -> Vec<String> {
    let entry = &hit.entry;
    let mut row = vec![format!("{:.2}", hit.score), date(entry.at_ms), entry.kind.clone(), entry.id.clone()];
    if several {
        row.push(hit.space.clone());
    }
    row.push(excerpt(&entry.text, width));
    row
}

/// `words 1st (deploy, key), meaning 2nd 0.61; recent 0.99, importance 0.90`
fn reasons(hit: &MemoryHit) -> String {
    let why = &hit.why;
    let mut found = Vec::new();
    if let Some(words) = &why.lexical {
        let terms = match words.terms.is_empty() {
            true => String::new(),
            false => format!(" ({})", escape(&words.terms.join(", "))),
        };
        found.push(format!("words {}{terms}", ordinal(words.rank)));
    }
    if let Some(meaning) = &why.vector {
        found.push(format!("meaning {} {:.2}", ordinal(meaning.rank), meaning.cosine));
    }
    if let Some(neighbours) = &why.neighbours {
        found.push(format!("neighbours {:.2}", neighbours.score));
    }
    let mut text = format!(
        "{}; recency {:+.2}, importance {:+.2}",
        if found.is_empty() { "no arm".to_owned() } else { found.join(", ") },
        why.recency,
        why.importance
    );
    if why.validity < 1.0 {
        text.push_str(&format!(", validity {:.2}", why.validity));
    }
    match hit.collapsed.len() {
        0 => {}
        1 => text.push_str("; 1 similar entry is not shown"),
        more => text.push_str(&format!("; {more} similar entries are not shown")),
    }
    text
}

fn ordinal(rank: u64) -> String {
    let ending = match (rank % 10, rank % 100) {
        (1, tens) if tens != 11 => "st",
        (2, tens) if tens != 12 => "nd",
        (3, tens) if tens != 13 => "rd",
        _ => "th",
    };
    format!("{rank}{ending}")
}

fn arms(found: &SearchResult) -> String {
    let took: Vec<_> = found
        .arms
        .iter()
        .filter(|report| matches!(report.state, ArmState::Took | ArmState::Partial))
        .map(|report| escape(show::arm_name(&report.arm)))
        .collect();
    format!(
        "arms: {}; {} entries searched in {:.1} ms",
        took.join(", "),
        found.searched,
        found.took_us as f64 / 1_000.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::memory::{LexicalWhy, SearchWhy, VectorWhy};

    fn hit(id: &str, space: &str, score: f32) -> MemoryHit {
        MemoryHit {
            entry: show::example(id, "the \u{1b}[2Jdeploy key\nis on db-2"),
            space: space.to_owned(),
            score,
            why: SearchWhy {
                lexical: Some(LexicalWhy {
                    rank: 1,
                    score: 3.0,
                    terms: vec!["deploy".to_owned(), "key".to_owned()],
                }),
                vector: Some(VectorWhy { rank: 12, cosine: 0.61 }),
                neighbours: None,
                recency: 0.05,
                importance: 0.1,
                validity: 1.0,
            },
            collapsed: vec!["mem9".to_owned()],
        }
    }

    fn found(hits: Vec<MemoryHit>) -> SearchResult {
        SearchResult { hits, arms: Vec::new(), searched: 3, took_us: 1_500 }
    }

    #[test]
    fn a_hit_is_score_date_kind_id_and_one_escaped_line() {
        let text = shown(&found(vec![hit("mem1", "own", 0.821)]), false, 40);
        assert_eq!(
            text,
            "SCORE  DATE              KIND  ID    TEXT\n\
             0.82   2026-11-15 02:39  note  mem1  the \\x1b[2Jdeploy key is on db-2\n"
        );
        let text = shown(&found(vec![hit("mem1", "own", 0.8), hit("mem2", "team", 0.7)]), false, 40);
        assert!(text.lines().next().unwrap().contains("SPACE") && text.contains("team"), "{text}");
        assert_eq!(shown(&found(Vec::new()), true, 40), "SCORE  DATE  KIND  ID  TEXT\n");
    }

    #[test]
    fn why_shows_each_arm_below_its_hit() {
        let text = shown(&found(vec![hit("mem1", "own", 0.8)]), true, 40);
        assert_eq!(
            text.lines().nth(2).unwrap(),
            "       words 1st (deploy, key), meaning 12th 0.61; recency +0.05, importance +0.10; 1 similar entry is not shown"
        );
    }

    #[test]
    fn weights_are_given_by_arm() {
        assert_eq!(weight("meaning=0.5").unwrap(), ("meaning".to_owned(), 0.5));
        for bad in ["meaning", "meaning=11", "sense=1", "words=x"] {
            assert!(weight(bad).is_err(), "{bad}");
        }
        let weights = weights(&[("words".to_owned(), 1.0), ("recency".to_owned(), 0.0)]).unwrap();
        assert_eq!((weights.lexical, weights.recency, weights.vector), (Some(1.0), Some(0.0), None));
    }

    #[test]
    fn ranks_have_ordinal_endings() {
        let read: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal).into();
        assert_eq!(read, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]);
    }
}
