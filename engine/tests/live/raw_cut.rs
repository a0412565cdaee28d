//! Power cuts while raw streams are received, without any key: after the import a dataset is as before, as it
//! was sent, or received in part; then the rest of the stream completes it. The MACs of the sender, and what
//! its files hold, are the judges.

use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::pool::live::LivePool;
use engine::receive::ReceiveTarget;
use ondisk::vdev_config::PoolState;
use testkit::Rng;
use testkit::crash::{Player, Recorder};

use crate::encrypted::plant;
use crate::raw::{Pair, rest_for, seen};
use crate::receive::{names, receive};
use crate::receive_cut::{import, recorded};
use crate::support::committing;

/// Moments of the power cut that are looked at.
const POINTS: usize = 24;

/// Whether a received snapshot is what was sent, once its key is loaded.
async fn has(pair: &Pair, pool: &Arc<LivePool>, snapshot: &str) {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    dsl.load_key("tank/copy", &pair.key("ccm"), false).await.unwrap();
    let sent = seen(&pair.source.view(), &format!("crypt/ccm@{snapshot}")).await;
    assert!(seen(&pool.view(), &format!("tank/copy@{snapshot}")).await == sent, "{snapshot}");
    dsl.unload_key("tank/copy").await.unwrap();
}

#[test]
fn after_a_power_cut_a_raw_stream_is_before_after_or_resumable() {
    let Some(pair) = block_on(Pair::new(31)) else { return };
    let resumable = ReceiveTarget { resumable: true, ..ReceiveTarget::default() };
    let (full, more) = block_on(async {
        let zpl = pair.filesystem("ccm").await;
        for number in 0..4 {
            committing(&pair.source, plant(&zpl, number)).await;
        }
        pair.snapshot("a").await;
        for number in 4..8 {
            committing(&pair.source, plant(&zpl, number)).await;
        }
        drop(zpl);
        pair.snapshot("b").await;
        (pair.sent("ccm@a", None, true).await, pair.sent("ccm@b", Some("a"), true).await)
    });
    let recorder = Recorder::new(13);
    let begin = block_on(async {
        let pool = recorded(&recorder).await;
        let begin = recorder.position();
        committing(&pool, receive(&pool, &full, "tank/copy", &resumable)).await.unwrap();
        committing(&pool, receive(&pool, &more, "tank/copy", &ReceiveTarget::default())).await.unwrap();
        begin
    });
    let mut player = Player::new(&recorder);
    let events = player.end() - begin;
    let mut rng = Rng::new(6);
    let (mut before, mut resumed, mut received) = (0, 0, 0);
    for number in 0..=POINTS {
        player.advance(begin + events * number / POINTS);
        let disks = player.disks_after_power_cut(&mut rng);
        block_on(async {
            let pool = import(&disks, number as u64).await;
            let there = names(&pool).await;
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            match there[..] {
                ["tank"] => before += 1,
                ["tank", "tank/copy"] => {
                    let rest = rest_for(&pair.source, &pool, "tank/copy").await;
                    committing(&pool, receive(&pool, &rest, "tank/copy", &resumable)).await.unwrap();
                    has(&pair, &pool, "a").await;
                    resumed += 1;
                }
                ["tank", "tank/copy", "tank/copy@a"] => {
                    has(&pair, &pool, "a").await;
                    committing(&pool, receive(&pool, &more, "tank/copy", &ReceiveTarget::default()))
                        .await
                        .unwrap();
                    has(&pair, &pool, "b").await;
                    received += 1;
                }
                ["tank", "tank/copy", "tank/copy@a", "tank/copy@b"] => {
                    has(&pair, &pool, "b").await;
                    received += 1;
                }
                _ => panic!("point {number}: {there:?}"),
            }
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
    assert!(resumed > 3 && received > 3, "{before} before, {resumed} resumed, {received} received");
    block_on(pair.close());
}
