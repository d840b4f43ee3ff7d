//! The ioctls of loop devices. All take a number and return one.
//!
//! The only `unsafe` code of the crate: no safe crate offers them. Nothing here decides
//! anything.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

// Of linux/loop.h.
const LOOP_SET_FD: Opcode = 0x4C00;
const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;

/// A request whose argument is a number, if it has any.
struct Numbers {
    request: Opcode,
    argument: usize,
}

// SAFETY: the argument is a number in the place of a pointer, which is never read through,
// neither here nor by the kernel for the three requests above; the answer is what the call
// returns.
unsafe impl Ioctl for Numbers {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        self.request
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.argument)
    }

    unsafe fn output_from_ptr(told: IoctlOutput, _: *mut c_void) -> Result<u32, Errno> {
        u32::try_from(told).map_err(|_| Errno::IO)
    }
}

/// The number of a loop device that nobody has, asked of `/dev/loop-control`.
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> Result<u32, Errno> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a number.
    unsafe { ioctl(control, Numbers { request: LOOP_CTL_GET_FREE, argument: 0 }) }
}

/// Puts an open file or device behind a loop device, which keeps it open from then on.
pub(crate) fn set_loop(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<(), Errno> {
    let argument = usize::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: LOOP_SET_FD takes the number of a descriptor, which is open while it is
    // borrowed; the kernel keeps the file behind it, and not the number.
    unsafe { ioctl(device, Numbers { request: LOOP_SET_FD, argument }) }.map(drop)
}

/// Takes away what is behind a loop device, at the latest once nobody has it open.
pub(crate) fn clear_loop(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: LOOP_CLR_FD takes no argument and returns nothing but success.
    unsafe { ioctl(device, Numbers { request: LOOP_CLR_FD, argument: 0 }) }.map(drop)
}
