//! A frame as lines of text.

use std::cmp::Ordering;

use engine::properties::format::nicenum;

use super::rates::{Frame, Rates};
use crate::output;

/// The sort key of each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Bytes read and written
    Bytes,
    /// Reads
    Reads,
    /// Writes
    Writes,
    /// The name
    Name,
}

/// The least width of the column of names.
const NAME: usize = 24;
/// The width of a column of numbers, with the blank before it.
const NUMBER: usize = 7;
/// Rows of a table that are shown even if the terminal is low.
const LEAST_ROWS: usize = 1;

/// A row: its name, its rates, and its columns.
struct Row {
    name: String,
    rates: Rates,
    columns: Vec<String>,
}

/// A table: the heading over the names, those over the numbers, and the rows.
struct Table {
    title: &'static str,
    headings: Vec<&'static str>,
    rows: Vec<Row>,
}

impl Frame {
    /// The frame for a terminal of so many rows and columns.
    pub fn draw(&self, sort: Sort, (height, width): (u16, u16)) -> Vec<String> {
        let (height, width) = (usize::from(height), usize::from(width).max(40));
        let mut lines = vec![self.summary()];
        lines.extend(self.what_if());
        lines.extend(self.reshapes.iter().filter_map(crate::reshape::line));
        let mut tables = [self.pools(), self.datasets(), self.clients(), self.devices()];
        for table in &mut tables {
            table.rows.sort_by(|one, other| order(sort, one, other));
        }
        let sizes: Vec<usize> = tables.iter().map(|table| table.rows.len()).collect();
        let left = height.saturating_sub(lines.len() + 2 * tables.len());
        for (table, rows) in tables.iter().zip(shares(&sizes, left)) {
            lines.push(String::new());
            lines.extend(table.draw(rows, width));
        }
        lines.iter_mut().for_each(|line| cut(line, width));
        lines.truncate(height);
        lines
    }

    fn summary(&self) -> String {
        let arc = &self.arc;
        let now = output::ctime(output::now());
        let time = now.split(' ').rev().nth(1).unwrap_or_default();
        format!(
            "cenote top  {time}   ARC {} of {}   {} reads/s, {:.1} % hits",
            nicenum(arc.size),
            nicenum(arc.target),
            count(arc.reads),
            100.0 * arc.hit_ratio
        )
    }

    /// What a larger ARC would do, by the reads so far.
    fn what_if(&self) -> Option<String> {
        let (now, twice) = self.arc.what_if?;
        Some(format!(
            "without reading ahead this ARC answers {:.1} % of reads, one of {} {:.1} %",
            100.0 * now,
            nicenum(self.arc.target.saturating_mul(2)),
            100.0 * twice
        ))
    }

    fn pools(&self) -> Table {
        let rows = self.pools.iter().map(|pool| {
            let capacity = (pool.allocated * 100).checked_div(pool.size);
            let capacity = capacity.map_or_else(|| "-".to_owned(), |share| format!("{share}%"));
            let columns = [vec![nicenum(pool.size), capacity], transfers(&pool.rates)].concat();
            Row { name: format!("{} {}", pool.name, pool.health), rates: pool.rates, columns }
        });
        let headings = vec!["size", "cap", "reads", "writes", "rd B/s", "wr B/s"];
        Table { title: "POOL", headings, rows: rows.collect() }
    }

    fn datasets(&self) -> Table {
        let rows = self.datasets.iter().map(|dataset| {
            let amplified = dataset.write_amplification;
            let amplified = amplified.map_or_else(|| "-".to_owned(), |factor| format!("{factor:.1}x"));
            let columns = [transfers(&dataset.rates), vec![count(dataset.loads), amplified]].concat();
            Row { name: dataset.name.clone(), rates: dataset.rates, columns }
        });
        let headings = vec!["reads", "writes", "rd B/s", "wr B/s", "misses", "wr amp"];
        Table { title: "DATASET", headings, rows: rows.collect() }
    }

    fn clients(&self) -> Table {
        let rows = self.clients.iter().map(|client| Row {
            name: format!("{} {}", client.kind, client.name),
            rates: client.rates,
            columns: transfers(&client.rates),
        });
        Table { title: "CLIENT", headings: vec!["reads", "writes", "rd B/s", "wr B/s"], rows: rows.collect() }
    }

    fn devices(&self) -> Table {
        let rows = self.devices.iter().map(|device| {
            let more = vec![time(device.read_ns), time(device.write_ns), device.active.to_string()];
            let columns = [transfers(&device.rates), more].concat();
            Row { name: device.name.clone(), rates: device.rates, columns }
        });
        let headings = vec!["reads", "writes", "rd B/s", "wr B/s", "rd lat", "wr lat", "active"];
        Table { title: "DEVICE", headings, rows: rows.collect() }
    }
}

impl Table {
    fn draw(&self, rows: usize, width: usize) -> Vec<String> {
        let numbers = self.headings.len() * NUMBER;
        let names = width.saturating_sub(numbers).max(NAME);
        let line = |name: &str, columns: &mut dyn Iterator<Item = &str>| {
            let mut line = fitted(name, names);
            line.extend(columns.map(|column| format!("{column:>NUMBER$}")));
            line
        };
        let mut lines = vec![line(self.title, &mut self.headings.iter().copied())];
        let shown = self.rows.iter().take(rows);
        lines.extend(shown.map(|row| line(&row.name, &mut row.columns.iter().map(String::as_str))));
        lines
    }
}

/// How many rows each table gets of `left`: what it has, but none more than its share where room is scarce.
fn shares(sizes: &[usize], left: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = sizes.iter().map(|size| (*size).min(LEAST_ROWS)).collect();
    let mut left = left.saturating_sub(shown.iter().sum());
    while left > 0 {
        let smallest = (0..sizes.len()).filter(|&at| shown[at] < sizes[at]).min_by_key(|&at| shown[at]);
        let Some(at) = smallest else { break };
        shown[at] += 1;
        left -= 1;
    }
    shown
}

fn order(sort: Sort, one: &Row, other: &Row) -> Ordering {
    let weight = |row: &Row| match sort {
        Sort::Bytes => row.rates.nread + row.rates.nwritten,
        Sort::Reads => row.rates.reads,
        Sort::Writes => row.rates.writes,
        Sort::Name => 0.0,
    };
    weight(other).total_cmp(&weight(one)).then_with(|| one.name.cmp(&other.name))
}

fn transfers(rates: &Rates) -> Vec<String> {
    vec![count(rates.reads), count(rates.writes), count(rates.nread), count(rates.nwritten)]
}

/// A rate, scaled.
fn count(rate: f64) -> String {
    // A rate is never negative, and far below 2^64.
    nicenum(rate.round() as u64)
}

/// A time, scaled; a dash for none.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1.0 => "-".to_owned(),
        ns if ns < 1e4 => format!("{ns:.0}ns"),
        ns if ns < 1e7 => format!("{:.0}us", ns / 1e3),
        ns if ns < 1e10 => format!("{:.0}ms", ns / 1e6),
        ns => format!("{:.0}s", ns / 1e9),
    }
}

/// A name in a column: what is too long loses its beginning, because the ends differ. Characters that would
/// change the terminal are replaced.
fn fitted(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if letters.len() <= width {
        return letters.into_iter().chain(std::iter::repeat(' ')).take(width).collect();
    }
    let tail = letters.len() - (width - 1);
    std::iter::once('…').chain(letters.into_iter().skip(tail)).collect()
}

fn cut(line: &mut String, width: usize) {
    if let Some((at, _)) = line.char_indices().nth(width) {
        line.truncate(at);
    }
    line.truncate(line.trim_end().len());
}

#[cfg(test)]
mod tests {
    use super::super::rates::{Client, Dataset, Device, Pool};
    use super::*;

    fn frame(datasets: usize) -> Frame {
        let rates = |reads: usize| Rates { reads: reads as f64, nread: 4096.0, ..Rates::default() };
        let dataset = |n| Dataset {
            name: format!("tank/a-dataset-with-quite-a-long-name/number-{n:03}"),
            rates: rates(n),
            loads: 1.0,
            write_amplification: Some(2.5),
        };
        Frame {
            pools: vec![Pool {
                name: "tank".into(),
                health: "ONLINE".into(),
                size: 100,
                allocated: 12,
                rates: rates(1),
            }],
            datasets: (0..datasets).map(dataset).collect(),
            clients: vec![Client { kind: "nbd".into(), name: "tank/\x1b[2Jvol".into(), ..Client::default() }],
            devices: vec![Device { name: "/dev/sda".into(), read_ns: 12_345.0, ..Device::default() }],
            ..Frame::default()
        }
    }

    #[test]
    fn a_frame_fits_its_terminal_whatever_there_is() {
        for (datasets, size) in
            [(0, (24, 80)), (500, (24, 80)), (500, (5, 80)), (3, (200, 132)), (3, (24, 20))]
        {
            let lines = frame(datasets).draw(Sort::Bytes, size);
            assert!(lines.len() <= usize::from(size.0), "{size:?}");
            let widest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(size.1.max(40)), "{size:?}: {widest}");
            assert!(!lines.concat().contains('\x1b'));
        }
    }

    #[test]
    fn what_does_most_comes_first_by_the_key_that_was_chosen() {
        let lines = frame(10).draw(Sort::Reads, (60, 100));
        let at = |n: &str| lines.iter().position(|line| line.contains(n)).unwrap();
        assert!(at("number-009") < at("number-001"));
        let lines = frame(10).draw(Sort::Name, (60, 100));
        let at = |n: &str| lines.iter().position(|line| line.contains(n)).unwrap();
        assert!(at("number-001") < at("number-009"));
        assert!(
            lines.iter().any(|line| line.contains("12us")) && lines.iter().any(|line| line.contains("2.5x"))
        );
    }

    #[test]
    fn tables_share_a_low_terminal() {
        assert_eq!(shares(&[1, 100, 0, 4], 20), [1, 15, 0, 4]);
        assert_eq!(shares(&[50, 50], 10), [5, 5]);
        assert_eq!(shares(&[2, 2], 0), [1, 1]);
    }
}
