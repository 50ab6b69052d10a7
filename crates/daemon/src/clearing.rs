//! Overwrites heap memory when it is freed, so that no secret that passed through the daemon stays in it.
//!
//! A secret in a request passes through buffers that our code cannot clear: those of connections, of TLS, and old
//! blocks of vectors that grew. All of them are heap blocks and all are freed, so the allocator clears them. Memory
//! allocated by C libraries is not cleared: SQLite receives secrets only encrypted.
//!
//! Off until [`ClearingAllocator::begin`]: the egress process holds secrets for its lifetime and copies bulk data; commands end
//! at once.

#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// The allocator of the program.
#[derive(Debug)]
pub struct ClearingAllocator;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// Larger blocks contain no secrets: bodies (by default) and buffers of connections have far lower limits. They contain
/// vectors of memory and the like; clearing them would only cost time.
const CLEARED_MAX: usize = 4 << 20;

impl ClearingAllocator {
    /// Turns clearing on, for the lifetime of the process.
    pub(crate) fn begin() {
        BEGUN.store(true, Ordering::Relaxed);
    }

    fn clears(size: usize) -> bool {
        size <= CLEARED_MAX && BEGUN.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is forwarded to the system's allocator with its arguments. Beyond that, memory is written only in
// `dealloc` and `realloc`, before it is freed: the caller does not use it any more, and no other code uses it yet.
unsafe impl GlobalAlloc for ClearingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if Self::clears(layout.size()) {
            // Not a plain write: the compiler removes writes that are never read.
            // SAFETY: the block has that size, and is not freed yet.
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
        // The system's `realloc` would leave a copy in the old block.
        // SAFETY: the caller promises that the size, rounded up to the alignment, fits.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks are at least as long as the smaller size, and do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(memory, new, layout.size().min(size)) };
            // SAFETY: the caller's block, which is replaced by the new one.
            unsafe { self.dealloc(memory, layout) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_grows_or_shrinks_keeps_its_contents() {
        for begun in [false, true] {
            if begun {
                ClearingAllocator::begin();
            }
            let clearing = ClearingAllocator;
            let layout = |size| Layout::from_size_align(size, 8).unwrap();
            // SAFETY: every block is used within its size, and freed once with the layout it was allocated with.
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
