//! `cenote top`: pools, datasets, clients and devices, and what they do at the moment.
//!
//! A frame is the difference of two looks at the daemon's counters, per second. Reads and cached writes move
//! counters without a change that the daemon's feed could tell of, so that frames come at intervals; the feed
//! says when the daemon goes away. Frames are drawn with a few control sequences that every terminal has, on
//! its other screen, so that what was there comes back at the end. Everything fits 80 columns; rows that do
//! not fit are left out, those that do least first.

mod draw;
mod rates;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use server::api::{
    Counters, GetCounters, GetWhatIf, ListPools, ListReshapes, Listed, PoolEntry, PoolWhatIf, Reshaping,
};

use self::draw::Sort;
use self::rates::Frame;
use crate::feed::Feed;
use crate::output;
use crate::prompt::NoEcho;
use crate::{client, counters};

/// The groups that are looked at.
const GROUPS: [&str; 6] = ["arcstats", "objset", "amplification", "vdev", "txgs", "clients"];
/// Properties of pools that are shown.
const PROPERTIES: [&str; 3] = ["size", "allocated", "health"];
/// Rows and columns where there is no terminal.
const NO_TERMINAL: (u16, u16) = (u16::MAX, 80);
/// Ctrl-C, where it is a key as any other.
const CTRL_C: u8 = 3;

/// Arguments of `cenote top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q ends it; b, r, w, n sort by bytes, reads, writes or name; the space bar shows the next frame
at once.")]
pub struct Arguments {
    /// Only these pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
    /// Seconds between frames
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 1.0)]
    delay: f32,
    /// Sort key
    #[arg(long, default_value = "bytes")]
    sort: Sort,
    /// Print one frame as text, and end
    #[arg(long)]
    once: bool,
    /// Print one frame as JSON, and end
    #[arg(short = 'j', long)]
    json: bool,
}

/// The counters at one moment.
struct Look {
    at: Instant,
    counters: Counters,
    pools: Vec<PoolEntry>,
    curves: Vec<PoolWhatIf>,
    reshapes: Vec<Reshaping>,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let delay = Duration::try_from_secs_f32(self.delay).ok().filter(|delay| !delay.is_zero());
        let delay = delay.context("the time between frames must be more than 0 seconds")?;
        let properties = PROPERTIES.map(str::to_owned).to_vec();
        let request = ListPools { pools: self.pools.clone(), properties, vdevs: false };
        let asked = client::call_running(&request)?.unwrap_or_default();
        // In a later frame a pool may be gone, which is then left out.
        output::complain(&asked.failed)?;
        let before = self.look()?;
        if self.json || self.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            std::thread::sleep(delay);
            let frame = frame(&before, &self.look()?);
            if self.json {
                return output::print(&format!("{}\n", serde_json::to_string(&frame)?));
            }
            return output::print(&(frame.draw(self.sort, NO_TERMINAL).join("\n") + "\n"));
        }
        self.watch(before, delay)
    }

    /// Draws frames until a key ends it.
    fn watch(&self, mut before: Look, delay: Duration) -> Result<()> {
        let (mut sort, mut shown) = (self.sort, None::<Frame>);
        let mut feed = Feed::begin()?;
        let mut screen = Screen::begin()?;
        loop {
            let lines = match &shown {
                Some(frame) => frame.draw(sort, output::terminal_size().unwrap_or(NO_TERMINAL)),
                None => vec!["cenote top: the first frame comes in a moment; q ends it".to_owned()],
            };
            screen.draw(&lines)?;
            let until = before.at + delay;
            match key(until.saturating_duration_since(Instant::now()))? {
                Some(b'q' | b'Q' | CTRL_C) => return Ok(()),
                Some(b'b') => sort = Sort::Bytes,
                Some(b'r') => sort = Sort::Reads,
                Some(b'w') => sort = Sort::Writes,
                Some(b'n') => sort = Sort::Name,
                Some(b' ') | None => {
                    if let Some(feed) = &mut feed {
                        // Where the daemon went away, nothing is drawn that is not so.
                        feed.wait(Some(Duration::ZERO))?;
                    }
                    let now = self.look()?;
                    shown = Some(frame(&before, &now));
                    before = now;
                }
                Some(_) => {}
            }
        }
    }

    fn look(&self) -> Result<Look> {
        let groups = GROUPS.map(str::to_owned).to_vec();
        let counters = counters::ask(&GetCounters { groups, pools: self.pools.clone() })?;
        let properties = PROPERTIES.map(str::to_owned).to_vec();
        let request = ListPools { pools: self.pools.clone(), properties, vdevs: false };
        let listed: Listed<PoolEntry> = client::call_running(&request)?.unwrap_or_default();
        // A daemon that does not answer that has no curves.
        let curves = client::call_running(&GetWhatIf { pools: self.pools.clone() }).ok().flatten();
        let curves = curves.unwrap_or_default().entries;
        let reshapes = client::call_running(&ListReshapes::default()).ok().flatten();
        let mut reshapes = reshapes.unwrap_or_default();
        reshapes.retain(|reshape| {
            let pool = reshape.volume.split('/').next().unwrap_or_default();
            listed.entries.iter().any(|entry| entry.name == pool)
        });
        Ok(Look { at: Instant::now(), counters, pools: listed.entries, curves, reshapes })
    }
}

fn frame(before: &Look, now: &Look) -> Frame {
    let mut frame = Frame::between(&before.counters, &now.counters, &now.pools, now.at - before.at);
    frame.arc.note_curves(&now.curves);
    frame.reshapes.clone_from(&now.reshapes);
    frame
}

/// The key that is pressed within this time.
fn key(patience: Duration) -> Result<Option<u8>> {
    let stdin = io::stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    match poll(&mut waiting, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(None),
        Ok(_) => {
            let mut typed = [0];
            // Not through the buffer of `Stdin`, which `poll` does not know.
            let read = rustix::io::read(&stdin, &mut typed).context("cannot read the keyboard")?;
            Ok(Some(if read == 0 { b'q' } else { typed[0] }))
        }
        Err(error) => Err(error).context("cannot wait for a key"),
    }
}

/// The other screen of the terminal, until dropped.
struct Screen {
    _keys: NoEcho,
}

impl Screen {
    fn begin() -> Result<Self> {
        let modes = libc::ECHO | libc::ICANON | libc::ISIG;
        let keys = NoEcho::begin(io::stdin().as_raw_fd(), modes)?;
        output::print("\x1b[?1049h\x1b[?25l")?;
        Ok(Self { _keys: keys })
    }

    /// Draws lines from the top. Each clears what was behind it, and the last one what was below.
    fn draw(&mut self, lines: &[String]) -> Result<()> {
        output::print(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
    }
}
