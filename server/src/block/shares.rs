//! How volumes are shared: the user property `org.cenote:share`, which goes where the pool goes.
//!
//! # What it says
//! A volume without the property is served through every protocol that the daemon listens for, to every
//! client that can connect. `off` serves it through none. Otherwise the property names protocols, separated
//! by spaces, each with options in parentheses:
//!
//! ```text
//! nbd(address=10.0.0.0/8) iscsi(target=vms,lun=2,initiator=iqn.1998-01.com.vmware:*) vhost-user
//! ```
//!
//! | option | of | meaning |
//! |---|---|---|
//! | `address` | nbd, iscsi | an address or a network of clients; several may be given |
//! | `initiator` | iscsi | the name of an initiator, or what it begins with and `*`; several may be given |
//! | `target` | iscsi | the target that the volume is a unit of: a word, or a name such as `iqn.…` |
//! | `lun` | iscsi | the number of the unit, 0 without it |
//! | `sector` | iscsi | 512 or 4096 bytes |
//! | `threshold` | iscsi | initiators are told when more of the room is taken than this share, 90% without it |
//!
//! Children inherit the property, as they do any other, and so do snapshots. A snapshot is always a target of
//! its own, because its volume has the number.
//!
//! # What is not understood
//! A volume whose property makes no sense is not served at all: the property may have named who must not
//! have it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The property's name.
pub const PROPERTY: &str = "org.cenote:share";
/// The highest number of a unit: it fits into the simplest form of numbers.
pub const MOST_UNITS: u8 = 255;
/// The longest name of a target that a word makes.
const MOST_WORD_BYTES: usize = 64;
/// The longest name of a target, in bytes.
const MOST_TARGET_BYTES: usize = 223;

/// A protocol that volumes are served through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// NBD.
    Nbd,
    /// iSCSI.
    Iscsi,
    /// vhost-user-blk.
    VhostUser,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nbd, Self::Iscsi, Self::VhostUser];

    /// Its name in the property.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nbd => "nbd",
            Self::Iscsi => "iscsi",
            Self::VhostUser => "vhost-user",
        }
    }

    fn takes(self, option: &str) -> bool {
        match option {
            "address" => self != Self::VhostUser,
            "initiator" | "target" | "lun" | "sector" | "threshold" => self == Self::Iscsi,
            _ => false,
        }
    }
}

/// Who asks for an export, as far as its protocol knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller<'a> {
    /// Its address; none for one on this machine that came through a socket in the file system.
    pub address: Option<IpAddr>,
    /// The name that it gave, if its protocol has names.
    pub name: Option<&'a str>,
}

/// The bytes of a sector, as a protocol tells them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SectorBytes {
    /// 512.
    #[default]
    Small,
    /// 4096.
    Large,
}

impl SectorBytes {
    /// The number.
    pub const fn get(self) -> u32 {
        match self {
            Self::Small => 512,
            Self::Large => 4096,
        }
    }
}

/// A part of a whole, 1 to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// How much of the room may be taken before initiators are told, where nothing else is said.
    pub const OF_ROOM: Self = Self(90);

    /// It as a number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// What is left of so many bytes when this part of them is taken.
    pub fn rest_of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(100 - self.0) / 100) as u64
    }
}

impl FromStr for Percent {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| ())?;
        if (1..=100).contains(&number) { Ok(Self(number)) } else { Err(()) }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// How many bits are the same in all of them.
    pub fn prefix_bits(self) -> u8 {
        self.prefix_bits
    }

    /// Whether an address is among them.
    pub fn has(self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let ((own, own_width), (other, width)) = (bits(self.address), bits(address));
        let differing = (own ^ other).checked_shr(128 - u32::from(self.prefix_bits)).unwrap_or(0);
        own_width == width && differing == 0
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.map_or(Ok(width), |bits| bits.parse().map_err(|_| ()))?;
        if prefix_bits > width { Err(()) } else { Ok(Self { address, prefix_bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = self.prefix_bits == if self.address.is_ipv4() { 32 } else { 128 };
        match is_one {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.prefix_bits),
        }
    }
}

/// How one protocol serves a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Where clients may come from; from everywhere if empty.
    pub addresses: Vec<Network>,
    /// What clients may be called; anything if empty.
    pub initiators: Vec<String>,
    /// The target that it is a unit of; one of its own without it.
    pub target: Option<String>,
    /// Its number there.
    pub lun: u8,
    /// The sectors that it is told to have.
    pub sector: SectorBytes,
    /// Clients are told when more of the room than this is taken.
    pub threshold: Percent,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            initiators: Vec::new(),
            target: None,
            lun: 0,
            sector: SectorBytes::default(),
            threshold: Percent::OF_ROOM,
        }
    }
}

impl Share {
    /// Whether it may have the volume. Addresses do not matter to one that came through a socket in the file
    /// system: who may use that, its folder says.
    pub fn admits(&self, caller: &Caller<'_>) -> bool {
        let is_near = |address| self.addresses.iter().any(|network| network.has(address));
        let is_called = |name: &str| {
            let name = name.to_ascii_lowercase();
            self.initiators.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *pattern,
            })
        };
        (self.addresses.is_empty() || caller.address.is_none_or(is_near))
            && (self.initiators.is_empty() || caller.name.is_some_and(is_called))
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "address" => {
                let network = value.parse().map_err(|()| format!("'{value}' is no address or network"))?;
                self.addresses.push(network);
            }
            "initiator" => self.initiators.push(initiator_name(value)?),
            "target" => self.target = Some(target_name(value)?),
            "lun" => {
                let most = MOST_UNITS;
                self.lun = value.parse().map_err(|_| format!("'{value}' is no number from 0 to {most}"))?;
            }
            "threshold" => {
                let no_percent = |()| format!("'{value}' is no number from 1% to 100%");
                self.threshold = value.parse().map_err(no_percent)?;
            }
            _ => {
                self.sector = match value {
                    "512" => SectorBytes::Small,
                    "4096" | "4K" | "4k" => SectorBytes::Large,
                    _ => return Err(format!("sectors have 512 or 4096 bytes, not '{value}'")),
                };
            }
        }
        Ok(())
    }

    fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.target.iter().map(|target| format!("target={target}")));
        if self.lun != 0 {
            options.push(format!("lun={}", self.lun));
        }
        if self.sector != SectorBytes::default() {
            options.push(format!("sector={}", self.sector.get()));
        }
        if self.threshold != Percent::OF_ROOM {
            options.push(format!("threshold={}", self.threshold));
        }
        options.extend(self.initiators.iter().map(|initiator| format!("initiator={initiator}")));
        options.extend(self.addresses.iter().map(|address| format!("address={address}")));
        options
    }
}

/// A word, or a whole name as RFC 7143 has them.
fn target_name(value: &str) -> Result<String, String> {
    let name = value.to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_whole = name.starts_with("iqn.") || name.starts_with("eui.") || name.starts_with("naa.");
    let is_right = match is_whole {
        true => name.len() <= MOST_TARGET_BYTES && name.bytes().all(|byte| is_plain(byte) || byte == b':'),
        false => (1..=MOST_WORD_BYTES).contains(&name.len()) && name.bytes().all(is_plain),
    };
    match is_right {
        true => Ok(name),
        false => Err(format!(
            "'{value}' is no name of a target: a word of letters, digits, '-' and '.' (vms), or a whole name, \
             which may have ':' too (iqn.2005-10.org.example:disks)"
        )),
    }
}

/// The name of an initiator, or what it begins with and `*`.
fn initiator_name(value: &str) -> Result<String, String> {
    let start = value.strip_suffix('*').unwrap_or(value);
    let is_plain = |character: char| {
        !character.is_whitespace() && !character.is_control() && !"*,()=".contains(character)
    };
    match !value.is_empty() && value.len() <= MOST_TARGET_BYTES && start.chars().all(is_plain) {
        true => Ok(value.to_ascii_lowercase()),
        false => Err(format!(
            "'{value}' is no name of an initiator: a name such as iqn.1998-01.com.vmware:host, or what it begins \
             with and '*'"
        )),
    }
}

/// Checks the value of an option as it was typed. In the property's text a blank or a comma in it would end
/// it.
///
/// # Errors
/// What is wrong with it, for a person.
pub fn check_option(option: &str, value: &str) -> Result<(), String> {
    Share::default().set(option, value)
}

/// The protocols that serve a volume, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    /// By the order of [`Protocol::ALL`].
    by_protocol: [Option<Share>; 3],
}

impl Default for Shares {
    /// Through all of them, to all.
    fn default() -> Self {
        Self { by_protocol: std::array::from_fn(|_| Some(Share::default())) }
    }
}

impl Shares {
    /// Through none.
    pub fn off() -> Self {
        Self { by_protocol: [None, None, None] }
    }

    /// The same, but as a target of its own. Nothing where it is no unit of another one.
    pub fn with_own_target(mut self) -> Option<Self> {
        let share = self.by_protocol.iter_mut().flatten().find(|share| share.target.is_some())?;
        (share.target, share.lun) = (None, 0);
        Some(self)
    }

    /// How a protocol serves it, if it does.
    pub fn through(&self, protocol: Protocol) -> Option<&Share> {
        self.by_protocol.get(protocol as usize).and_then(Option::as_ref)
    }
}

impl FromStr for Shares {
    type Err = String;

    /// Reads the property.
    ///
    /// # Errors
    /// What makes no sense, for a person.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" | "-" | "on" => return Ok(Self::default()),
            "off" => return Ok(Self::off()),
            _ => {}
        }
        let mut shares = Self::off();
        for word in text.split_whitespace() {
            let (name, options) = match word.split_once('(') {
                Some((name, rest)) => {
                    (name, rest.strip_suffix(')').ok_or_else(|| format!("'{word}' has no ')' at its end"))?)
                }
                None => (word, ""),
            };
            let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
            let protocol = protocol.ok_or_else(|| {
                format!("'{name}' is no protocol: nbd, iscsi, vhost-user, or on or off alone")
            })?;
            let mut share = Share::default();
            for option in options.split(',').filter(|option| !option.is_empty()) {
                let (option, value) =
                    option.split_once('=').ok_or_else(|| format!("'{option}' has no '=' and value"))?;
                if !protocol.takes(option) {
                    return Err(format!("{name} has no option '{option}'"));
                }
                share.set(option, value)?;
            }
            match shares.by_protocol.get_mut(protocol as usize) {
                Some(place) if place.is_none() => *place = Some(share),
                _ => return Err(format!("{name} is named twice")),
            }
        }
        Ok(shares)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return write!(f, "on");
        }
        let mut words = Vec::new();
        for protocol in Protocol::ALL {
            let Some(share) = self.through(protocol) else { continue };
            let options = share.options();
            words.push(match options.is_empty() {
                true => protocol.name().to_owned(),
                false => format!("{}({})", protocol.name(), options.join(",")),
            });
        }
        write!(f, "{}", if words.is_empty() { "off".to_owned() } else { words.join(" ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "on",
            "off",
            "nbd",
            "nbd iscsi",
            "iscsi(target=vms,lun=2,sector=4096,initiator=iqn.a:*,address=10.0.0.0/8) vhost-user",
            "iscsi(threshold=75%)",
            "iscsi(target=iqn.2005-10.org.freenas.ctl:vm)",
            "nbd(address=::1,address=fe80::/10)",
        ] {
            let shares: Shares = text.parse().expect(text);
            assert_eq!(shares.to_string(), text);
        }
        assert_eq!("".parse(), Ok(Shares::default()));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, named) in [
            ("smb", "'smb'"),
            ("nbd nbd", "twice"),
            ("iscsi(lun=256)", "'256'"),
            ("iscsi(lun=1", "')'"),
            ("iscsi(target=a/b)", "'a/b'"),
            ("iscsi(target=)", "''"),
            ("iscsi(initiator=)", "''"),
            ("iscsi(initiator=iqn.*:a)", "'iqn.*:a'"),
            ("iscsi(sector=520)", "'520'"),
            ("iscsi(threshold=0%)", "'0%'"),
            ("iscsi(threshold=101)", "'101'"),
            ("nbd(threshold=50)", "'threshold'"),
            ("nbd(initiator=x)", "'initiator'"),
            ("nbd(address=10.0.0.0/33)", "'10.0.0.0/33'"),
            ("nbd(address=host)", "'host'"),
            ("iscsi(lun)", "'lun'"),
            ("off nbd", "'off'"),
        ] {
            let error = text.parse::<Shares>().expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_unit_of_another_target_can_have_its_own() {
        let own = |text: &str| text.parse::<Shares>().expect(text).with_own_target();
        let left = own("nbd iscsi(target=vms,lun=2,sector=4096)").expect("a target");
        assert_eq!(left.to_string(), "nbd iscsi(sector=4096)");
        assert_eq!((own("on"), own("nbd iscsi(lun=2)")), (None, None));
    }

    #[test]
    fn a_part_leaves_the_rest() {
        let part = |text: &str| text.parse::<Percent>().expect("a part");
        assert_eq!((part("90%").rest_of(1000), part("100").rest_of(1000)), (100, 0));
        assert_eq!(part("1%").rest_of(u64::MAX), (u128::from(u64::MAX) * 99 / 100) as u64);
    }

    #[test]
    fn only_those_that_are_named_may_have_it() {
        let shares: Shares = "iscsi(initiator=iqn.a:*,initiator=IQN.b,address=10.1.0.0/16,address=fd00::/8)"
            .parse()
            .expect("valid");
        let share = shares.through(Protocol::Iscsi).expect("shared");
        let admits = |name, address: &str| {
            share.admits(&Caller { address: Some(address.parse().expect("an address")), name: Some(name) })
        };
        assert!(
            admits("iqn.a:1", "10.1.2.3") && admits("iqn.B", "::ffff:10.1.0.9") && admits("iqn.b", "fd12::1")
        );
        assert!(
            !admits("iqn.c", "10.1.2.3") && !admits("iqn.a:1", "10.2.0.1") && !admits("iqn.b1", "10.1.2.3")
        );
        assert!(!admits("iqn.a:1", "fe80::1"));
        assert!(!share.admits(&Caller { address: None, name: None }));
        assert!(shares.through(Protocol::Nbd).is_none());
        let everywhere: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(everywhere.has("1.2.3.4".parse().expect("an address")));
        assert!(!everywhere.has("::1".parse().expect("an address")));
    }
}
