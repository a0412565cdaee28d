//! The name that a person may have meant by a word that is none.

/// More letters that differ are no slip of the pen.
const MOST_SLIPS: usize = 3;

/// The one of `names` that is least unlike `word`, where one is not very unlike it.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips = |name: &&str| distance(word, name);
    let found = names.into_iter().min_by_key(slips)?;
    let most = MOST_SLIPS.min(word.chars().count() / 2);
    (slips(&found) <= most).then_some(found)
}

/// The same as the end of a message; nothing where nothing is near.
pub fn meant<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// How many letters are to be put in, taken away, or changed to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (index, its) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *its);
            before = row[index + 1];
            row[index + 1] = changed.min(row[index] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_known_and_other_words_are_not() {
        let names = ["compression", "recordsize", "iodepth", "sync"];
        for (word, meant) in [
            ("compresion", Some("compression")),
            ("record_size", Some("recordsize")),
            ("iodepht", Some("iodepth")),
            ("synk", Some("sync")),
            ("thinktime", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, names), meant, "{word}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(meant("synk", names), "; did you mean 'sync'?");
    }
}
