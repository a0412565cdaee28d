//! Rules of the source tree that the compiler does not check.
//!
//! | rule | what fails |
//! |---|---|
//! | folders of the engine stand in an order; those of the lab, the server and the program too | an import from a folder that stands above |
//! | rooms of the daemon stand in an order (`rooms`) | an import from a room that stands above |
//! | files of the lab, the server and the program do not import each other in large circles (`circles`) | a circle of more files than it had |
//! | lines are read on narrow screens | a line of code or of a comment with more than 110 columns, but for rows of tables |
//! | a function and a file hold one idea each (`lengths`) | a function with more than 100 lines, a file with more than 700 |
//! | the engine shows what others use (`public`) | a `pub` item of the engine that no other crate names |
//! | a sentence names its subject (`words`) | a comment with "whoever", "somebody" or the like |
//!
//! Each rule counts what broke it before the rule was there. The count may only fall: a change that mends
//! some of it lowers the number. `planted` shows that each rule finds what breaks it.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/lengths.rs"]
mod lengths;
#[path = "tidy/planted.rs"]
mod planted;
#[path = "tidy/public.rs"]
mod public;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The modules of the engine, the lowest first. Each may import from those before it.
const ENGINE: &[&str] = &[
    "bookmark",
    "error",
    "tunables",
    "events",
    "background",
    "env",
    "stats",
    "queue",
    "waits",
    "patience",
    "range_set",
    "cache",
    "txg",
    "inject",
    "vdev",
    "l2arc",
    "store",
    "alloc",
    "zio",
    "dmu",
    "space_maps",
    "zil",
    "traverse",
    "mos",
    "tables",
    "properties",
    "range_locks",
    "zvol",
    "zpl",
    "dsl",
    "scan",
    "jobs",
    "send",
    "pool",
    "receive",
];

/// The same of the lab.
const LAB: &[&str] = &[
    "error",
    "size",
    "stats",
    "table",
    "series",
    "machine",
    "medium",
    "subprocess",
    "input_file",
    "created_files",
    "export",
    "environment",
    "metric",
    "layout",
    "layer",
    "reference",
    "counters",
    "search",
    "models",
    "advice",
    "trace",
    "remote",
    "setting",
    "workload",
    "design",
    "guest",
    "fio",
    "load",
    "copy",
    "programs",
    "site",
    "experiment",
    "recipes",
    "plan",
    "store",
    "progress",
    "found",
    "target",
    "preflight",
    "analysis",
    "run",
    "report",
    "compare",
    "scenario",
];

/// The same of the server.
const SERVER: &[&str] = &[
    "sizes",
    "descriptors",
    "cpu_latency",
    "commit_on_unmount",
    "runtime",
    "users",
    "socket",
    "cachefile",
    "progress_file",
    "gate",
    "block",
    "files",
    "api",
    "handover",
    "caller",
    "bounded",
    "outgoing",
    "smtp",
    "key_server",
    "audit",
    "accounts",
    "listening",
    "nbd",
    "iscsi",
    "vhost_user",
    "nfs",
    "smb",
    "load",
    "fuse",
    "blockdev",
    "daemon",
    "feed",
    "http",
    "public",
    "metrics",
    "web",
    "takeover",
];

/// The same of the command line.
const CENOTE: &[&str] = &[
    "parameters",
    "remotes",
    "prompt",
    "progress",
    "table",
    "dead_mounts",
    "serving",
    "serve",
    "client",
    "output",
    "remote",
    "command_line",
    "columns",
    "property_list",
    "feed",
    "counters",
    "exported",
    "copy",
    "dedup_files",
    "version",
    "reshape",
    "completion",
    "api",
    "arcstat",
    "arcsummary",
    "attach",
    "audit",
    "dashboard",
    "hooks",
    "inject",
    "man",
    "mount_helper",
    "object_check",
    "export_image",
    "nfs",
    "scrub_schedule",
    "share",
    "standby",
    "top",
    "tunable",
    "unmount_helper",
    "up",
    "what_if",
    "zdb",
    "lab",
    "zfs",
    "snapshot_schedule",
    "replicate",
    "doctor",
    "zpool",
    "zstream",
    "cli",
    "not_yet",
    "documented",
];

/// A crate whose modules stand in an order.
struct Ordered {
    /// Its folder.
    name: &'static str,
    /// Its modules, the lowest first.
    order: &'static [&'static str],
    /// Items that its root gives a shorter name, with the modules that have them.
    of_root: &'static [(&'static str, &'static str)],
    /// Imports upwards that are still there: the module, the one that it imports, and in how many files.
    upwards: &'static [(&'static str, &'static str, usize)],
}

/// The crates whose modules stand in an order.
const ORDERED: [Ordered; 4] = [
    Ordered {
        name: "engine",
        order: ENGINE,
        of_root: &[
            ("Pool", "store"),
            ("Block", "cache"),
            ("Bookmark", "bookmark"),
            ("Error", "error"),
            ("Result", "error"),
        ],
        upwards: &[],
    },
    Ordered {
        name: "lab",
        order: LAB,
        of_root: &[("Error", "error"), ("Result", "error"), ("Experiment", "experiment"), ("Plan", "plan")],
        // Its check, and what makes another of it.
        upwards: &[("experiment", "plan", 3)],
    },
    Ordered { name: "server", order: SERVER, of_root: &[], upwards: &[] },
    Ordered { name: "cenote", order: CENOTE, of_root: &[], upwards: &[] },
];

const WIDEST: usize = 110;
/// Wider lines that are still there, most of them texts and data in quotes.
const WIDE_LINES: usize = 190;
/// So many fewer may be left before the number is to be lowered.
const SLACK: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Whether a folder has what Cargo builds: it is called `target` and lies beside a `Cargo.toml`.
fn is_built(folder: &Path) -> bool {
    let is_target = folder.ends_with("target") && folder.with_file_name("Cargo.toml").is_file();
    is_target || folder.ends_with("node_modules")
}

/// All files with this ending below a folder, without what is built.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match path.is_dir() {
                true if !is_built(&path) && !name.starts_with('.') => folders.push(path),
                false if name.ends_with(ending) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// All Rust files of a tree: the path below its root, and the text.
fn sources(root: &Path) -> Vec<(String, String)> {
    let source = |path: &PathBuf| {
        let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("text"))
    };
    files(root, ".rs").iter().map(source).collect()
}

/// Fails when a rule is broken more often than it was, and when the number that says so can be lowered.
fn ratchet(name: &str, allowed: usize, slack: usize, found: &[String]) {
    assert!(found.len() <= allowed, "{} break the rule, {name} = {allowed} may: {found:#?}", found.len());
    assert!(found.len() + slack >= allowed, "fewer break the rule: {name} can be {}", found.len());
}

/// Where the unit tests at the end of a source file begin.
fn code_end(text: &str) -> usize {
    text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len())
}

/// The lines of a source file that are no comments and no unit tests at its end.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text[..code_end(text)].lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The modules that code names by `crate::`, with those of the items in `of_root`.
fn named<'a>(code: &'a str, of_root: &[(&str, &'static str)]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let name = |text: &str| {
            text.len() - text.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len()
        };
        match rest.strip_prefix('{') {
            None => found.push(&rest[..name(rest)]),
            Some(list) => {
                let mut depth = 0;
                let mut begins = true;
                for (at, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        c if begins && (c.is_alphanumeric() || c == '_') => {
                            begins = false;
                            found.push(&list[at..at + name(&list[at..])]);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
        .iter()
        .map(|name| of_root.iter().find(|(short, _)| short == name).map_or(*name, |(_, of)| of))
        .collect()
}

/// What files of a crate import from above: (module, imported) and the files.
fn upwards(ordered: &Ordered, sources: &[(String, String)]) -> BTreeMap<(String, String), Vec<String>> {
    let place = |module: &str| ordered.order.iter().position(|known| *known == module);
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (path, text) in sources {
        let is_test = path.contains("tests")
            || ["dmu/forge.rs", "analysis/planted_effects.rs", "lib.rs", "main.rs"].contains(&path.as_str());
        let module = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        if is_test {
            continue;
        }
        let here = place(module)
            .unwrap_or_else(|| panic!("{path}: '{module}' has no place in the order of {}", ordered.name));
        let code = code(text).collect::<Vec<_>>().join("\n");
        let mut above: Vec<&str> = named(&code, ordered.of_root);
        above.retain(|name| place(name).is_some_and(|place| place > here));
        above.sort_unstable();
        above.dedup();
        for name in above {
            found.entry((module.to_owned(), name.to_owned())).or_default().push(path.clone());
        }
    }
    found
}

/// [`upwards`] of a crate of a tree.
fn folders_upwards(root: &Path, ordered: &Ordered) -> BTreeMap<(String, String), Vec<String>> {
    upwards(ordered, &sources(&root.join(ordered.name).join("src")))
}

#[test]
fn folders_import_downwards() {
    for ordered in &ORDERED {
        let found = folders_upwards(&root(), ordered);
        for ((module, above), files) in &found {
            let allowed = ordered.upwards.iter().find(|(from, to, _)| from == module && to == above);
            let allowed = allowed.map_or(0, |(_, _, count)| *count);
            assert!(
                files.len() <= allowed,
                "{module} stands below {above}, and {} files of it import that ({allowed} may): {files:?}",
                files.len()
            );
            assert!(
                files.len() == allowed,
                "fewer files import upwards: `upwards` has {allowed}, now {}",
                files.len()
            );
        }
        for (from, to, _) in ordered.upwards {
            assert!(found.contains_key(&((*from).into(), (*to).into())), "{from} imports {to} no more");
        }
    }
}

#[test]
fn an_import_upwards_is_found() {
    let [engine, lab, server, cenote] = &ORDERED;
    let of = |ordered: &Ordered, path: &str, text: &str| {
        upwards(ordered, &[(path.into(), text.into())]).into_keys().collect::<Vec<_>>()
    };
    let one = |path: &str, text: &str| of(engine, path, text);
    let pair = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
    assert_eq!(one("zio/read.rs", "use crate::pool::import;"), pair("zio", "pool"));
    assert_eq!(one("vdev.rs", "use crate::{Error, dmu::{Object, Objset}};"), pair("vdev", "dmu"));
    assert_eq!(one("cache/arc.rs", "use crate::{Block, Pool};"), pair("cache", "store"));
    assert_eq!(one("txg.rs", "fn of() { crate::zil::open() }"), pair("txg", "zil"));
    assert_eq!(one("pool/load.rs", "use crate::zio::{self, How};"), []);
    assert_eq!(
        one("zio/read.rs", "//! See [`crate::pool`].\n#[cfg(test)]\nmod tests { use crate::pool; }"),
        []
    );
    assert_eq!(of(lab, "site/path.rs", "use crate::{Experiment, Result};"), pair("site", "experiment"));
    assert_eq!(of(lab, "target.rs", "use crate::site::Named;"), []);
    assert_eq!(of(server, "nbd/tls.rs", "use crate::daemon::Daemon;"), pair("nbd", "daemon"));
    assert_eq!(of(cenote, "output.rs", "use crate::zpool::{self, status};"), pair("output", "zpool"));
}

/// Lines with more than [`WIDEST`] columns that are no rows of tables in comments.
fn wide(text: &str) -> Vec<(usize, &str)> {
    let is_row = |line: &str| line.trim_start().trim_start_matches(['/', '!']).starts_with(" |");
    (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > WIDEST && !is_row(line)).collect()
}

/// The places of wide lines in a tree.
fn wide_lines(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in sources(root) {
        found.extend(wide(&text).iter().map(|(number, _)| format!("{name}:{number}")));
    }
    found
}

#[test]
fn lines_are_not_wider_than_110_columns() {
    ratchet("WIDE_LINES", WIDE_LINES, SLACK, &wide_lines(&root()));
}

#[test]
fn a_line_of_111_columns_is_found() {
    let (fits, wide_line) = ("x".repeat(WIDEST), "ü".repeat(WIDEST + 1));
    assert_eq!(wide(&format!("{fits}\n{wide_line}\n")), [(2, wide_line.as_str())]);
}
