//! Moves bytes from socket to socket without copying them.
//!
//! `splice` moves pages from a socket into a pipe and from there into the other socket. A pipe is taken only while
//! there is something to move and given back empty, so that an idle connection costs two sockets and a small task.
//!
//! ```text
//! readable ──► take a pipe ──► a turn: fill it, empty it, some times over ──► give it back ──► readable
//!              narrow; wide once a flow has moved much, as long as there are wide ones
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Narrow pipes kept for the next flow that has something to say.
const IDLE_PIPES_MAX: usize = 64;

/// What a narrow pipe holds, if the kernel grants it: more per call is less to do per byte. Moved at a time as well,
/// though a pipe would take more: programs that do not read what they asked for keep it all from the host's memory.
/// (The kernel makes the pipes of a user that has some 256 of this size tiny.)
const NARROW_BYTES: usize = 256 * 1024;

/// What a wide pipe holds: the most that the kernel grants to a user who is not root. A download between two cores
/// takes the proxy a fifth less time with these than with narrow ones.
const WIDE_BYTES: usize = 1024 * 1024;

/// Wide pipes in use at a time, by all flows together: a few downloads are all that a machine can carry at full speed,
/// and what programs keep in these by not reading is bounded. The others go on with narrow ones.
const WIDE_PIPES_MAX: usize = 16;

/// A flow that has moved this much one way is likely to move more.
const BULK_BYTES: u64 = 4 * 1024 * 1024;

/// Moves after which other tasks of the thread get their turn.
const MOVES_PER_TURN: u32 = 16;

#[derive(Debug)]
pub(crate) struct Pipes {
    narrow: Mutex<Vec<Pipe>>,
    wide: Mutex<Vec<Pipe>>,
    /// Who holds a place may use a wide pipe. There are never more idle ones than places.
    wide_places: Semaphore,
}

#[derive(Debug)]
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    width: Width,
    /// Whether it is as wide as it should be.
    granted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Narrow,
    Wide,
}

/// How a turn ended. The pipe is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The stream has ended.
    Ended,
    /// There is nothing more to move now.
    Idle,
    /// There may be more to move, after this long.
    More(Duration),
}

impl Pipes {
    pub(crate) fn new() -> Self {
        Self { narrow: Mutex::default(), wide: Mutex::default(), wide_places: Semaphore::new(WIDE_PIPES_MAX) }
    }

    fn take(&self, width: Width) -> io::Result<Pipe> {
        let idle = self.idle(width).lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Pipe::new(width), Ok)
    }

    /// Takes back a pipe that is empty.
    fn give(&self, pipe: Pipe) {
        let mut idle = self.idle(pipe.width).lock().unwrap_or_else(PoisonError::into_inner);
        // One that the kernel made smaller is not kept: it may be in a better mood next time.
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

    /// Moves all that `from` says to `to`, until it ends. `moved` is told of every piece, and says how long to wait
    /// before the next.
    pub(crate) async fn pump(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        moved: impl Fn(usize) -> Duration,
    ) -> io::Result<()> {
        let mut total = 0;
        loop {
            from.readable().await?;
            // Held until the pipe is back, or gone with the flow.
            let place = if total < BULK_BYTES { None } else { self.wide_places.try_acquire().ok() };
            let pipe = self.take(if place.is_some() { Width::Wide } else { Width::Narrow })?;
            let turn = pipe.turn(from, to, &moved, &mut total).await?;
            // Only here is it known to be empty; after an error it goes with the flow.
            self.give(pipe);
            drop(place);
            match turn {
                Turn::Ended => return Ok(()),
                Turn::Idle => {}
                Turn::More(Duration::ZERO) => tokio::task::yield_now().await,
                Turn::More(wait) => tokio::time::sleep(wait).await,
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
        // Refused when the user has many pipes already, or may have none so wide; a small one works too.
        let granted = fcntl_setpipe_size(&into, width.bytes()).is_ok();
        if !granted && width == Width::Wide {
            let _ = fcntl_setpipe_size(&into, NARROW_BYTES);
        }
        Ok(Self { out, into, width, granted })
    }

    /// Moves what there is now, and adds it to `total`.
    async fn turn(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        moved: &impl Fn(usize) -> Duration,
        total: &mut u64,
    ) -> io::Result<Turn> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        for _ in 0..MOVES_PER_TURN {
            let bytes = self.width.bytes();
            let read =
                from.try_io(Interest::READABLE, || Ok(splice(from, None, &self.into, None, bytes, flags)?));
            let mut left = match read {
                Ok(0) => return Ok(Turn::Ended),
                Ok(count) => count,
                // The pipe is empty, so it is the socket that has nothing.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Idle),
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
                return Ok(Turn::More(wait));
            }
        }
        Ok(Turn::More(Duration::ZERO))
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

    /// Bytes that show when a piece is lost, doubled, or in the wrong place: the period is prime.
    fn pattern() -> Vec<u8> {
        (0..MUCH).map(|place| u8::try_from(place % 251).unwrap()).collect()
    }

    /// Sends it all through a pump, and says what arrived.
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
    async fn a_flow_that_moves_much_gets_a_wide_pipe_and_all_of_it_arrives() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        assert!(carry(&pipes, &bytes).await == bytes);
        let wide = pipes.wide.lock().unwrap();
        for pipe in &*wide {
            assert!(fcntl_getpipe_size(&pipe.into).unwrap() >= WIDE_BYTES);
        }
        // We are root, to whom the kernel grants any size.
        assert_eq!(wide.len(), 1);
        assert_eq!(pipes.wide_places.available_permits(), WIDE_PIPES_MAX);
    }

    #[tokio::test]
    async fn a_flow_that_moves_little_never_gets_one() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        let little = &bytes[..usize::try_from(BULK_BYTES).unwrap() / 2];
        assert!(carry(&pipes, little).await == little);
        assert_eq!(wide_idle(&pipes), 0);
    }

    #[tokio::test]
    async fn where_all_wide_pipes_are_taken_a_narrow_one_does() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        let _taken = pipes.wide_places.acquire_many(u32::try_from(WIDE_PIPES_MAX).unwrap()).await.unwrap();
        assert!(carry(&pipes, &bytes).await == bytes);
        assert_eq!(wide_idle(&pipes), 0);
    }

    #[tokio::test]
    async fn a_pipe_that_was_not_granted_its_size_works_and_is_not_kept() {
        let pipes = Pipes::new();
        let small = Pipe { granted: false, ..Pipe::new(Width::Narrow).unwrap() };
        fcntl_setpipe_size(&small.into, 4096).unwrap();
        let ((mut sender, from), (to, mut receiver)) = (connection().await, connection().await);
        sender.write_all(&[7; 20_000]).await.unwrap();
        let (mut total, mut arrived) = (0, [0; 20_000]);
        while total < 20_000 {
            from.readable().await.unwrap();
            small.turn(&from, &to, &|_| Duration::ZERO, &mut total).await.unwrap();
        }
        receiver.read_exact(&mut arrived).await.unwrap();
        assert_eq!(arrived, [7; 20_000]);
        pipes.give(small);
        assert_eq!(pipes.narrow.lock().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn a_flow_that_is_ended_midway_takes_its_full_pipe_along_and_leaves_its_place() {
        let (pipes, bytes) = (Pipes::new(), pattern());
        let ((mut sender, from), (to, mut receiver)) = (connection().await, connection().await);
        {
            let send = sender.write_all(&bytes);
            let pump = pipes.pump(&from, &to, |_| Duration::ZERO);
            let mut head = vec![0; MUCH / 2];
            let read_half = receiver.read_exact(&mut head);
            // Nobody reads the rest, so neither of the others can end before this does.
            tokio::select! {
                _ = send => panic!("more was sent than was read and fits"),
                _ = pump => panic!("the stream has not ended"),
                () = async {
                    read_half.await.unwrap();
                    // Until the pump is stuck with a wide pipe in its hands.
                    while pipes.wide_places.available_permits() == WIDE_PIPES_MAX || !is_full(&to) {
                        tokio::task::yield_now().await;
                    }
                } => {}
            }
        }
        assert_eq!(pipes.wide_places.available_permits(), WIDE_PIPES_MAX);
        assert_eq!(wide_idle(&pipes), 0, "a pipe with bytes of one flow is never another's");
    }

    /// Whether nothing more fits into a socket.
    fn is_full(stream: &TcpStream) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut asked = [PollFd::new(stream, PollFlags::OUT)];
        poll(&mut asked, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        !asked[0].revents().contains(PollFlags::OUT)
    }
}
