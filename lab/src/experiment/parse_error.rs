//! Errors in the text of an experiment, in words of its file.
//!
//! The parser names types of this program, such as `usize` and `sequence`. A user who writes a file knows
//! numbers, text, lists and tables, and the brackets of tables.

use toml::{Table, Value};

/// Tables of which there may be several, and those that are one, each as the way to it.
const SEVERAL: [&[&str]; 5] = [&["factor"], &["workload"], &["variant"], &["bound"], &["target", "layer"]];
const ONE: [&str; 3] = ["target", "goal", "settings"];

/// Says which table has brackets too few or too many.
pub(super) fn brackets(experiment: &Table) -> Option<String> {
    let is_one = |way: &&&[&str]| {
        let above = way.iter().take(way.len() - 1);
        let above = above.copied().try_fold(experiment, |table, step| table.get(step)?.as_table());
        way.last().and_then(|name| above?.get(*name)).is_some_and(Value::is_table)
    };
    let few = SEVERAL.iter().find(is_one);
    let few = few.map(|way| {
        let name = way.join(".");
        format!("[{name}]: there may be several of these: write [[{name}]]")
    });
    let many = ONE.into_iter().find(|name| experiment.get(*name).is_some_and(Value::is_array));
    few.or_else(|| many.map(|name| format!("[[{name}]]: there is one of these: write [{name}]")))
}

/// Says which size of the target is none: the parser knows only the table that has it.
pub(super) fn sizes(experiment: &Table) -> Option<String> {
    let target = experiment.get("target")?.as_table()?;
    ["size", "device_size"].into_iter().find_map(|name| {
        let found = match target.get(name)? {
            Value::String(_) => return None,
            Value::Integer(0..) => return None,
            Value::Array(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            value => format!("`{value}`"),
        };
        Some(format!("[target]: {name}: it is {found}, and should be {}", crate::size::WANTED))
    })
}

/// What the parser says of something that is of another type than it should be, in other words.
pub(super) fn plain(error: &toml::de::Error) -> String {
    let lines: Vec<String> = error.to_string().lines().map(line).collect();
    lines.join("\n")
}

fn line(said: &str) -> String {
    let of_type = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "));
    let Some((found, wanted)) = of_type.and_then(|of_type| of_type.rsplit_once(", expected ")) else {
        return said.to_owned();
    };
    let found = match found {
        "map" => "a table",
        "sequence" => "a list",
        found => found.find(['`', '"']).map_or(found, |at| &found[at..]),
    };
    let wanted = match wanted {
        "usize" | "u64" | "u32" | "u16" | "u8" => "a whole number, without quotes",
        "isize" | "i64" | "i32" => "a whole number",
        "f64" | "f32" => "a number, without quotes",
        "a string" | "string" => "text in quotes",
        "a boolean" => "true or false, without quotes",
        "a sequence" => "a list, in [brackets]",
        "a map" => "a table, as { name = \"value\" }",
        wanted if wanted.starts_with("struct ") || wanted.starts_with("internally tagged ") => {
            "a table with keys"
        }
        wanted => wanted,
    };
    format!("it is {found}, and should be {wanted}")
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    const SMALL: &str = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[workload]]\nname = \
        \"w\"\nrw = \"read\"\n";

    #[test]
    fn what_is_of_another_type_is_told_in_words_of_the_file() {
        for (from, to, wanted) in [
            (
                "\"64M\"",
                "1.5",
                "[target]: size: it is `1.5`, and should be a size like 16K, or a number of bytes",
            ),
            ("\"64M\"", "-1", "it is `-1`, and should be a size like 16K, or a number of bytes"),
            ("rw = ", "bs = 1.5\nrw = ", "it is `1.5`, and should be a size like 16K, or a number of bytes"),
            ("\"64M\"", "\"much\"", "'much' is not a size"),
            ("\"64M\"", "[\"64M\"]", "it is a list, and should be a size"),
            ("[target]", "rounds = \"many\"\n[target]", "it is \"many\", and should be a whole number"),
            ("[target]", "rounds = 2.5\n[target]", "it is `2.5`, and should be a whole number"),
            ("[target]", "rounds = -1\n[target]", "it is `-1`, and should be a whole number"),
            ("[target]", "precision = \"5 %\"\n[target]", "should be a number, without quotes"),
            ("\"x\"", "7", "it is `7`, and should be text in quotes"),
            ("[[workload]]", "[[workload]]\nquick = \"yes\"", "should be true or false"),
            ("[[workload]]", "[[workload]]\noptions = \"fsync=1\"", "should be a table"),
            ("[[workload]]", "[workload]", "write [[workload]]"),
            ("[[workload]]", "[factor]\nname = \"sync\"\n[[workload]]", "write [[factor]]"),
            ("[[workload]]", "[target.layer]\nname = \"a\"\n[[workload]]", "write [[target.layer]]"),
            ("[target]", "[[target]]", "write [target]"),
            ("[[workload]]", "[[workload]]\npreset = \"web\"\niodepth = \"8\"", "should be a whole number"),
            ("[[workload]]", "[goal]\nat_least = true\n[[workload]]", "a number, or text with a unit"),
        ] {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL, "{to}");
            let told = Experiment::read(&text).unwrap_err().to_string();
            assert!(told.contains(wanted), "{to}: {told}");
            for word in ["usize", "u32", "f64", "untagged", "sequence", "invalid type", "map"] {
                assert!(!told.contains(word), "{to}: {told}");
            }
        }
    }
}
