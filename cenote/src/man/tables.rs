//! Pages of section 7: the tables of properties and tunables.

use engine::pool::properties::table as pools;
use engine::properties::kept::KEPT;
use engine::properties::table::TABLE;
use engine::properties::{Attr, Kind, Types, index};
use engine::tunables::{self, Effect, Unit};

use super::MANUAL;

/// All pages: the name, and the text.
pub fn all() -> [(&'static str, String); 3] {
    [
        ("cenote-properties", datasets()),
        ("cenote-pool-properties", pool_properties()),
        ("cenote-tunables", tunables_page()),
    ]
}

/// A text in which nothing is a request of roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // In front of a line these two begin a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn head(name: &str, summary: &str, about: &str) -> String {
    format!(
        ".TH \"{}\" \"7\" \"\" \"cenote {}\" \"{MANUAL}\"\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n{}\n",
        name.to_uppercase(),
        env!("CARGO_PKG_VERSION"),
        escaped(name),
        escaped(summary),
        escaped(about)
    )
}

/// An entry: a heading, and sentences.
fn entry(heading: &str, sentences: &[String]) -> String {
    let text: Vec<String> = sentences.iter().map(|sentence| escaped(sentence)).collect();
    format!(".TP\n.B {}\n{}\n", escaped(heading), text.join("\n"))
}

fn see_also(pages: &str) -> String {
    format!(".SH SEE ALSO\n{}\n", escaped(pages))
}

/// What can stand behind the name of a property.
fn values(kind: Kind) -> String {
    match kind {
        Kind::Index(_, names) => index::choices(names),
        Kind::Number(_) => "a number".to_owned(),
        Kind::Text(_) => "a text".to_owned(),
    }
}

fn settable(attr: Attr) -> &'static str {
    match attr {
        Attr::Readonly => "It is read only.",
        Attr::Onetime | Attr::OnetimeDefault => "It is set at creation.",
        Attr::Default => "It can be set, and is not inherited.",
        Attr::Inherit => "It can be set, and is inherited.",
    }
}

fn datasets() -> String {
    let about = "Properties of filesystems, volumes, snapshots and bookmarks. 'zfs get' shows them, 'zfs \
                 set' sets them, 'zfs inherit' takes a value away. Names, numbers and meanings are those of \
                 OpenZFS. A name with a colon is a property of the user.";
    let mut text = head("cenote-properties", "properties of datasets", about);
    let kinds = [
        (Types::FILESYSTEM, "filesystems"),
        (Types::VOLUME, "volumes"),
        (Types::SNAPSHOT, "snapshots"),
        (Types::BOOKMARK, "bookmarks"),
    ];
    let mut known: Vec<_> = TABLE.iter().filter(|desc| desc.visible).collect();
    known.sort_by_key(|desc| desc.name);
    for desc in known {
        let of = kinds.iter().filter(|(types, _)| desc.types.meets(*types)).map(|(_, name)| *name);
        let mut sentences = vec![
            format!("Values: {}.", values(desc.kind)),
            settable(desc.attr).to_owned(),
            format!("For {}.", of.collect::<Vec<_>>().join(", ")),
        ];
        if KEPT.contains(&desc.prop) {
            sentences.push("It is kept for OpenZFS and has no effect here.".to_owned());
        }
        text += &entry(desc.name, &sentences);
    }
    text + &see_also("cenote-zfs-get(8), cenote-zfs-set(8), cenote-zfs-inherit(8), cenote-pool-properties(7)")
}

fn pool_properties() -> String {
    let about = "Properties of pools and of their vdevs. 'zpool get' shows them, 'zpool set' sets them.";
    let mut text = head("cenote-pool-properties", "properties of pools and vdevs", about);
    let line = |name: &str, kind: Kind, attr: Attr| {
        entry(name, &[format!("Values: {}.", values(kind)), settable(attr).to_owned()])
    };
    let mut of_pools: Vec<_> = pools::POOL_TABLE.iter().filter(|desc| desc.visible).collect();
    of_pools.sort_by_key(|desc| desc.name);
    text += ".SH PROPERTIES OF POOLS\n";
    of_pools.iter().for_each(|desc| text += &line(desc.name, desc.kind, desc.attr));
    let mut of_vdevs: Vec<_> = pools::VDEV_TABLE.iter().filter(|desc| desc.visible).collect();
    of_vdevs.sort_by_key(|desc| desc.name);
    text += ".SH PROPERTIES OF VDEVS\n";
    of_vdevs.iter().for_each(|desc| text += &line(desc.name, desc.kind, desc.attr));
    text + &see_also("cenote-zpool-get(8), cenote-zpool-set(8), cenote-properties(7)")
}

fn tunables_page() -> String {
    let about = "Numbers of the daemon that can be set while it runs, under the names of the parameters of \
                 OpenZFS's module. 'cenote tunable' shows and sets them.";
    let mut text = head("cenote-tunables", "numbers of the daemon that can be set", about);
    let mut known: Vec<_> = tunables::all().to_vec();
    known.sort_by_key(|tunable| tunable.name());
    for tunable in known {
        let unit = match tunable.unit() {
            Unit::Switch => "0 for off, 1 for on",
            Unit::Count => "a count",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes in a second",
            Unit::Percent => "hundredths",
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Groups => "transaction groups",
        };
        let counts = match tunable.effect() {
            Effect::AtOnce => "A new value counts at once.",
            Effect::ForNew => "A new value counts for what begins later.",
            Effect::AtImport => "A new value counts for pools that are imported later.",
        };
        let (least, most) = tunable.range();
        let about = tunable.text().split_whitespace().collect::<Vec<_>>().join(" ");
        let most = if most >= u64::MAX / 2 { String::new() } else { format!(", at most {most}") };
        let numbers = format!("Unit: {unit}; default {}, at least {least}{most}.", tunable.default_value());
        text += &entry(tunable.name(), &[about, numbers, counts.to_owned()]);
    }
    text + &see_also("cenote-tunable(8)")
}
