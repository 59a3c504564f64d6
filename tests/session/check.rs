//! Checks every operation, then random networks with random options, on every adapter: the same 24 networks,
//! or as many as `WGRAD_CHECK_GRAPHS` sets, starting at seed `WGRAD_CHECK_SEED`.

use crate::support::{devices, on_each};
use wgrad::check::{self, Options};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_networks_agree_with_the_twin() {
    let (graphs, seed) = (number("WGRAD_CHECK_GRAPHS"), number("WGRAD_CHECK_SEED").unwrap_or(0));
    let options = Options { graphs: graphs.unwrap_or(24), seed, time: None, fuse_one_in: 8 };
    on_each(devices(), |device| {
        let report = check::run(device, &options).expect("no device is lost");
        eprintln!(
            "{}: {} operations, {} networks from seed {seed}, worst error {:.2}",
            report.adapter, report.operations, report.graphs, report.worst_error
        );
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.graphs, options.graphs);
    });
}
