//! Lines about work on a pool: scrub and resilver, removal, expansion, checkpoint, and counting, prunes and
//! copies of volumes, of which OpenZFS tells nothing. Each ends with a line end, or is empty.

use engine::properties::format::{nicebytes, nicenum};
use server::api::{Checkpoint, Counting, Expansion, PoolStatus, Progress, Pruning, Removal, Scan, ScanKind};

use crate::output::{ctime, duration, now};

/// Longer than this a removal or expansion is said to be slow instead of given an end.
const SLOW_SECONDS: u64 = 30 * 24 * 3600;

/// All of them, in OpenZFS's order; what is ours comes last.
pub fn lines(pool: &PoolStatus) -> String {
    let top = |number: u64| {
        let place = usize::try_from(number).ok();
        place
            .and_then(|place| pool.health.vdevs.children.get(place))
            .map_or_else(String::new, |vdev| vdev.name.clone())
    };
    let mut text = String::new();
    // Of a scrub and an error scrub the later one, and a resilver beside an error scrub.
    let errors = pool.health.error_scrub.as_ref().filter(|errors| {
        let scrub = pool.health.scan.as_ref().filter(|scan| scan.kind == ScanKind::Scrub);
        scrub.is_none_or(|scrub| errors.start_time >= scrub.start_time)
    });
    if let Some(errors) = errors {
        text.push_str(&error_scrub_lines(errors));
    }
    if let Some(scan) = &pool.health.scan {
        if errors.is_none() || scan.kind != ScanKind::Scrub {
            text.push_str(&scan_lines(scan, now()));
        }
        let exists = pool.health.checkpoint.as_ref().filter(|checkpoint| !checkpoint.discarding);
        text.push_str(exists.map_or("", |checkpoint| scan_warning(scan, checkpoint)));
    }
    if let Some(removal) = &pool.health.removal {
        text.push_str(&removal_lines(removal, &top(removal.vdev)));
    }
    if let Some(checkpoint) = &pool.health.checkpoint {
        text.push_str(&checkpoint_line(checkpoint));
    }
    if let Some(expansion) = &pool.health.expansion {
        text.push_str(&expansion_lines(expansion, &top(expansion.vdev)));
    }
    if let Some(counting) = &pool.counting {
        text.push_str(&counting_lines(counting));
    }
    if let Some(pruning) = &pool.pruning {
        text.push_str(&pruning_lines(pruning));
    }
    text.extend(pool.reshapes.iter().map(crate::reshape::lines));
    text
}

/// A scan does not look at what only the checkpoint refers to.
fn scan_warning(scan: &Scan, checkpoint: &Checkpoint) -> &'static str {
    match scan.state {
        Progress::None => "",
        Progress::Running => {
            "    scan warning: skipping blocks that are only referenced by the checkpoint.\n"
        }
        Progress::Finished | Progress::Canceled if scan.end_time < checkpoint.start_time => "",
        Progress::Finished | Progress::Canceled => {
            "    scan warning: skipped blocks that are only referenced by the checkpoint.\n"
        }
    }
}

fn scan_lines(scan: &Scan, now: u64) -> String {
    let (noun, done) = match scan.kind {
        ScanKind::None => return String::new(),
        ScanKind::ErrorScrub => return error_scrub_lines(scan),
        ScanKind::Scrub => ("scrub", "repaired"),
        ScanKind::Resilver => ("resilver", "resilvered"),
    };
    let processed = nicebytes(scan.processed);
    let end = ctime(scan.end_time);
    match scan.state {
        Progress::None => String::new(),
        Progress::Finished => {
            let time = duration(scan.end_time.saturating_sub(scan.start_time));
            let what = if scan.kind == ScanKind::Scrub { "scrub repaired" } else { "resilvered" };
            format!("  scan: {what} {processed} in {time} with {} errors on {end}\n", scan.errors)
        }
        Progress::Canceled => format!("  scan: {noun} canceled on {end}\n"),
        Progress::Running => {
            let start = ctime(scan.start_time);
            let began = match scan.paused_time {
                Some(paused) => {
                    format!("  scan: {noun} paused since {}\n\t{noun} started on {start}\n", ctime(paused))
                }
                None => format!("  scan: {noun} in progress since {start}\n"),
            };
            // Without a pass, nothing moves: the pool is open read-only.
            let elapsed = now.saturating_sub(scan.pass_start).saturating_sub(scan.pass_spent_paused).max(1);
            let goes_on = scan.paused_time.is_none() && scan.pass_start != 0;
            let rate = |bytes: u64| match bytes / elapsed {
                rate if goes_on && rate > 0 => format!(" at {}/s", nicebytes(rate)),
                _ => String::new(),
            };
            let to_issue = scan.to_examine.saturating_sub(scan.skipped);
            let sizes = format!(
                "\t{} / {} scanned{}, {} / {} issued{}\n",
                nicebytes(scan.examined),
                nicebytes(scan.to_examine),
                rate(scan.pass_examined),
                nicebytes(scan.issued),
                nicebytes(to_issue),
                rate(scan.pass_issued),
            );
            let percent = percent(scan.issued, to_issue);
            format!("{began}{sizes}\t{processed} {done}, {percent:.2}% done{}\n", time_left(scan, to_issue))
        }
    }
}

/// When a scan is done, by what devices read lately. Said only where there is something to go by.
fn time_left(scan: &Scan, to_issue: u64) -> String {
    match scan.rate {
        _ if scan.paused_time.is_some() => String::new(),
        Some(0) => ", no estimated completion time (nothing was read lately)".to_owned(),
        Some(rate) if scan.issued > 0 && scan.issued <= to_issue => {
            format!(", {} to go", duration((to_issue - scan.issued).div_ceil(rate)))
        }
        _ => ", no estimated completion time".to_owned(),
    }
}

fn error_scrub_lines(scan: &Scan) -> String {
    match scan.state {
        Progress::None => String::new(),
        Progress::Finished => {
            let seconds = scan.end_time.saturating_sub(scan.start_time);
            format!(
                " scrub: scrubbed {} error blocks in {} days {} on {}\n",
                scan.examined,
                seconds / 86_400,
                duration(seconds % 86_400),
                ctime(scan.end_time)
            )
        }
        Progress::Canceled => format!(" scrub: error scrub canceled on {}\n", ctime(scan.end_time)),
        Progress::Running => {
            let start = ctime(scan.start_time);
            let began = match scan.paused_time {
                Some(paused) => {
                    format!(
                        " scrub: error scrub paused since {}\n\terror scrub started on {start}\n",
                        ctime(paused)
                    )
                }
                None => format!(" scrub: error scrub in progress since {start}\n"),
            };
            let percent = percent(scan.examined, scan.to_examine.saturating_add(scan.examined));
            format!("{began}\t{percent:.2}% done, issued I/O for {} error blocks\n", scan.examined)
        }
    }
}

fn removal_lines(removal: &Removal, name: &str) -> String {
    let text = match removal.state {
        Progress::None => return String::new(),
        Progress::Finished => {
            let minutes = removal.end_time.saturating_sub(removal.start_time) / 60;
            format!(
                "remove: Removal of vdev {} copied {} in {}h{}m, completed on {}\n",
                removal.vdev,
                nicenum(removal.copied),
                minutes / 60,
                minutes % 60,
                ctime(removal.end_time)
            )
        }
        Progress::Canceled => format!("remove: Removal of {name} canceled on {}\n", ctime(removal.end_time)),
        Progress::Running => {
            let copied = removal.copied.max(1);
            let rate = rate(copied, removal.start_time);
            let minutes = removal.to_copy.saturating_sub(copied) / rate / 60;
            let left = match minutes * 60 < SLOW_SECONDS {
                true => format!(", {}h{}m to go\n", minutes / 60, minutes % 60),
                false => ", (copy is slow, no estimated time)\n".to_owned(),
            };
            format!(
                "remove: Evacuation of {name} in progress since {}\n\t{} copied out of {} at {}/s, {:.2}% \
                 done{left}",
                ctime(removal.start_time),
                nicenum(copied),
                nicenum(removal.to_copy),
                nicenum(rate),
                percent(copied, removal.to_copy)
            )
        }
    };
    match removal.mapping_memory {
        0 => text,
        bytes => format!("{text}\t{} memory used for removed device mappings\n", nicenum(bytes)),
    }
}

fn expansion_lines(expansion: &Expansion, name: &str) -> String {
    match expansion.state {
        Progress::None | Progress::Canceled => String::new(),
        Progress::Finished => format!(
            "expand: expanded {name} copied {} in {}, on {}\n",
            nicenum(expansion.reflowed),
            duration(expansion.end_time.saturating_sub(expansion.start_time)),
            ctime(expansion.end_time)
        ),
        Progress::Running => {
            let copied = expansion.reflowed.max(1);
            let rate = rate(copied, expansion.start_time);
            let seconds = expansion.to_reflow.saturating_sub(copied) / rate;
            let left = match (expansion.waiting_for_resilver, seconds < SLOW_SECONDS) {
                (true, _) => ", paused for resilver or clear\n".to_owned(),
                (false, true) => format!(", {} to go\n", duration(seconds)),
                (false, false) => ", (copy is slow, no estimated time)\n".to_owned(),
            };
            format!(
                "expand: expansion of {name} in progress since {}\n\t{} / {} copied at {}/s, {:.2}% \
                 done{left}",
                ctime(expansion.start_time),
                nicenum(copied),
                nicenum(expansion.to_reflow),
                nicenum(rate),
                percent(copied, expansion.to_reflow)
            )
        }
    }
}

fn checkpoint_line(checkpoint: &Checkpoint) -> String {
    let space = nicenum(checkpoint.space);
    match checkpoint.discarding {
        true => format!("checkpoint: discarding, {space} remaining.\n"),
        false => format!("checkpoint: created {}, consumes {space}\n", ctime(checkpoint.start_time)),
    }
}

fn counting_lines(counting: &Counting) -> String {
    let Counting { filesystem, start_time, to_count, counted, waiting } = counting;
    let more = match waiting {
        0 => String::new(),
        1 => ", 1 filesystem to follow".to_owned(),
        more => format!(", {more} filesystems to follow"),
    };
    format!(
        " count: counting of files for quotas in progress since {}\n\t{} / {} counted in {filesystem}, \
         {:.2}% done{more}\n",
        ctime(*start_time),
        nicenum(*counted),
        nicenum(*to_count),
        percent(*counted, *to_count)
    )
}

fn pruning_lines(pruning: &Pruning) -> String {
    let Pruning { start_time, to_look_at, looked_at, pruned, waiting } = pruning;
    let more = if *waiting > 0 { format!(", {waiting} more to follow") } else { String::new() };
    format!(
        " prune: removal of old entries of dedup tables in progress since {}\n\t{} / {} looked at, \
         {} removed, {:.2}% done{more}\n",
        ctime(*start_time),
        nicenum(*looked_at),
        nicenum(*to_look_at),
        nicenum(*pruned),
        percent(*looked_at, *to_look_at)
    )
}

/// Bytes a second since `start`, at least one.
fn rate(bytes: u64, start: u64) -> u64 {
    (bytes / now().saturating_sub(start).max(1)).max(1)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(kind: ScanKind, state: Progress) -> Scan {
        Scan {
            kind,
            state,
            start_time: 1_795_241_192,
            end_time: 1_795_241_193,
            to_examine: 4096,
            examined: 1024,
            skipped: 2048,
            processed: 0,
            errors: 0,
            paused_time: None,
            issued: 1024,
            pass_start: 0,
            pass_spent_paused: 0,
            pass_examined: 0,
            pass_issued: 0,
            rate: None,
        }
    }

    #[test]
    fn a_finished_scrub_tells_what_it_repaired() {
        let text = scan_lines(&scan(ScanKind::Scrub, Progress::Finished), 0);
        let start = "  scan: scrub repaired 0B in 00:00:01 with 0 errors on ";
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn progress_counts_what_has_to_be_read() {
        let text = scan_lines(&scan(ScanKind::Resilver, Progress::Running), 0);
        assert!(text.contains("\t1K / 4K scanned, 1K / 2K issued\n"), "{text}");
        assert!(text.ends_with("\t0B resilvered, 50.00% done, no estimated completion time\n"), "{text}");
        let moving = Scan {
            issued: 512,
            pass_start: 1_795_241_192,
            pass_examined: 1024,
            pass_issued: 512,
            rate: Some(100),
            ..scan(ScanKind::Scrub, Progress::Running)
        };
        let text = scan_lines(&moving, 1_795_241_194);
        assert!(text.contains("\t1K / 4K scanned at 512B/s, 512B / 2K issued at 256B/s\n"), "{text}");
        assert!(text.ends_with("\t0B repaired, 25.00% done, 00:00:16 to go\n"), "{text}");
        let stuck = scan_lines(&Scan { rate: Some(0), ..moving }, 1_795_241_194);
        assert!(stuck.ends_with("no estimated completion time (nothing was read lately)\n"), "{stuck}");
        let paused = scan_lines(&Scan { paused_time: Some(1_795_241_193), ..moving }, 1_795_241_194);
        assert!(paused.contains("scrub paused since ") && paused.ends_with("25.00% done\n"), "{paused}");
    }

    #[test]
    fn a_prune_tells_how_far_it_is() {
        let pruning = Pruning { start_time: 1, to_look_at: 2000, looked_at: 500, pruned: 70, waiting: 0 };
        let text = pruning_lines(&pruning);
        assert!(
            text.starts_with(" prune: removal of old entries of dedup tables in progress since "),
            "{text}"
        );
        assert!(text.ends_with("\n\t500 / 1.95K looked at, 70 removed, 25.00% done\n"), "{text}");
        assert!(pruning_lines(&Pruning { waiting: 2, ..pruning }).ends_with("done, 2 more to follow\n"));
    }

    #[test]
    fn counting_tells_where_it_is_and_what_follows() {
        let counting = |waiting| Counting {
            filesystem: "tank/home".into(),
            start_time: 1_795_241_192,
            to_count: 4096,
            counted: 1024,
            waiting,
        };
        let text = counting_lines(&counting(0));
        assert!(text.starts_with(" count: counting of files for quotas in progress since "), "{text}");
        assert!(text.ends_with("\n\t1K / 4K counted in tank/home, 25.00% done\n"), "{text}");
        assert!(counting_lines(&counting(1)).ends_with(" done, 1 filesystem to follow\n"));
        assert!(counting_lines(&counting(2)).ends_with(" done, 2 filesystems to follow\n"));
    }

    #[test]
    fn a_finished_removal_tells_the_memory_of_its_mapping() {
        let removal = Removal {
            state: Progress::Finished,
            vdev: 1,
            start_time: 0,
            end_time: 3_720,
            to_copy: 0,
            copied: 864_256,
            mapping_memory: 120,
        };
        let text = removal_lines(&removal, "indirect-1");
        assert!(text.starts_with("remove: Removal of vdev 1 copied 844K in 1h2m, completed on "), "{text}");
        assert!(text.ends_with("\t120 memory used for removed device mappings\n"), "{text}");
    }
}
