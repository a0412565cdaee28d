//! The devices of a pool as typed: `mirror /a /b log /c spare /d`.
//!
//! A word that names a layout begins a group, and so do `log`, `special`, `dedup`, `cache` and `spare`; all other words are devices. Source of the
//! facts: OpenZFS 2.3 `zpool_vdev.c` (`construct_spec`, `draid_config_by_type`), `zpoolconcepts.7`.

use anyhow::{Result, anyhow};
use server::api::{NewClass, NewDevices, NewLayout, NewVdev};

/// Most devices in a raidz or draid vdev.
const MAX_CHILDREN: usize = 255;
/// Data columns of a draid group that is told none.
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
            "invalid number of dRAID spares {spares}; only values between 0 and {MAX_DRAID_SPARES} are allowed"
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
            "requested number of dRAID data disks per group {ndata} is too high, at most {columns} disks are available for data"
        ));
    }
    let byte = |number: usize| u8::try_from(number).map_err(|_| bad());
    Ok(NewLayout::Draid { nparity: byte(nparity)?, ndata: byte(ndata)?, nspares: byte(spares)? })
}

/// The layout as `-n` shows it, section by section.
pub fn render(pool: &str, existing: &[(usize, String)], devices: &NewDevices) -> String {
    let mut text = format!("\t{pool}\n");
    for (depth, name) in existing {
        text.push_str(&format!("\t{}{name}\n", " ".repeat(*depth)));
    }
    let sections = [
        (None, NewClass::Normal),
        (Some("dedup"), NewClass::Dedup),
        (Some("special"), NewClass::Special),
        (Some("logs"), NewClass::Log),
    ];
    for (heading, class) in sections {
        let vdevs: Vec<&NewVdev> = devices.vdevs.iter().filter(|vdev| vdev.class == class).collect();
        if let (Some(heading), false) = (heading, vdevs.is_empty()) {
            text.push_str(&format!("\t{heading}\n"));
        }
        for vdev in vdevs {
            let depth = match name_of(vdev) {
                Some(name) => {
                    text.push_str(&format!("\t  {name}\n"));
                    4
                }
                None => 2,
            };
            for device in &vdev.devices {
                text.push_str(&format!("\t{}{}\n", " ".repeat(depth), shown(device)));
            }
        }
    }
    for (heading, list) in [("cache", &devices.cache), ("spares", &devices.spares)] {
        if !list.is_empty() {
            text.push_str(&format!("\t{heading}\n"));
        }
        for device in list {
            text.push_str(&format!("\t  {}\n", shown(device)));
        }
    }
    text
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
        let text = render("tank", &[], &devices);
        let expected = "\ttank\n\t  mirror\n\t    /a\n\t    /b\n\tspecial\n\t  mirror\n\t    /c\n\t    /d\n\
                        \tlogs\n\t  /e\n\tcache\n\t  /f\n\tspares\n\t  /g\n\t  /h\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn draid_options_are_checked() {
        let devices = parse(&words("draid2:3d:1s a b c d e f g h i")).unwrap();
        assert_eq!(devices.vdevs[0].layout, NewLayout::Draid { nparity: 2, ndata: 3, nspares: 1 });
        assert!(render("p", &[], &devices).contains("draid2:3d:9c:1s"));
        let devices = parse(&words("draid a b c d")).unwrap();
        assert_eq!(devices.vdevs[0].layout, NewLayout::Draid { nparity: 1, ndata: 3, nspares: 0 });
        for bad in ["draid4 a b c d e f", "draid:9d a b c", "draid:3c a b", "draid:x a b", "draid1:1s a b"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
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
