//! What the kernel is told without having asked: that it is to forget something.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | length |
//! | 4 | 4 | what: 2 a file, 3 a name |
//! | 8 | 8 | 0 |
//! | 16 | | file 8, offset 8, length 8; or directory 8, length of the name 4, 0 in 4, the name, a zero |
//!
//! Source of the facts: `fuse_kernel.h` of Linux.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::INodeNo;

use super::connection::Device;

const FORGET_FILE: i32 = 2;
const FORGET_NAME: i32 = 3;

/// Tells the kernel, over a connection.
#[derive(Clone)]
pub struct Notifier(Device);

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifier")
    }
}

impl Notifier {
    /// Over this connection.
    pub fn new(device: &Device) -> Self {
        Self(Arc::clone(device))
    }

    /// Has it forget a file's attributes, and its content from an offset on where that is not negative; a
    /// length of 0 is up to the end.
    ///
    /// # Errors
    /// The kernel refuses. That it does not know the file is none.
    pub fn inval_inode(&self, file: INodeNo, offset: i64, length: i64) -> io::Result<()> {
        let mut payload = Vec::with_capacity(24);
        payload.extend(file.0.to_ne_bytes());
        payload.extend(offset.to_ne_bytes());
        payload.extend(length.to_ne_bytes());
        self.tell(FORGET_FILE, &payload)
    }

    /// Has it forget a name in a directory.
    ///
    /// # Errors
    /// The kernel refuses. That it does not know the name is none.
    pub fn inval_entry(&self, directory: INodeNo, name: &OsStr) -> io::Result<()> {
        let name = name.as_bytes();
        let length = u32::try_from(name.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut payload = Vec::with_capacity(17 + name.len());
        payload.extend(directory.0.to_ne_bytes());
        payload.extend(length.to_ne_bytes());
        payload.extend([0; 4]);
        payload.extend(name);
        payload.push(0);
        self.tell(FORGET_NAME, &payload)
    }

    fn tell(&self, what: i32, payload: &[u8]) -> io::Result<()> {
        let message = message(what, payload);
        match rustix::io::write(&self.0, &message) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn message(what: i32, payload: &[u8]) -> Vec<u8> {
    // Names are short.
    let length = 16 + payload.len() as u32;
    let mut message = Vec::with_capacity(length as usize);
    message.extend(length.to_ne_bytes());
    message.extend(what.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message.extend(payload);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_begins_with_its_length_and_what_it_is_of() {
        let message = message(FORGET_NAME, b"abc");
        assert_eq!(message.len(), 19);
        assert_eq!(message[..8], [19u32.to_ne_bytes(), 3u32.to_ne_bytes()].concat());
        assert_eq!(message[8..], *b"\0\0\0\0\0\0\0\0abc");
    }
}
