//! Every adapter of the machine, opened once for a test program, and the classes that each can be planned
//! for.

use super::skip::skip;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;
use std::sync::OnceLock;

use wgrad::device::{Device, DeviceOptions, Select};
use wgrad::kernels::conv::{VARIANTS, Variant};
use wgrad::limits::{AdapterClass, Limits, Products};
use wgrad::random;

/// Returns every usable adapter, opened once for each test program, so that its pipelines are compiled once.
/// With `WGRAD_CHECKED=1` kernels check bounds and loops in all tests.
pub fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| open_all(std::env::var_os("WGRAD_CHECKED").is_some_and(|value| value == "1")))
}

/// Returns one adapter with kernels that check bounds and loops: the checks are part of the translated kernels, the same
/// on all adapters. It is the last of the list: SwiftShader, where it is there, compiles twice as fast as lavapipe.
pub fn checked_devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let mut all = open_all(true);
        let last = all.pop();
        last.into_iter().collect()
    })
}

fn open_all(checked: bool) -> Vec<Device> {
    let all = Device::list();
    for adapter in &all {
        if let Some(why) = &adapter.unusable {
            skip(&format!("adapter {}: {why}", adapter.name));
        }
    }
    let named = std::env::var("WGRAD_ADAPTER").unwrap_or_default();
    let usable: Vec<_> = all
        .into_iter()
        .filter(|adapter| adapter.unusable.is_none() && adapter.name.contains(&named))
        .collect();
    let required = std::env::var("WGRAD_REQUIRE_ADAPTERS").unwrap_or_default();
    for name in required.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let there: Vec<&str> = usable.iter().map(|adapter| adapter.name.as_str()).collect();
        assert!(
            there.iter().any(|adapter| adapter.contains(name)),
            "WGRAD_REQUIRE_ADAPTERS names `{name}`, which is not here; there are {there:?}"
        );
    }
    if usable.is_empty() {
        skip("no adapter on this machine, nothing ran on a device");
    }
    // With the backend: on Windows a card is there through Vulkan and through DirectX.
    let open = |name: String| {
        let options = DeviceOptions { select: Select::Named(name), checked, ..DeviceOptions::default() };
        Device::open(&options).expect("an adapter that is listed as usable opens")
    };
    usable.iter().map(|adapter| open(adapter.selector())).collect()
}

/// Opens the adapters again, for tests of budgets and of failing submits: these settings hold for all clones
/// of a device.
pub fn own_devices() -> Vec<Device> {
    let open = |device: &Device| Device::by_name(&device.adapter().selector()).expect("it was open before");
    devices().iter().map(open).collect()
}

/// Returns the devices with cooperative matrices, each with limits that use them, whether they are fast or
/// not.
pub fn cooperative() -> Vec<(&'static Device, Limits)> {
    let with = |device: &'static Device| {
        let cooperative = device.adapter().cooperative.first().copied();
        cooperative.map(|_| (device, device.limits().choosing(|kernels| kernels.cooperative = cooperative)))
    };
    let all: Vec<_> = devices().iter().filter_map(with).collect();
    if all.is_empty() {
        let required = std::env::var_os("WGRAD_REQUIRE_COOPERATIVE").is_some_and(|value| value == "1");
        assert!(!required, "WGRAD_REQUIRE_COOPERATIVE: no adapter here has cooperative matrices");
        skip("no adapter here has cooperative matrices (scripts/recent_mesa.sh builds one)");
    }
    all
}

/// Runs `body` on each device; a failure names the device.
pub fn on_each(devices: &[Device], body: impl Fn(&Device)) {
    for device in devices {
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| body(device))) {
            eprintln!("^ on {}", device.adapter().name);
            resume_unwind(failure);
        }
    }
}

/// Returns the device's own limits, and on CPUs also the same limits with the kernels for GPUs.
pub fn both_classes(device: &Device) -> Vec<Limits> {
    let own = device.limits().clone();
    if !own.class.is_cpu() {
        // Kernels for CPUs rely on the subgroups of CPUs.
        return vec![own];
    }
    let name = format!("{} as a GPU", own.name);
    vec![
        own.clone(),
        Limits { name, class: AdapterClass::Discrete, ..own.choosing(|kernels| kernels.long_words = false) },
    ]
}

/// Calls `body` for each case on every device without checks, and with `and_checked` on the device with them. Compiling kernels
/// takes most of these tests' time, so where there are several adapters, each has a case for one of its classes, and the
/// next adapter for the other: every case runs on each adapter and for each class, but not for each of their pairs.
pub fn each_case<T>(
    cases: impl IntoIterator<Item = T>,
    and_checked: bool,
    body: impl Fn(&Device, &Limits, &T),
) {
    let checked = if and_checked { checked_devices() } else { &[] };
    for (i, case) in cases.into_iter().enumerate() {
        // At random, so that it is independent of what alternates in the cases.
        let first = random::bits(0, i as u64) as usize;
        let alone = devices().len() == 1;
        for (position, device) in devices().iter().chain(checked).enumerate() {
            let classes = both_classes(device);
            let one = (first + position) % classes.len();
            let run = if alone && position == 0 { &classes[..] } else { &classes[one..=one] };
            on_each(slice::from_ref(device), |device| {
                run.iter().for_each(|limits| body(device, limits, &case));
            });
        }
    }
}

/// Returns every row of the table of convolutions that the device can run, with limits that name it: as a
/// GPU, whose convolutions fuse more sources, except for the row that is made for CPUs.
pub fn rows_of_convolutions(device: &Device) -> Vec<(&'static Variant, Limits)> {
    let own = device.limits();
    let with = |row: &'static Variant| {
        let class = if row.name == "packed" { own.class } else { AdapterClass::Discrete };
        let name = format!("{} with {}", own.name, row.name);
        (row, Limits { name, class, ..own.choosing(|kernels| kernels.products = Products::all(row.name)) })
    };
    let (rows, others): (Vec<_>, Vec<_>) = VARIANTS.iter().partition(|row| row.runs_on(own));
    for row in others {
        skip(&format!("{}: {} does not run", own.name, row.name));
    }
    rows.into_iter().map(with).collect()
}
