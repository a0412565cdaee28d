//! The devices of a pool as typed: `mirror /a /b log /c spare /d`.
//!
//! A word that names a layout begins a group, and so do `log`, `special`, `dedup`, `cache` and `spare`; all
//! other words are devices. Source of the facts: OpenZFS 2.3 `zpool_vdev.c` (`construct_spec`,
//! `draid_config_by_type`), `zpoolconcepts.7`.

use std::path::Path;

use anyhow::{Result, anyhow};
use device::address::is_complete;
use engine::pool::discovery::DEFAULT_DIRECTORIES;
use ondisk::nearest::nearest;
use server::api::{NewClass, NewDevices, NewLayout, NewVdev, VdevClass, VdevNode};

use super::vdevs::{Naming, of_class};
use crate::remotes;

/// Most devices in a raidz or draid vdev.
const MAX_CHILDREN: usize = 255;
/// Data columns of a draid group by default.
const DEFAULT_DRAID_DATA: usize = 8;
/// Most distributed spares.
const MAX_DRAID_SPARES: usize = 100;

fn refuse(why: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("invalid vdev specification: {why}")
}

/// A word that begins a group.
enum Group {
    Vdev { layout: Layout, word: String },
    Class(NewClass),
    Cache,
    Spare,
}

/// The words that begin groups, as far as they are whole words.
const GROUPS: [&str; 11] =
    ["mirror", "raidz", "raidz1", "raidz2", "raidz3", "draid", "log", "special", "dedup", "cache", "spare"];

enum Layout {
    Mirror,
    Raidz(u8),
    Draid(String),
}

fn group_of(word: &str) -> Option<Group> {
    let raidz = |nparity| Some(Group::Vdev { layout: Layout::Raidz(nparity), word: word.to_owned() });
    match word {
        "mirror" => Some(Group::Vdev { layout: Layout::Mirror, word: word.to_owned() }),
        "raidz" | "raidz1" => raidz(1),
        "raidz2" => raidz(2),
        "raidz3" => raidz(3),
        "log" => Some(Group::Class(NewClass::Log)),
        "special" => Some(Group::Class(NewClass::Special)),
        "dedup" => Some(Group::Class(NewClass::Dedup)),
        "cache" => Some(Group::Cache),
        "spare" => Some(Group::Spare),
        _ => {
            let rest = word.strip_prefix("draid")?;
            let plain =
                rest.is_empty() || rest.starts_with(|next: char| next == ':' || next.is_ascii_digit());
            plain.then(|| Group::Vdev { layout: Layout::Draid(rest.to_owned()), word: word.to_owned() })
        }
    }
}

/// The devices that the words name.
pub fn parse(words: &[String]) -> Result<NewDevices> {
    let mut devices = NewDevices::default();
    let mut class = NewClass::Normal;
    let (mut has_logs, mut has_cache, mut has_spares) = (false, false, false);
    let once = |has: &mut bool, word: &str| match std::mem::replace(has, true) {
        true => Err(refuse(format!("'{word}' can be specified only once"))),
        false => Ok(()),
    };
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        let count = after.iter().take_while(|word| group_of(word).is_none()).count();
        let members = || after[..count].iter().map(Into::into).collect::<Vec<std::path::PathBuf>>();
        match group_of(word) {
            None => {
                let devices_of = vec![word.into()];
                devices.vdevs.push(NewVdev { layout: NewLayout::Single, class, devices: devices_of });
                rest = after;
                continue;
            }
            Some(Group::Class(named)) => {
                if named == NewClass::Log {
                    once(&mut has_logs, word)?;
                }
                if after.is_empty() {
                    return Err(refuse(format!("{word} requires at least 1 devices")));
                }
                class = named;
                rest = after;
                continue;
            }
            Some(Group::Cache) => {
                once(&mut has_cache, word)?;
                at_least(word, count, 1)?;
                devices.cache.extend(members());
                class = NewClass::Normal;
            }
            Some(Group::Spare) => {
                once(&mut has_spares, word)?;
                at_least(word, count, 1)?;
                devices.spares.extend(members());
                class = NewClass::Normal;
            }
            Some(Group::Vdev { layout, word }) => {
                if class == NewClass::Log && !matches!(layout, Layout::Mirror) {
                    return Err(refuse(format!("unsupported 'log' device: {word}")));
                }
                let layout = layout_of(&layout, &word, count)?;
                devices.vdevs.push(NewVdev { layout, class, devices: members() });
            }
        }
        rest = &after[count..];
    }
    if devices.vdevs.is_empty() && devices.spares.is_empty() && devices.cache.is_empty() {
        return Err(refuse("at least one toplevel vdev must be specified"));
    }
    Ok(devices)
}

/// Refuses a device that is given by a name and not by its full path, and that no directory of devices has.
/// The daemon says the same of other clients' requests, and cannot know where a file that was meant lies.
pub fn check_names(words: &[String]) -> Result<()> {
    // Which devices another machine has, it knows itself.
    if remotes::is_afar() {
        return Ok(());
    }
    let is_device =
        |name: &Path| DEFAULT_DIRECTORIES.iter().any(|place| Path::new(place).join(name).exists());
    let named = words.iter().filter(|word| group_of(word).is_none()).map(Path::new);
    let Some(name) = named.filter(|word| !is_complete(word)).find(|word| !is_device(word)) else {
        return Ok(());
    };
    let shown = name.display();
    let here = std::path::absolute(name).unwrap_or_else(|_| name.to_owned());
    if here.exists() {
        return Err(anyhow!("cannot use '{shown}': files are given by their full path: {}", here.display()));
    }
    let meant = name.to_str().and_then(|word| nearest(word, GROUPS));
    Err(match meant {
        Some(meant) => anyhow!("cannot open '{shown}': no such file or device; did you mean '{meant}'?"),
        None => anyhow!(
            "cannot open '{shown}': no such device in /dev, and the file {} does not exist\n\
             files are given by their full path",
            here.display()
        ),
    })
}

fn at_least(word: &str, count: usize, least: usize) -> Result<()> {
    match count < least {
        true => Err(refuse(format!("{word} requires at least {least} devices"))),
        false => Ok(()),
    }
}

fn layout_of(layout: &Layout, word: &str, count: usize) -> Result<NewLayout> {
    if count > MAX_CHILDREN && !matches!(layout, Layout::Mirror) {
        return Err(refuse(format!("{word} supports no more than {MAX_CHILDREN} devices")));
    }
    match layout {
        Layout::Mirror => {
            at_least(word, count, 2)?;
            Ok(NewLayout::Mirror)
        }
        Layout::Raidz(nparity) => {
            at_least(word, count, usize::from(*nparity) + 1)?;
            Ok(NewLayout::Raidz { nparity: *nparity })
        }
        Layout::Draid(options) => draid(options, word, count),
    }
}

/// `draid[1-3][:<data>d][:<children>c][:<spares>s]`.
fn draid(options: &str, word: &str, count: usize) -> Result<NewLayout> {
    let bad = || anyhow!("invalid draid configuration: '{word}'");
    let mut parts = options.split(':');
    let nparity: usize = match parts.next() {
        None | Some("") => 1,
        Some(text) => text.parse().ok().filter(|parity| (1..=3).contains(parity)).ok_or_else(|| {
            anyhow!("invalid dRAID parity level: '{word}'; only values between 1 and 3 are allowed")
        })?,
    };
    let (mut data, mut children, mut spares) = (None, None, 0usize);
    for part in parts {
        let unit = part.chars().next_back().ok_or_else(bad)?;
        let number: usize = part.strip_suffix(unit).and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
        match unit {
            'd' | 'D' => data = Some(number),
            'c' | 'C' => children = Some(number),
            's' | 'S' => spares = number,
            _ => return Err(bad()),
        }
    }
    at_least(word, count, nparity + 1)?;
    if let Some(children) = children.filter(|children| *children != count) {
        return Err(anyhow!("invalid number of dRAID children; {children} required but {count} provided"));
    }
    if spares > MAX_DRAID_SPARES {
        return Err(anyhow!(
            "invalid number of dRAID spares {spares}; only values between 0 and {MAX_DRAID_SPARES} are \
             allowed"
        ));
    }
    let columns = count.checked_sub(spares + nparity).filter(|columns| *columns > 0).ok_or_else(|| {
        anyhow!(
            "invalid dRAID configuration; too few children ({count}) for {spares} spares and parity {nparity}"
        )
    })?;
    let ndata = data.unwrap_or_else(|| columns.min(DEFAULT_DRAID_DATA));
    if ndata == 0 || ndata > columns {
        return Err(anyhow!(
            "requested number of dRAID data disks per group {ndata} is too high, at most {columns} disks are \
             available for data"
        ));
    }
    let byte = |number: usize| u8::try_from(number).map_err(|_| bad());
    Ok(NewLayout::Draid { nparity: byte(nparity)?, ndata: byte(ndata)?, nspares: byte(spares)? })
}

/// The layout as `-n` shows it, section by section: what the pool has already, named like that, before what
/// is new.
pub fn render(pool: &str, existing: Option<(&VdevNode, Naming)>, devices: &NewDevices) -> String {
    let mut text = String::new();
    let sections = [
        (pool, VdevClass::Normal, NewClass::Normal),
        ("dedup", VdevClass::Dedup, NewClass::Dedup),
        ("special", VdevClass::Special, NewClass::Special),
        ("logs", VdevClass::Log, NewClass::Log),
    ];
    for (heading, class, new_class) in sections {
        let mut lines = String::new();
        if let Some((root, naming)) = existing {
            of_class(root, class).for_each(|top| existing_lines(pool, top, naming, 2, &mut lines));
        }
        for vdev in devices.vdevs.iter().filter(|vdev| vdev.class == new_class) {
            let depth = match name_of(vdev) {
                Some(name) => {
                    lines.push_str(&format!("\t  {name}\n"));
                    4
                }
                None => 2,
            };
            for device in &vdev.devices {
                lines.push_str(&format!("\t{}{}\n", " ".repeat(depth), shown(device)));
            }
        }
        if !lines.is_empty() || new_class == NewClass::Normal {
            text.push_str(&format!("\t{heading}\n{lines}"));
        }
    }
    let lists =
        [("cache", VdevClass::L2cache, &devices.cache), ("spares", VdevClass::Spare, &devices.spares)];
    for (heading, class, new) in lists {
        let mut lines = String::new();
        if let Some((root, naming)) = existing {
            of_class(root, class).for_each(|vdev| existing_lines(pool, vdev, naming, 2, &mut lines));
        }
        new.iter().for_each(|device| lines.push_str(&format!("\t  {}\n", shown(device))));
        if !lines.is_empty() {
            text.push_str(&format!("\t{heading}\n{lines}"));
        }
    }
    text
}

/// A vdev of the pool with those below it. As in OpenZFS only groups of the normal class show their number.
fn existing_lines(pool: &str, vdev: &VdevNode, naming: Naming, depth: usize, lines: &mut String) {
    let name = naming.name(pool, vdev);
    let numbered = vdev.children.is_empty() || vdev.class == VdevClass::Normal;
    let name = if numbered { &name } else { name.rsplit_once('-').map_or(&*name, |(name, _)| name) };
    lines.push_str(&format!("\t{}{name}\n", " ".repeat(depth)));
    vdev.children.iter().for_each(|child| existing_lines(pool, child, naming, depth + 2, lines));
}

fn name_of(vdev: &NewVdev) -> Option<String> {
    match vdev.layout {
        NewLayout::Single => None,
        NewLayout::Mirror => Some("mirror".to_owned()),
        NewLayout::Raidz { nparity } => Some(format!("raidz{nparity}")),
        NewLayout::Draid { nparity, ndata, nspares } => {
            Some(format!("draid{nparity}:{ndata}d:{}c:{nspares}s", vdev.devices.len()))
        }
    }
}

/// Devices in `/dev` go by their last part.
fn shown(device: &std::path::Path) -> String {
    let short = if device.starts_with("/dev") { device.file_name().map(Into::into) } else { None };
    short.unwrap_or_else(|| device.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn groups_and_classes_are_told_apart() {
        let devices = parse(&words("mirror /a /b special mirror /c /d log /e cache /f spare /g /h")).unwrap();
        let kinds: Vec<(NewLayout, NewClass, usize)> =
            devices.vdevs.iter().map(|vdev| (vdev.layout, vdev.class, vdev.devices.len())).collect();
        let expected = [
            (NewLayout::Mirror, NewClass::Normal, 2),
            (NewLayout::Mirror, NewClass::Special, 2),
            (NewLayout::Single, NewClass::Log, 1),
        ];
        assert_eq!(kinds, expected);
        assert_eq!((devices.cache.len(), devices.spares.len()), (1, 2));
        let text = render("tank", None, &devices);
        let expected = "\ttank\n\t  mirror\n\t    /a\n\t    /b\n\tspecial\n\t  mirror\n\t    /c\n\t    /d\n\
                        \tlogs\n\t  /e\n\tcache\n\t  /f\n\tspares\n\t  /g\n\t  /h\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn draid_options_are_checked() {
        let devices = parse(&words("draid2:3d:1s a b c d e f g h i")).unwrap();
        assert_eq!(devices.vdevs[0].layout, NewLayout::Draid { nparity: 2, ndata: 3, nspares: 1 });
        assert!(render("p", None, &devices).contains("draid2:3d:9c:1s"));
        let devices = parse(&words("draid a b c d")).unwrap();
        assert_eq!(devices.vdevs[0].layout, NewLayout::Draid { nparity: 1, ndata: 3, nspares: 0 });
        for bad in ["draid4 a b c d e f", "draid:9d a b c", "draid:3c a b", "draid:x a b", "draid1:1s a b"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_nothing_say_what_may_have_been_meant() {
        let said = |text: &str| check_names(&words(text)).unwrap_err().to_string();
        assert!(said("/a miror /b /c").ends_with("'miror': no such file or device; did you mean 'mirror'?"));
        assert!(said("raid1 /b /c").ends_with("did you mean 'raidz'?"));
        let missing = said("nothing-here.img");
        assert!(missing.contains("/nothing-here.img does not exist"), "{missing}");
        // Tests run in the crate's directory.
        assert!(said("Cargo.toml").contains("files are given by their full path: /"));
        assert!(check_names(&words("mirror /a /b draid2:3d /c")).is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, why) in [
            ("mirror /a", "mirror requires at least 2 devices"),
            ("raidz2 /a /b", "raidz2 requires at least 3 devices"),
            ("/a log raidz /b /c", "unsupported 'log' device: raidz"),
            ("/a spare /b spare /c", "'spare' can be specified only once"),
            ("/a cache", "cache requires at least 1 devices"),
        ] {
            let error = parse(&words(text)).unwrap_err().to_string();
            assert_eq!(error, format!("invalid vdev specification: {why}"));
        }
        assert!(parse(&[]).is_err());
    }
}
