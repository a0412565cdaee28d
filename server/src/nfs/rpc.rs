//! Remote procedure calls: records of a stream, calls, and the head of an answer.
//!
//! | what | layout |
//! |---|---|
//! | record | fragments: length 4 (the highest bit: it is the last one), bytes |
//! | call | number 4, 0, version of RPC 4 (2), program 4, version 4, procedure 4, credentials, verifier, arguments |
//! | credentials, verifier | flavour 4, opaque of at most 400 bytes |
//! | credentials of a system | stamp 4, name of the machine, user 4, group 4, count 4, groups 4 each |
//! | answer | number 4, 1, 0 (accepted), verifier, outcome 4, result |
//! | refusal | number 4, 1, 1 (denied), 0 and versions, or 1 and why |
//!
//! Source of the facts: RFC 5531.

use std::io::{self, ErrorKind, Read};

use super::xdr::{Garbage, Reader, Writer};

/// The flavours of credentials.
const NONE: u32 = 0;
/// Users and groups as the client's system has them.
pub const SYSTEM: u32 = 1;
/// The longest credentials.
const MOST_CREDENTIAL_BYTES: usize = 400;
/// The longest name of a machine.
const MOST_MACHINE_BYTES: usize = 255;
/// Most groups beside the first one.
const MOST_GROUPS: u32 = 16;
/// The longest record: the longest write, with what comes before its bytes.
pub const MOST_RECORD_BYTES: usize = (1 << 20) + (64 << 10);
/// Most fragments of a record.
const MOST_FRAGMENTS: usize = 64;

/// The user behind a call, as the client says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// A call, without its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, which the answer has too.
    pub number: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who calls; nothing where the client does not say.
    pub by: Option<Credentials>,
}

/// Why a call is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is of another version of RPC.
    Version,
    /// Its credentials make no sense.
    BadCredentials,
    /// Its credentials are of a flavour that is not taken.
    TooWeak,
    /// There is no such program.
    NoProgram,
    /// The program has other versions: those.
    ProgramVersion(u32, u32),
    /// The program has no such procedure.
    NoProcedure,
    /// The arguments make no sense.
    Arguments,
    /// Something failed here.
    Failed,
}

impl Refusal {
    /// The answer.
    pub fn answer(self, number: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Version => [number, 1, 1, 0, 2, 2].into_iter().for_each(|field| writer.number(field)),
            Self::BadCredentials => [number, 1, 1, 1, 1].into_iter().for_each(|field| writer.number(field)),
            Self::TooWeak => [number, 1, 1, 1, 5].into_iter().for_each(|field| writer.number(field)),
            Self::NoProgram => writer = accepted(number, 1),
            Self::ProgramVersion(low, high) => {
                writer = accepted(number, 2);
                writer.number(low);
                writer.number(high);
            }
            Self::NoProcedure => writer = accepted(number, 3),
            Self::Arguments => writer = accepted(number, 4),
            Self::Failed => writer = accepted(number, 5),
        }
        writer.finish()
    }
}

fn accepted(number: u32, outcome: u32) -> Writer {
    let mut writer = Writer::default();
    [number, 1, 0, NONE, 0, outcome].into_iter().for_each(|field| writer.number(field));
    writer
}

/// An answer to a call that is done, up to where its result begins.
pub fn done(number: u32) -> Writer {
    accepted(number, 0)
}

/// The head of a call, or the number of one that is refused.
type Head = Result<Call, (u32, Refusal)>;

/// Reads the head of a call; the reader is at its arguments then. What cannot be answered, because it has no
/// number or is no call, is an outer error.
pub fn call(record: &[u8]) -> Result<(Head, Reader<'_>), Garbage> {
    let mut reader = Reader::new(record);
    let number = reader.number()?;
    if reader.number()? != 0 {
        return Err(Garbage);
    }
    let head = head(number, &mut reader).map_err(|refusal| (number, refusal));
    Ok((head, reader))
}

fn head(number: u32, reader: &mut Reader<'_>) -> Result<Call, Refusal> {
    let cut = |_: Garbage| Refusal::Arguments;
    if reader.number().map_err(cut)? != 2 {
        return Err(Refusal::Version);
    }
    let program = reader.number().map_err(cut)?;
    let version = reader.number().map_err(cut)?;
    let procedure = reader.number().map_err(cut)?;
    let bad = |_: Garbage| Refusal::BadCredentials;
    let flavour = reader.number().map_err(bad)?;
    let body = reader.opaque(MOST_CREDENTIAL_BYTES).map_err(bad)?;
    let by = match flavour {
        NONE => None,
        SYSTEM => Some(of_system(body).map_err(bad)?),
        _ => return Err(Refusal::TooWeak),
    };
    reader.number().map_err(bad)?;
    reader.opaque(MOST_CREDENTIAL_BYTES).map_err(bad)?;
    Ok(Call { number, program, version, procedure, by })
}

fn of_system(body: &[u8]) -> Result<Credentials, Garbage> {
    let mut reader = Reader::new(body);
    reader.number()?;
    reader.opaque(MOST_MACHINE_BYTES)?;
    let (uid, gid) = (reader.number()?, reader.number()?);
    let count = reader.number()?;
    if count > MOST_GROUPS {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.number()).collect::<Result<_, _>>()?;
    Ok(Credentials { uid, gid, groups })
}

/// The beginning of a record: the length of its first fragment, and whether that is the last one.
pub fn fragment(head: [u8; 4]) -> (usize, bool) {
    let head = u32::from_be_bytes(head);
    ((head & !(1 << 31)) as usize, head >> 31 == 1)
}

/// Reads the rest of a record whose first fragment has this head. Memory is taken as bytes arrive, and not on
/// the word of a length.
///
/// # Errors
/// It is longer than records may be, or in too many pieces; or the socket's.
pub fn rest_of_record(socket: &mut impl Read, head: [u8; 4]) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::new(ErrorKind::InvalidData, "a record that is too long");
    let (mut length, mut is_last) = fragment(head);
    let mut record = Vec::new();
    for _ in 0..MOST_FRAGMENTS {
        if length > MOST_RECORD_BYTES - record.len() {
            return Err(too_long());
        }
        let before = record.len();
        socket.by_ref().take(length as u64).read_to_end(&mut record)?;
        if record.len() - before < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if is_last {
            return Ok(record);
        }
        let mut next = [0; 4];
        socket.read_exact(&mut next)?;
        (length, is_last) = fragment(next);
    }
    Err(too_long())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_of(program: u32, flavour: u32, body: &[u8]) -> Vec<u8> {
        let mut writer = Writer::default();
        [9, 0, 2, program, 3, 1, flavour].into_iter().for_each(|field| writer.number(field));
        writer.opaque(body);
        writer.number(0);
        writer.opaque(b"");
        writer.number(77);
        writer.finish()
    }

    #[test]
    fn the_user_is_whom_the_client_says() {
        let mut body = Writer::default();
        body.number(1);
        body.opaque(b"host");
        [1000, 100, 2, 27, 44].into_iter().for_each(|field| body.number(field));
        let body = body.finish();
        let bytes = head_of(100_003, SYSTEM, &body);
        let (call, mut rest) = call(&bytes).unwrap();
        let by = Credentials { uid: 1000, gid: 100, groups: vec![27, 44] };
        let expected = Call { number: 9, program: 100_003, version: 3, procedure: 1, by: Some(by) };
        assert_eq!(call, Ok(expected));
        assert_eq!(rest.number(), Ok(77));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(call(&[0, 0]).unwrap_err(), Garbage);
        assert_eq!(call(&[0, 0, 0, 1, 0, 0, 0, 1]).unwrap_err(), Garbage, "an answer");
        let refused = |bytes: &[u8]| call(bytes).unwrap().0.unwrap_err().1;
        assert_eq!(refused(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3]), Refusal::Version);
        assert_eq!(refused(&head_of(1, 6, b"")), Refusal::TooWeak, "Kerberos");
        assert_eq!(refused(&head_of(1, SYSTEM, &[0; 8])), Refusal::BadCredentials);
        let mut many = Writer::default();
        [0, 0, 1, 1, 17].into_iter().for_each(|field| many.number(field));
        assert_eq!(refused(&head_of(1, SYSTEM, &many.finish())), Refusal::BadCredentials);
        let whole = head_of(100_003, NONE, b"");
        for length in 8..whole.len() - 4 {
            assert!(call(&whole[..length]).unwrap().0.is_err(), "cut at {length}");
        }
    }

    #[test]
    fn a_record_is_put_together_and_bounded() {
        let mut stream: &[u8] = &[1, 2, 3, 0x80, 0, 0, 2, 4, 5, 99];
        assert_eq!(rest_of_record(&mut stream, [0, 0, 0, 3]).unwrap(), [1, 2, 3, 4, 5]);
        let mut stream: &[u8] = &[1, 2];
        rest_of_record(&mut stream, [0x80, 0, 0, 3]).unwrap_err();
        let mut stream: &[u8] = &[0; 64];
        rest_of_record(&mut stream, [0xff, 0xff, 0xff, 0xff]).unwrap_err();
        let mut stream: &[u8] = &[0; 4096];
        rest_of_record(&mut stream, [0, 0, 0, 0]).unwrap_err();
    }
}
