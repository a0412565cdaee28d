//! Every parser of `ondisk`, every decoder of `codec`, objects of stores, and what clients of `server` send,
//! as functions of untrusted bytes.
//!
//! A target must return for any input: without a panic, an overflow, a hang or a large allocation. Beyond
//! that it states what must hold for whatever was accepted:
//! - what was parsed can be encoded, what was encoded parses again, and encodes to the same bytes;
//! - an iterator over a block ends after no more items than the block has bytes;
//! - what was compressed or encrypted comes back.
//!
//! Two runners call the same [`TARGETS`]: `tests/bounded.rs`, a short run with mutations by seed that is part
//! of the normal tests, and `libfuzzer/`, guided by coverage, for long runs. Both begin with the files of
//! `corpus/TARGET/`.
//!
//! Where a target needs numbers beside the bytes (a size, a type), [`Input`] takes them from the front of the
//! input.

#![forbid(unsafe_code)]

mod clients;
mod codecs;
mod geometry;
mod input;
mod lists;
mod pools;
mod stores;
mod streams;
mod zaps;

pub use input::Input;

/// A function that must cope with any input.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of the corpus's folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("accounting", lists::names::accounting),
    ("acl", pools::files::acl),
    ("blkptr", pools::blkptr),
    ("bookmark", lists::bookmark),
    ("bpobj", lists::bpobj),
    ("brt", lists::brt),
    ("checksum", codecs::checksum),
    ("compress", codecs::compress),
    ("crypt", codecs::crypt),
    ("crypto_key", lists::crypto_key),
    ("ddt", lists::ddt),
    ("ddt_log", lists::ddt_log),
    ("deadlist", lists::deadlist),
    ("decompress", codecs::decompress),
    ("dnode", pools::dnode),
    ("draid", geometry::draid),
    ("dsl", pools::dsl),
    ("embedded_checksum", codecs::embedded_checksum),
    ("fuid", pools::files::fuid),
    ("history", lists::history),
    ("indirect", lists::indirect),
    ("iscsi", clients::iscsi),
    ("key_data", streams::key_data),
    ("l2arc", lists::l2arc),
    ("label", pools::label),
    ("log_space_map", lists::log_space_map),
    ("metaslab", lists::metaslab),
    ("names", lists::names::names),
    ("nvlist", pools::nvlist),
    ("objects", stores::objects),
    ("objset", pools::objset),
    ("raidz", geometry::raidz),
    ("reconstruct", geometry::reconstruct),
    ("redaction", lists::redaction),
    ("sa", pools::files::sa),
    ("send_package", streams::send_package),
    ("send_record", streams::send_record),
    ("send_stream", streams::send_stream),
    ("space_map", lists::space_map),
    ("uberblock", pools::uberblock),
    ("vdev_config", pools::vdev_config),
    ("vhost_user", clients::vhost_user),
    ("web", clients::web),
    ("zap_edit", zaps::edit),
    ("zap_header", zaps::header),
    ("zap_leaf", zaps::leaf),
    ("zap_micro", zaps::micro),
    ("zil_block", streams::zil_block),
    ("zil_record", streams::zil_record),
    ("zpl", pools::files::zpl),
];

/// The target `name`.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
