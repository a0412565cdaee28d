//! What `cenote dedup-files` found and did.

use engine::properties::format::nicebytes;
use serde::Serialize;
use server::api::PairShared;

use super::found::Subject;

/// What was found and done.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Nothing was shared.
    pub dry_run: bool,
    /// Files that were looked at.
    pub files: u64,
    /// Volumes that were looked at.
    pub volumes: u64,
    /// Blocks of these that can be shared.
    pub blocks: u64,
    /// Bytes of these, before compression.
    pub bytes: u64,
    /// Different contents that occur more than once.
    pub contents: u64,
    /// Blocks that seem to be equal to another one.
    pub equal_blocks: u64,
    /// Bytes of these, before compression.
    pub equal_bytes: u64,
    /// Bytes that they take on vdevs.
    pub equal_allocated_bytes: u64,
    /// Blocks that are shared now.
    pub shared_blocks: u64,
    /// Bytes that these took on vdevs.
    pub shared_bytes: u64,
    /// Blocks that were shared before.
    pub already_blocks: u64,
    /// Blocks that were written meanwhile, or proved to be different: they were left alone.
    pub different_blocks: u64,
    /// What could not be looked at or shared, and why.
    pub errors: Vec<String>,
}

impl Report {
    /// A file or volume was looked at.
    pub fn count(&mut self, subject: &Subject) {
        match subject.file {
            Some(_) => self.files += 1,
            None => self.volumes += 1,
        }
    }

    /// A pair was looked at; `other` is what became a reference.
    pub fn add(&mut self, outcome: &PairShared, other: Option<&Subject>) {
        self.shared_blocks += outcome.shared_blocks;
        self.shared_bytes = self.shared_bytes.saturating_add(outcome.allocated_bytes);
        self.already_blocks += outcome.already_blocks;
        self.different_blocks += outcome.different_blocks;
        if let Some(error) = &outcome.error {
            self.complain(format!("{}: {error}", other.map(Subject::shown).unwrap_or_default()));
        }
    }

    /// Something went wrong: said once for each file.
    pub fn complain(&mut self, error: String) {
        if self.errors.last() != Some(&error) {
            eprintln!("{error}");
            self.errors.push(error);
        }
    }

    /// For people.
    pub fn lines(&self) -> String {
        let plural = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let blocks = |count: u64, bytes: u64| format!("{}, {}", plural(count, "block"), nicebytes(bytes));
        let mut looked_at = Vec::new();
        for (count, one) in [(self.files, "file"), (self.volumes, "volume")] {
            if count > 0 {
                looked_at.push(plural(count, one));
            }
        }
        let looked_at = if looked_at.is_empty() { "nothing".to_owned() } else { looked_at.join(" and ") };
        let mut text = format!("looked at:      {looked_at}: {}\n", blocks(self.blocks, self.bytes));
        text += &format!(
            "equal:          {}, of {}\n",
            blocks(self.equal_blocks, self.equal_bytes),
            plural(self.contents, "content")
        );
        text += &format!("shared before:  {}\n", plural(self.already_blocks, "block"));
        if self.dry_run {
            let bytes = nicebytes(self.equal_allocated_bytes);
            return text + &format!("would save:     {bytes}, once no snapshot refers to them\n");
        }
        text += &format!("shared now:     {}\n", plural(self.shared_blocks, "block"));
        text += &format!("left alone:     {}\n", plural(self.different_blocks, "block"));
        text + &format!("saved:          {}, once no snapshot refers to them\n", nicebytes(self.shared_bytes))
    }
}
