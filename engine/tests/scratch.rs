use device::block_on;
use engine::pool::discovery::scan;
use engine::pool::import::{ImportOptions, import};
use engine::pool::verify::{Progress, VerifyOptions, verify};
#[test]
fn scratch() {
    let dir = std::env::var("SCRATCH").unwrap();
    let pools = block_on(scan(&[dir])).unwrap();
    for found in pools {
        eprintln!("{} {:?} {} candidates", found.name, found.state(), found.candidates.len());
        match block_on(import(&found, &ImportOptions::read_only())) {
            Ok(pool) => {
                for v in pool.vdevs().tops.iter().flat_map(|t| t.walk()) {
                    eprintln!("  {} {:?} {:?} dtl {:?}", v.name, v.status, v.class(), v.missing_txgs.get());
                }
                let threads = std::env::var("THREADS").map_or(2, |t| t.parse().unwrap());
                let r = verify(&pool, VerifyOptions { threads, ..Default::default() }, &Progress::default())
                    .unwrap();
                eprintln!(
                    "{:?} total {:?} dedup {} clones {}\n unreadable {} damaged {} {:?}",
                    r.elapsed,
                    r.stats.total(),
                    r.stats.dedup_asize,
                    r.stats.cloned_asize,
                    r.unreadable_blocks,
                    r.damaged_blocks,
                    r.space
                );
                for e in r.errors.iter().take(5) {
                    eprintln!("  {} {:?} {:?}", e.at, e.tried, e.fatal);
                }
            }
            Err(error) => eprintln!("{error}"),
        }
    }
}
