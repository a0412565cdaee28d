//! Properties that are stored for OpenZFS and have no effect here.
//!
//! They are settable, so that a pool keeps the values that its other users set; a user who sets one gets a
//! note. All other settable properties are honoured, or refused when they are set ([`crate::dsl::edit`]).

use super::set::Value;
use super::table::{Kind, Prop};
use super::typed;

/// Properties that no code reads here: old shares over iSCSI, labels of SELinux, scanners and locks that
/// Linux does not have, cache devices, and how OpenZFS reads.
pub const KEPT: [Prop; 11] = [
    Prop::Context,
    Prop::Fscontext,
    Prop::Defcontext,
    Prop::Rootcontext,
    Prop::Vscan,
    Prop::Nbmand,
    Prop::Prefetch,
    Prop::Volthreading,
    Prop::Direct,
    Prop::Iscsioptions,
    Prop::StmfShareinfo,
];

/// The notes for a user who sets properties, as typed: a sentence for each that has no effect. Defaults
/// promise nothing.
pub fn notes(properties: &[(String, String)]) -> Vec<String> {
    let is_default = |prop: Prop, text: &str| match (typed::parse(prop, text), prop.desc().kind) {
        (Ok(Value::Number(number)), Kind::Number(default) | Kind::Index(default, _)) => number == default,
        (Ok(Value::Text(text)), Kind::Text(default)) => Some(text.as_str()) == default,
        _ => false,
    };
    let kept = properties.iter().filter_map(|(name, text)| {
        let prop = Prop::from_name(name).filter(|prop| KEPT.contains(prop) && !is_default(*prop, text))?;
        Some(format!("note: '{}' is kept for OpenZFS and has no effect here", prop.desc().name))
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sets_what_has_no_effect_is_told() {
        let said = |name: &str, value: &str| notes(&[(name.to_owned(), value.to_owned())]);
        assert_eq!(said("nbmand", "on"), ["note: 'nbmand' is kept for OpenZFS and has no effect here"]);
        for (name, value) in [("context", "a:b:c"), ("prefetch", "none"), ("direct", "always")] {
            assert_eq!(said(name, value).len(), 1, "{name}");
        }
        for (name, value) in [
            ("sharenfs", "on"),
            ("sharesmb", "on"),
            ("snapdev", "visible"),
            ("context", "none"),
            ("prefetch", "all"),
            ("direct", "standard"),
            ("nbmand", "off"),
            ("atime", "off"),
            ("org.example:nbmand", "on"),
        ] {
            assert_eq!(said(name, value), [] as [&str; 0], "{name}");
        }
    }
}
