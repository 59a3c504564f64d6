//! Checks every operation, then random networks with random options, on every adapter: `WGRAD_CHECK_GRAPHS` networks on each, from
//! seed `WGRAD_CHECK_SEED`, the next adapter after those of the one before it; by default 24 on all adapters together.

use crate::support::devices;
use wgrad::check::{self, Options};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_networks_agree_with_the_twin() {
    let graphs = number("WGRAD_CHECK_GRAPHS").unwrap_or(24 / devices().len().max(1) as u64);
    let first = number("WGRAD_CHECK_SEED").unwrap_or(0);
    for (position, device) in devices().iter().enumerate() {
        let seed = first + position as u64 * graphs;
        let options = Options { graphs, seed, time: None, fuse_one_in: 8 };
        let report = check::run(device, &options).expect("no device is lost");
        eprintln!(
            "{}: {} operations, {} networks from seed {seed}, worst error {:.2}",
            report.adapter, report.operations, report.graphs, report.worst_error
        );
        assert!(report.failures.is_empty(), "{}: {:#?}", report.adapter, report.failures);
        assert_eq!(report.graphs, graphs);
    }
}
