//! A daemon with a thousand sleeping sandboxes and one without: the cost of lists and creates in each, alternately.

use std::time::{Duration, Instant};

use burrow_client::{Client, PageQuery, SandboxQuery};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{Scale, create, greet};
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::process::rss_kib;
use crate::report::{Figure, Target};
use crate::samples::Samples;

const TARGET: Target = Target::RatioAtMost { limit: 1.3, wish: 1.3 };
/// Sandboxes that are awake in both, which is also the length of the listed page.
const AWAKE: u32 = 20;
/// Sandboxes that are put to sleep at once.
const AT_ONCE: usize = 3;
/// Warm-up rounds.
const WARM_UP: u32 = 3;
/// Lets the warm pool refill after creates, so that it is not empty for any of them.
const REFILL: Duration = Duration::from_millis(150);

pub(super) async fn measure(
    crowded: &Daemon,
    quiet: &Daemon,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let (many, few) = (crowded.client()?, quiet.client()?);
    let begin = Instant::now();
    stream::iter(0..scale.sleepers)
        .map(|_| {
            let client = &many;
            async move {
                let sandbox = create(client).await?;
                let slept = client.hibernate_sandbox(&sandbox).await;
                slept.map(drop).map_err(BenchError::api("hibernate a sandbox"))
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    eprintln!("{} sandboxes sleep, after {:.0} s", scale.sleepers, begin.elapsed().as_secs_f64());
    for client in [&many, &few] {
        for _ in 0..AWAKE {
            create(client).await?;
        }
    }
    let ([mut list, mut list_floor], [mut made, mut made_floor]) = <([Samples; 2], [Samples; 2])>::default();
    for round in 0..WARM_UP + scale.lists {
        let times = [page(&many).await?, page(&few).await?];
        if round >= WARM_UP {
            [&mut list, &mut list_floor].into_iter().zip(times).for_each(|(to, time)| to.push_ms(time));
        }
    }
    for round in 0..WARM_UP + scale.creates {
        tokio::time::sleep(REFILL).await;
        let times = [new(&many).await?, new(&few).await?];
        if round >= WARM_UP {
            [&mut made, &mut made_floor].into_iter().zip(times).for_each(|(to, time)| to.push_ms(time));
        }
    }
    let rss = [rss_kib(crowded.pid())?, rss_kib(quiet.pid())?].map(mib);
    Ok(figures([&list, &list_floor], [&made, &made_floor], rss[0] - rss[1], scale.sleepers))
}

async fn page(client: &Client) -> Result<Duration, BenchError> {
    let (query, page) = (SandboxQuery::default(), PageQuery { cursor: None, limit: Some(AWAKE) });
    let begin = Instant::now();
    let answer = client.list_sandboxes(&query, &page).await.map_err(BenchError::api("list sandboxes"))?;
    let elapsed = begin.elapsed();
    if answer.items.len() != AWAKE as usize {
        return Err(BenchError::WrongAnswer { what: format!("a page of {}", answer.items.len()) });
    }
    Ok(elapsed)
}

/// Time from requesting a sandbox to having used it.
async fn new(client: &Client) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let sandbox = create(client).await?;
    greet(client, &sandbox).await?;
    Ok(begin.elapsed())
}

fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "memory in KiB is far below 2^52")]
    let kib = kib as f64;
    kib / 1024.0
}

fn figures(lists: [&Samples; 2], creates: [&Samples; 2], grown_mib: f64, sleepers: u32) -> Vec<Figure> {
    let none = "a daemon without them";
    vec![
        Figure::new("sleepers", f64::from(sleepers), "", "hibernated sandboxes of the daemon measured below"),
        Figure::median("sleepers_list", lists[0], "ms", "p50 of GET sandboxes, a page of 20")
            .against(none, lists[1])
            .target(TARGET),
        Figure::median("sleepers_create", creates[0], "ms", "p50 from a create to the end of its first exec")
            .against(none, creates[1])
            .target(TARGET),
        Figure::new("sleepers_daemon_rss", grown_mib, "MiB", "what the daemon has more than the one without"),
    ]
}
