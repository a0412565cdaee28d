//! The least of an NBD client. Tests of other kinds take this file along.

#![allow(dead_code, reason = "tests use different parts")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub const CMD_READ: u16 = 0;
pub const CMD_WRITE: u16 = 1;
pub const CMD_FLUSH: u16 = 3;
pub const CMD_WRITE_ZEROES: u16 = 6;
pub const FLAG_FUA: u16 = 1;

/// The preferred size of a block that one who negotiates now is told (`NBD_OPT_INFO`).
pub fn preferred_block_bytes(socket: &Path, export: &str) -> Option<u32> {
    const OPTION: u32 = 6;
    const BLOCK_SIZE: [u8; 2] = [0, 3];
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    let name = [&(export.len() as u32).to_be_bytes()[..], export.as_bytes()].concat();
    let asked = [&name[..], &[0, 1], &BLOCK_SIZE].concat();
    let head = [b"IHAVEOPT", &OPTION.to_be_bytes()[..], &(asked.len() as u32).to_be_bytes()].concat();
    stream.write_all(&[head, asked].concat()).unwrap();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(16) as usize];
        stream.read_exact(&mut data).unwrap();
        if data.starts_with(&BLOCK_SIZE) {
            return Some(u32::from_be_bytes(data[6..10].try_into().unwrap()));
        }
        if word(12) != 3 {
            return None;
        }
    }
}

/// A client of one export.
pub struct Client {
    stream: UnixStream,
    pub size: u64,
    pub flags: u16,
    /// Of the last read.
    pub bytes: Vec<u8>,
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> Self {
        Self::try_connect(socket, export).expect("an export")
    }

    /// `None` where there is no such export now.
    pub fn try_connect(socket: &Path, export: &str) -> Option<Self> {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        // Fixed newstyle, no zeroes; the option that only names an export.
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        let length = export.len() as u32;
        stream
            .write_all(
                &[b"IHAVEOPT", &1u32.to_be_bytes()[..], &length.to_be_bytes(), export.as_bytes()].concat(),
            )
            .unwrap();
        let mut size = [0; 8];
        stream.read_exact(&mut size).ok()?;
        let mut flags = [0; 2];
        stream.read_exact(&mut flags).unwrap();
        let (size, flags) = (u64::from_be_bytes(size), u16::from_be_bytes(flags));
        Some(Self { stream, size, flags, bytes: Vec::new() })
    }

    fn send(&mut self, flags: u16, command: u16, offset: u64, length: u32) {
        let head = [&0x2560_9513u32.to_be_bytes()[..], &flags.to_be_bytes(), &command.to_be_bytes(), &[0; 8]];
        let request = [&head.concat()[..], &offset.to_be_bytes(), &length.to_be_bytes()];
        self.stream.write_all(&request.concat()).unwrap();
    }

    /// The error number of a reply.
    fn reply(&mut self) -> u32 {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
    }

    pub fn request(&mut self, command: u16, offset: u64, length: u32) -> u32 {
        self.send(0, command, offset, length);
        self.reply()
    }

    pub fn read(&mut self, offset: u64, length: u32) -> u32 {
        let error = self.request(CMD_READ, offset, length);
        if error == 0 {
            self.bytes.resize(length as usize, 0);
            self.stream.read_exact(&mut self.bytes).unwrap();
        }
        error
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8], flags: u16) -> u32 {
        self.send(flags, CMD_WRITE, offset, bytes.len() as u32);
        self.stream.write_all(bytes).unwrap();
        self.reply()
    }
}
