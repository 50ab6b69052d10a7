//! Accepts connections and carries out the single request of each.

use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connections::OpenConnection;
use super::failure::{fail, invalid};
use super::wire::{Inbox, Outbox, WireError};
use super::{Agent, clock, exec, files, identity, machine, ports, services, trust, unacknowledged};
use crate::protocol::{
    Activity, ErrorCode, ExecInfo, FRAME_BYTES_MAX, Frame, GENERATION, Hello, Identity, Request, RequestError,
};

/// Connections open at once. An exec with an attached host uses one.
const CONNECTIONS_MAX: usize = 512;

/// From accepting until the whole request is read: the host sends it in its first packet.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long the agent reads the rest of an upload after the host has received the whole answer.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(2);

/// The longest [`Request::ExecWait`]; the host repeats the request.
const EXEC_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Characters of each command line, in a list of execs that would not fit otherwise.
const ARGV_CUT_CHARS: usize = 40;

/// Bytes of an answer around a list.
const LIST_SPARE_BYTES: usize = 64;

/// The time for the last answer to be sent before PID 1, and with it the network, ends.
const LAST_ANSWER_WAIT_MAX: Duration = Duration::from_millis(200);

/// Serves until the sandbox has been shut down.
pub(super) async fn run(agent: Rc<Agent>, listener: TcpListener) {
    let connections = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let serve = async {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                // A client gave up while it waited in the queue, which is no longer than the backlog.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    // Probably out of descriptors: wait until others are closed.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            if peer.ip().to_canonical() != agent.boot.accept_from.to_canonical() {
                continue;
            }
            let Ok(permit) = std::sync::Arc::clone(&connections).try_acquire_owned() else { continue };
            // Ends with the connection, or with the agent.
            drop(tokio::task::spawn_local(connection(Rc::clone(&agent), stream, permit)));
        }
    };
    tokio::select! {
        () = serve => {}
        () = agent.until_down() => {
            // The clients that requested the shutdown receive their answers; then this process, and with it the
            // sandbox, ends.
            let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
            let _ = tokio::time::timeout(LAST_ANSWER_WAIT_MAX, connections.acquire_many(all)).await;
        }
    }
}

async fn connection(agent: Rc<Agent>, stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let entry = agent.connections.add(stream);
    let stream = &entry.open.stream;
    let mut inbox = Inbox::new(stream);
    let mut outbox = Outbox::new(stream);
    let handshake = tokio::time::timeout(HANDSHAKE_WAIT_MAX, handshake(&agent, &mut inbox)).await;
    let served = match handshake {
        Err(_) => return,
        // The connection may have been opened with the old token.
        Ok(Ok(Ok(_))) if entry.open.is_closed() => return,
        Ok(Ok(Ok(request))) => {
            entry.serves(&request);
            serve(&agent, request, &entry.open, &mut inbox, &mut outbox).await
        }
        Ok(Ok(Err(error))) => outbox.reply::<()>(Err(error)).await,
        Ok(Err(error)) => Err(error),
    };
    let served = match served {
        // The host sent an invalid frame and receives the error; the start of the next frame cannot be found.
        Err(WireError::Frame(error)) => outbox.reply::<()>(Err(invalid(error))).await,
        other => other,
    };
    if served.is_ok() {
        let _ = finish(stream, &mut inbox).await;
    }
}

/// Ends the agent's side, and reads until the host ends its own: closing with unread bytes resets the connection, and
/// the kernel then drops data that the host has not received. There is no time limit for a host that reads slowly.
async fn finish(stream: &TcpStream, inbox: &mut Inbox<'_>) -> Result<(), WireError> {
    rustix::net::shutdown(stream, rustix::net::Shutdown::Write).map_err(std::io::Error::from)?;
    loop {
        match tokio::time::timeout(DRAIN_WAIT_MAX, inbox.discard()).await {
            Ok(discarded) => return discarded,
            Err(_) if unacknowledged::bytes(stream)? == 0 => return Ok(()),
            Err(_) => {}
        }
    }
}

async fn handshake(agent: &Agent, inbox: &mut Inbox<'_>) -> Result<Result<Request, RequestError>, WireError> {
    let hello = match inbox.message::<Hello>().await? {
        Ok(hello) => hello,
        Err(error) => return Ok(Err(error)),
    };
    if !constant_time_eq(hello.token.as_bytes(), agent.boot.token.borrow().as_bytes()) {
        return Ok(Err(fail(ErrorCode::Unauthorized, "invalid token")));
    }
    if hello.generation > GENERATION {
        let message = format!("this agent uses protocol generation {GENERATION}, not {}", hello.generation);
        return Ok(Err(fail(ErrorCode::Unsupported, message)));
    }
    match inbox.next().await? {
        Some(Frame::Control(json)) => Ok(parse_request(&json)),
        Some(Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End) => {
            Ok(Err(invalid("expected a request, received another frame")))
        }
        None => Err(WireError::HungUp),
    }
}

/// Compares in constant time.
fn constant_time_eq(given: &[u8], wanted: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != wanted.len());
    for (index, byte) in wanted.iter().enumerate() {
        difference |= byte ^ given.get(index).copied().unwrap_or(0);
    }
    std::hint::black_box(difference) == 0
}

/// Distinguishes a request that this agent is too old for from an invalid one.
fn parse_request(json: &[u8]) -> Result<Request, RequestError> {
    #[derive(serde::Deserialize)]
    struct Op {
        op: String,
    }
    serde_json::from_slice(json).map_err(|error| {
        let text = error.to_string();
        let unknown = serde_json::from_slice::<Op>(json)
            .is_ok_and(|op| text.starts_with(&format!("unknown variant `{}`", op.op)));
        let code = if unknown { ErrorCode::Unsupported } else { ErrorCode::Invalid };
        fail(code, format_args!("could not read the request: {text}"))
    })
}

async fn serve(
    agent: &Rc<Agent>,
    request: Request,
    open: &OpenConnection,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let stream = &open.stream;
    // Streaming requests use the rest of the connection; the others are a request and an answer.
    match request {
        Request::ExecStart(start) => exec::serve_start(agent, start, inbox, outbox).await,
        Request::Attach(attach) => exec::attach(agent, attach, inbox, outbox).await,
        Request::ListStream(list) => files::list_stream(list, outbox).await,
        Request::Read(read) => files::read(read, stream, outbox).await,
        Request::Write(write) => files::write(write, stream, inbox, outbox).await,
        Request::TarOut(tar) => files::tar_out(tar, outbox).await,
        Request::TarIn(tar) => files::tar_in(tar, inbox, outbox).await,
        Request::Watch(watch) => files::watch(watch, inbox, outbox).await,
        Request::Connect { port } => tokio::select! {
            served = ports::connect(&agent.relays, port, stream, inbox, outbox) => served,
            // The end of one direction would leave the other open.
            () = open.until_closed() => Ok(()),
        },

        Request::Ping => answer(outbox, async { Ok(identity(agent)) }).await,
        Request::ExecGet { exec } => answer(outbox, async { Ok(agent.execs.get(&exec)?.info()) }).await,
        Request::ExecList => answer(outbox, async { Ok(exec_list(agent)) }).await,
        Request::ExecWait { exec, timeout_ms } => {
            answer(outbox, exec_wait(agent, &exec, timeout_ms, inbox)).await
        }
        Request::ExecSignal { exec, signal, group } => {
            answer(outbox, async { agent.execs.get(&exec)?.signal(signal, group) }).await
        }
        Request::ExecResize { exec, size } => {
            answer(outbox, async { agent.execs.get(&exec)?.resize(size) }).await
        }
        Request::ExecStdin { exec, close } => match agent.execs.get(&exec) {
            Ok(exec) => outbox.reply(exec::feed(&exec, inbox, close).await?).await,
            Err(error) => outbox.reply::<()>(Err(error)).await,
        },

        Request::Stat { path, follow } => answer(outbox, files::stat(path, follow)).await,
        Request::List(list) => answer(outbox, files::list(list)).await,
        Request::MakeDir { path, parents, mode, user } => {
            answer(outbox, files::make_dir(path, parents, mode, user)).await
        }
        Request::Move { from, to } => answer(outbox, files::rename(from, to)).await,
        Request::Remove { path, recursive } => answer(outbox, files::remove(path, recursive)).await,
        Request::ChangeMode { path, mode } => answer(outbox, files::change_mode(path, mode)).await,

        Request::Stats => answer(outbox, async { Ok(machine::stats(agent).await) }).await,
        Request::Activity => answer(outbox, async { Ok(activity(agent)) }).await,
        Request::SetServices { services } => answer(outbox, services::set(agent, services)).await,
        Request::ListServices => answer(outbox, async { Ok(services::list(agent)) }).await,
        Request::RestartService { name } => answer(outbox, services::restart(agent, &name)).await,
        Request::ListPorts => answer(outbox, async { Ok(ports::list().await) }).await,
        Request::SetRam { ram_bytes } => answer(outbox, set_ram(agent, ram_bytes)).await,
        Request::SetTrust { certificate } => answer(outbox, trust::set(certificate)).await,
        Request::Renew { token, hostname } => answer(outbox, renew(agent, token, hostname, open)).await,
        Request::Shutdown { grace_ms } => {
            agent.shut_down(grace_ms).await;
            outbox.reply(Ok(())).await
        }
    }
}

async fn answer<T: serde::Serialize>(
    outbox: &mut Outbox<'_>,
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<(), WireError> {
    let result = work.await;
    outbox.reply(result).await
}

async fn set_ram(agent: &Rc<Agent>, ram_bytes: u64) -> Result<(), RequestError> {
    agent.meminfo.set_limit(ram_bytes);
    // Reads the current usage, and writes it and the limit to the shown file.
    machine::stats(agent).await;
    Ok(())
}

/// The token is replaced last, so that the host can try again after a failure.
async fn renew(
    agent: &Rc<Agent>,
    token: String,
    hostname: String,
    open: &OpenConnection,
) -> Result<(), RequestError> {
    if token.is_empty() {
        return Err(invalid("the token is empty"));
    }
    identity::renew(agent, Some(hostname)).await?;
    *agent.boot.token.borrow_mut() = token;
    agent.connections.close_others(open);
    Ok(())
}

fn activity(agent: &Agent) -> Activity {
    let execs = agent.execs.activity();
    let last_ms = execs.active_ms.max(agent.connections.streamed_ms()).max(agent.boot.started_awake_ms);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Activity {
        execs_running: number(execs.running),
        execs_attached: number(execs.attached),
        services_running: number(execs.services),
        streams: number(agent.connections.streams()),
        last_io_ms: clock::awake_ms().saturating_sub(last_ms),
    }
}

fn identity(agent: &Agent) -> Identity {
    Identity {
        generation: GENERATION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: agent.boot.uptime_ms(),
    }
}

/// All execs, as far as they fit into an answer: first command lines are cut, then the oldest execs are left out.
fn exec_list(agent: &Agent) -> Vec<ExecInfo> {
    let mut list: Vec<ExecInfo> = agent.execs.all().iter().map(|exec| exec.info()).collect();
    let fits = |list: &Vec<ExecInfo>| {
        serde_json::to_vec(list).is_ok_and(|json| json.len() < FRAME_BYTES_MAX - LIST_SPARE_BYTES)
    };
    if !fits(&list) {
        for info in &mut list {
            info.argv.truncate(1);
            info.argv[0] = info.argv[0].chars().take(ARGV_CUT_CHARS).collect();
        }
    }
    while !fits(&list) {
        list.drain(..list.len().div_ceil(10));
    }
    list
}

async fn exec_wait(
    agent: &Agent,
    id: &str,
    timeout_ms: u64,
    inbox: &mut Inbox<'_>,
) -> Result<ExecInfo, RequestError> {
    let exec = agent.execs.get(id)?;
    let wait = Duration::from_millis(timeout_ms).min(EXEC_WAIT_MAX);
    tokio::select! {
        _ = tokio::time::timeout(wait, exec.wait_ended()) => {}
        // The host hung up, so the answer is not needed.
        _ = inbox.next() => {}
    }
    Ok(exec.info())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_complete_token_is_accepted() {
        assert!(constant_time_eq(b"secret", b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret"] {
            assert!(!constant_time_eq(wrong, b"secret"));
        }
    }

    #[test]
    fn unknown_requests_are_distinguished_from_malformed_ones() {
        let code = |json: &str| parse_request(json.as_bytes()).unwrap_err().code;
        assert_eq!(code(r#"{"op":"teleport"}"#), ErrorCode::Unsupported);
        assert_eq!(code(r#"{"op":"exec-get"}"#), ErrorCode::Invalid);
        assert_eq!(code(r#"{"op":"ping""#), ErrorCode::Invalid);
    }
}
