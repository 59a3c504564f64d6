//! Checks every operation, then random networks with random options, on every adapter: 12 networks, others on each, or as many
//! as `WGRAD_CHECK_GRAPHS` sets, starting at seed `WGRAD_CHECK_SEED`.

use crate::support::{devices, on_each};
use wgrad::check::{self, Options};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_networks_agree_with_the_twin() {
    let (graphs, start) =
        (number("WGRAD_CHECK_GRAPHS").unwrap_or(12), number("WGRAD_CHECK_SEED").unwrap_or(0));
    on_each(devices(), |device| {
        let number =
            devices().iter().position(|other| other.adapter().selector() == device.adapter().selector());
        let seed = start + graphs * number.map_or(0, |number| number as u64);
        let options = Options { graphs, seed, time: None, fuse_one_in: 8 };
        let report = check::run(device, &options).expect("no device is lost");
        eprintln!(
            "{}: {} operations, {} networks from seed {seed}, worst error {:.2}",
            report.adapter, report.operations, report.graphs, report.worst_error
        );
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.graphs, options.graphs);
    });
}
