//! How activity is distinguished from idleness.

use std::time::Instant;

use crate::support::{Guest, patient, send_upload, shell, until};
use burrow_guest::protocol::{
    Activity, ExecInfo, ReadMode, Request, Service, ServiceRestart, StdinMode, WatchFiles,
};

async fn activity(guest: &Guest) -> Activity {
    guest.ask(Request::Activity).await
}

fn counts(activity: Activity) -> (u32, u32, u32) {
    (activity.execs_running, activity.execs_attached, activity.streams)
}

#[tokio::test]
async fn execs_and_streams_are_counted_while_they_are_open() {
    let guest = Guest::start();
    assert_eq!(counts(activity(&guest).await), (0, 0, 0));

    let mut start = shell("read line; echo $line");
    (start.stdin, start.attach) = (StdinMode::Pipe, None);
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    until(async || counts(activity(&guest).await) == (1, 0, 0)).await;

    let attached = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    assert_eq!(counts(activity(&guest).await), (1, 1, 1));
    let another = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    assert_eq!(counts(activity(&guest).await), (1, 1, 2));
    let watched = WatchFiles { path: guest.directory.path().to_str().unwrap().to_owned(), recursive: false };
    let mut watch = guest.open(&Request::Watch(watched)).await;
    let () = patient(watch.reply()).await.unwrap();
    assert_eq!(counts(activity(&guest).await), (1, 1, 3));

    drop((attached, another, watch));
    until(async || counts(activity(&guest).await) == (1, 0, 0)).await;
    let mut feed = guest.open(&Request::ExecStdin { exec, close: true }).await;
    send_upload(&mut feed, b"done\n").await;
    let () = patient(feed.reply()).await.unwrap();
    until(async || counts(activity(&guest).await) == (0, 0, 0)).await;
}

#[tokio::test]
async fn a_service_does_not_count_as_activity() {
    let service = Service {
        name: "chatter".to_owned(),
        argv: ["sh", "-c", "while echo tick; do sleep 0.01; done"].map(str::to_owned).into(),
        env: Default::default(),
        cwd: None,
        user: None,
        restart: ServiceRestart::Always,
    };
    let guest = Guest::start_with_services(vec![service]);
    until(async || activity(&guest).await.services_running == 1).await;
    // It writes all the time, and yet the time since the last activity grows.
    until(async || activity(&guest).await.last_io_ms >= 300).await;
    assert_eq!(counts(activity(&guest).await), (0, 0, 0));
}

#[tokio::test]
async fn input_and_output_count_as_activity() {
    let guest = Guest::start();
    let mut start = shell("while read line; do :; done; echo end");
    (start.stdin, start.attach) = (StdinMode::Pipe, None);
    let exec = start.exec.clone();
    let _: ExecInfo = guest.ask(Request::ExecStart(start)).await;
    for close in [false, true] {
        until(async || activity(&guest).await.last_io_ms >= 200).await;
        let before = Instant::now();
        let mut feed = guest.open(&Request::ExecStdin { exec: exec.clone(), close }).await;
        send_upload(&mut feed, b"line\n").await;
        let () = patient(feed.reply()).await.unwrap();
        let since = activity(&guest).await.last_io_ms;
        // The agent subtracts two whole milliseconds, so its result may be one more than the time that has passed.
        assert!(u128::from(since) <= before.elapsed().as_millis() + 1, "{since} ms");
    }
}
