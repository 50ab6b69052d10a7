//! Clears memory as it is given back, so that nothing the daemon held for a moment stays in it.
//!
//! A secret that is set passes through memory that nobody here can clear: what a connection was read into, what TLS decrypted,
//! what a vector left behind when it grew. All of it is heap and all of it is freed, so it is cleared there, where
//! everything comes by. What is allocated by libraries in C is not: SQLite sees secrets only sealed.
//!
//! Off until [`Clearing::begin`]: the egress process holds secrets as long as it lives, and moves bulk; commands end at once.

#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// The allocator of the program.
#[derive(Debug)]
pub struct Clearing;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// Larger blocks hold no secret, nor what one came in: bodies (by default) and buffers of connections are bounded far below. They hold
/// vectors of memory and the like, which would be written twice for nothing.
const CLEARED_MAX: usize = 4 << 20;

impl Clearing {
    /// From now on, for as long as the process lives.
    pub(crate) fn begin() {
        BEGUN.store(true, Ordering::Relaxed);
    }

    fn clears(size: usize) -> bool {
        size <= CLEARED_MAX && BEGUN.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is handed on to the system's allocator with what it was given. Beyond that, memory is written only
// in `dealloc` and `realloc`, before it is handed back: it is the caller's no more, and nobody else's yet.
unsafe impl GlobalAlloc for Clearing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the ones asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if Self::clears(layout.size()) {
            // Not a plain write: the compiler leaves out what nobody reads before it is freed.
            // SAFETY: the block is of that size, and still ours.
            unsafe { libc::explicit_bzero(memory.cast(), layout.size()) };
        }
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !Self::clears(layout.size()) {
            // SAFETY: as above.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // The system's would leave a copy where the block was.
        // SAFETY: the caller promises that the size, rounded up to the alignment, fits.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks are as long as the shorter of them, and they are two.
            unsafe { std::ptr::copy_nonoverlapping(memory, new, layout.size().min(size)) };
            // SAFETY: the caller's, who has the new one now.
            unsafe { self.dealloc(memory, layout) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_grows_or_shrinks_keeps_what_it_held() {
        for begun in [false, true] {
            if begun {
                Clearing::begin();
            }
            let clearing = Clearing;
            let layout = |size| Layout::from_size_align(size, 8).unwrap();
            // SAFETY: every block is used within its size, and freed once with the layout it has.
            unsafe {
                let block = clearing.alloc(layout(64));
                block.write_bytes(7, 64);
                let block = clearing.realloc(block, layout(64), 4096);
                assert!((0..64).all(|at| *block.add(at) == 7));
                let block = clearing.realloc(block, layout(4096), 16);
                assert!((0..16).all(|at| *block.add(at) == 7));
                let block = clearing.realloc(block, layout(16), CLEARED_MAX + 1);
                let block = clearing.realloc(block, layout(CLEARED_MAX + 1), 2 * CLEARED_MAX);
                assert!((0..16).all(|at| *block.add(at) == 7));
                clearing.dealloc(block, layout(2 * CLEARED_MAX));
            }
        }
    }
}
