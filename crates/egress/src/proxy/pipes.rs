//! Moves bytes from socket to socket without copying them.
//!
//! `splice` moves pages from a socket into a pipe and from there into the other socket. A pipe is taken only while
//! there is data to move and returned empty, so an idle connection costs two sockets and a small task.
//!
//! ```text
//! readable ──► take a pipe ──► fill and empty it several times ──► return it ──► readable
//!              narrow; wide for a flow that has moved much, while there are wide ones
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Narrow pipes that are kept for reuse.
const IDLE_PIPES_MAX: usize = 64;

/// Capacity of a narrow pipe, if the kernel grants it: more bytes per call mean less work per byte. Also the limit of
/// one move, although a pipe could hold more, because data that programs do not read stays in the host's RAM. (If a
/// user has more than about 256 pipes of this size, the kernel makes further ones very small.)
const NARROW_BYTES: usize = 256 * 1024;

/// Capacity of a wide pipe: the most that the kernel grants to users other than root. With wide pipes, a download
/// between two cores takes the proxy a fifth less time than with narrow ones.
const WIDE_BYTES: usize = 1024 * 1024;

/// Wide pipes in use by all flows together: a few downloads use all of a machine's bandwidth, and the RAM for unread
/// data is limited. Other flows continue with narrow pipes.
const WIDE_PIPES_MAX: usize = 16;

/// A flow that has moved this much in one direction is likely to move more.
const BULK_BYTES: u64 = 4 * 1024 * 1024;

/// Moves after which the task yields to other tasks of the thread.
const MOVES_BEFORE_YIELD: u32 = 16;

#[derive(Debug)]
pub(crate) struct Pipes {
    narrow: Mutex<Vec<Pipe>>,
    wide: Mutex<Vec<Pipe>>,
    /// Permits to use a wide pipe. There are never more idle wide pipes than permits.
    wide_permits: Semaphore,
}

#[derive(Debug)]
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    width: Width,
    /// Whether the kernel granted the full capacity.
    granted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Narrow,
    Wide,
}

/// The outcome of moving the available bytes. The pipe is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveOutcome {
    /// The stream has ended.
    Ended,
    /// No more bytes are available now.
    Idle,
    /// More bytes may be available, after this wait.
    More(Duration),
}

impl Pipes {
    pub(crate) fn new() -> Self {
        Self {
            narrow: Mutex::default(),
            wide: Mutex::default(),
            wide_permits: Semaphore::new(WIDE_PIPES_MAX),
        }
    }

    fn take(&self, width: Width) -> io::Result<Pipe> {
        let idle = self.idle(width).lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Pipe::new(width), Ok)
    }

    /// Returns an empty pipe for reuse.
    fn give(&self, pipe: Pipe) {
        let mut idle = self.idle(pipe.width).lock().unwrap_or_else(PoisonError::into_inner);
        // A pipe with a reduced capacity is not reused: a new one may get the full capacity.
        if pipe.granted && idle.len() < pipe.width.idle_max() {
            idle.push(pipe);
        }
    }

    fn idle(&self, width: Width) -> &Mutex<Vec<Pipe>> {
        match width {
            Width::Narrow => &self.narrow,
            Width::Wide => &self.wide,
        }
    }

    /// Moves all bytes from `from` to `to`, until the stream ends. `moved` is called for every piece, and returns how
    /// long to wait before the next one.
    pub(crate) async fn pump(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        moved: impl Fn(usize) -> Duration,
    ) -> io::Result<()> {
        let mut total = 0;
        loop {
            from.readable().await?;
            // Held until the pipe is returned, or dropped with the flow.
            let permit = if total < BULK_BYTES { None } else { self.wide_permits.try_acquire().ok() };
            let pipe = self.take(if permit.is_some() { Width::Wide } else { Width::Narrow })?;
            let move_available = pipe.move_available(from, to, &moved, &mut total).await?;
            // Only here the pipe is known to be empty; after an error it is dropped with the flow.
            self.give(pipe);
            drop(permit);
            match move_available {
                MoveOutcome::Ended => return Ok(()),
                MoveOutcome::Idle => {}
                MoveOutcome::More(Duration::ZERO) => tokio::task::yield_now().await,
                MoveOutcome::More(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Self::Narrow => NARROW_BYTES,
            Self::Wide => WIDE_BYTES,
        }
    }

    fn idle_max(self) -> usize {
        match self {
            Self::Narrow => IDLE_PIPES_MAX,
            Self::Wide => WIDE_PIPES_MAX,
        }
    }
}

impl Pipe {
    fn new(width: Width) -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The kernel refuses if the user has many pipes already or may not have wide ones; a small one works too.
        let granted = fcntl_setpipe_size(&into, width.bytes()).is_ok();
        if !granted && width == Width::Wide {
            let _ = fcntl_setpipe_size(&into, NARROW_BYTES);
        }
        Ok(Self { out, into, width, granted })
    }

    /// Moves the available bytes, and adds their number to `total`.
    async fn move_available(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        moved: &impl Fn(usize) -> Duration,
        total: &mut u64,
    ) -> io::Result<MoveOutcome> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        for _ in 0..MOVES_BEFORE_YIELD {
            let bytes = self.width.bytes();
            let read =
                from.try_io(Interest::READABLE, || Ok(splice(from, None, &self.into, None, bytes, flags)?));
            let mut left = match read {
                Ok(0) => return Ok(MoveOutcome::Ended),
                Ok(count) => count,
                // The pipe is empty, so the socket has no data.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(MoveOutcome::Idle),
                Err(error) => return Err(error),
            };
            *total = total.saturating_add(left as u64);
            let wait = moved(left);
            while left > 0 {
                let written =
                    to.try_io(Interest::WRITABLE, || Ok(splice(&self.out, None, to, None, left, flags)?));
                match written {
                    Ok(count) => left -= count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                    Err(error) => return Err(error),
                }
            }
            if !wait.is_zero() {
                return Ok(MoveOutcome::More(wait));
            }
        }
        Ok(MoveOutcome::More(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::fcntl_getpipe_size;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Enough for narrow and wide pipes, many times over.
    const MUCH: usize = 48 * 1024 * 1024;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connecting, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    /// Bytes that reveal lost, duplicated or misplaced pieces: the period is prime.
    fn pattern() -> Vec<u8> {
        (0..MUCH).map(|permit| u8::try_from(permit % 251).unwrap()).collect()
    }

    /// Sends all bytes through a pump, and returns what arrived.
    async fn carry(pipes: &Pipes, bytes: &[u8]) -> Vec<u8> {
        let ((mut sender, from), (to, mut receiver)) = (connection().await, connection().await);
        let send = async {
            sender.write_all(bytes).await.unwrap();
            drop(sender);
        };
        let pump = async {
            pipes.pump(&from, &to, |_| Duration::ZERO).await.unwrap();
            drop(to);
        };
        let mut arrived = Vec::new();
        let ((), (), count) = tokio::join!(send, pump, receiver.read_to_end(&mut arrived));
        count.unwrap();
        arrived
    }

    fn wide_idle(pipes: &Pipes) -> usize {
        pipes.wide.lock().unwrap().len()
    }

    #[tokio::test]
    async fn a_flow_that_moves_much_gets_a_wide_pipe_and_loses_no_byte() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        assert!(carry(&pipes, &bytes).await == bytes);
        let wide = pipes.wide.lock().unwrap();
        for pipe in &*wide {
            assert!(fcntl_getpipe_size(&pipe.into).unwrap() >= WIDE_BYTES);
        }
        // The tests run as root, to whom the kernel grants any capacity.
        assert_eq!(wide.len(), 1);
        assert_eq!(pipes.wide_permits.available_permits(), WIDE_PIPES_MAX);
    }

    #[tokio::test]
    async fn a_flow_that_moves_little_gets_no_wide_pipe() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        let little = &bytes[..usize::try_from(BULK_BYTES).unwrap() / 2];
        assert!(carry(&pipes, little).await == little);
        assert_eq!(wide_idle(&pipes), 0);
    }

    #[tokio::test]
    async fn a_narrow_pipe_is_used_when_all_wide_pipes_are_taken() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        let _taken = pipes.wide_permits.acquire_many(u32::try_from(WIDE_PIPES_MAX).unwrap()).await.unwrap();
        assert!(carry(&pipes, &bytes).await == bytes);
        assert_eq!(wide_idle(&pipes), 0);
    }

    #[tokio::test]
    async fn a_pipe_with_reduced_capacity_works_and_is_not_reused() {
        let pipes = Pipes::new();
        let small = Pipe { granted: false, ..Pipe::new(Width::Narrow).unwrap() };
        fcntl_setpipe_size(&small.into, 4096).unwrap();
        let ((mut sender, from), (to, mut receiver)) = (connection().await, connection().await);
        sender.write_all(&[7; 20_000]).await.unwrap();
        let (mut total, mut arrived) = (0, [0; 20_000]);
        while total < 20_000 {
            from.readable().await.unwrap();
            small.move_available(&from, &to, &|_| Duration::ZERO, &mut total).await.unwrap();
        }
        receiver.read_exact(&mut arrived).await.unwrap();
        assert_eq!(arrived, [7; 20_000]);
        pipes.give(small);
        assert_eq!(pipes.narrow.lock().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn an_aborted_flow_drops_its_full_pipe_and_releases_its_permit() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        let ((mut sender, from), (to, mut receiver)) = (connection().await, connection().await);
        {
            let send = sender.write_all(&bytes);
            let pump = pipes.pump(&from, &to, |_| Duration::ZERO);
            let mut head = vec![0; MUCH / 2];
            let read_half = receiver.read_exact(&mut head);
            // The rest is never read, so neither of the other futures can end first.
            tokio::select! {
                _ = send => panic!("more was sent than was read and fits"),
                _ = pump => panic!("the stream has not ended"),
                () = async {
                    read_half.await.unwrap();
                    // Until the pump is blocked while it holds a wide pipe.
                    while pipes.wide_permits.available_permits() == WIDE_PIPES_MAX || !is_full(&to) {
                        tokio::task::yield_now().await;
                    }
                } => {}
            }
        }
        assert_eq!(pipes.wide_permits.available_permits(), WIDE_PIPES_MAX);
        assert_eq!(wide_idle(&pipes), 0, "a pipe with bytes of one flow is never another's");
    }

    /// Whether the send buffer of a socket is full.
    fn is_full(stream: &TcpStream) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut asked = [PollFd::new(stream, PollFlags::OUT)];
        poll(&mut asked, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        !asked[0].revents().contains(PollFlags::OUT)
    }
}
