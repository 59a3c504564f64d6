//! Cooperative matrices on trial: what an adapter offers is used when it has shown here that it is right, and faster than the
//! kernels that would run otherwise. Drivers have offered them with wrong results, and slower.

mod convolutions;
mod exact;
mod products;

use std::time::Duration;

use super::{Session, trial};
use crate::device::Device;
use crate::dtype::Precision;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::lower::cooperative::BLOCKS;

/// What plans for a device may count on: its limits and, with [`Precision::F16`] on a GPU that offers them, cooperative
/// matrices that passed [`test_cooperative`] and won [`race_cooperative`]. That takes a fraction of a second, once for a
/// device, or for an adapter and driver if [`DeviceOptions::cache`](crate::device::DeviceOptions::cache) names a folder.
/// Software adapters have no hardware for them: there they are not even tried.
pub fn limits_for(device: &Device, precision: Precision) -> Limits {
    let limits = device.limits();
    if precision != Precision::F16 || limits.class.is_cpu() {
        return limits.clone();
    }
    let cooperative = device.adapter().cooperative.filter(|_| proven(device));
    Limits { cooperative, ..limits.clone() }
}

/// Under which name the verdict is noted, and its words.
const NOTE: &str = "cooperative_products_and_convolutions";
const WON: &str = "right and faster";

fn proven(device: &Device) -> bool {
    if let Some(verdict) = device.note(NOTE) {
        return verdict == WON;
    }
    let name = &device.adapter().name;
    let verdict = match test_cooperative(device).and_then(|_| race_cooperative(device)) {
        Ok(race) if race.is_won() => {
            log::info!("{name}: cooperative matrices are right and faster: {race}");
            WON.to_owned()
        }
        Ok(race) => format!("right and not faster: {race}"),
        // That may be otherwise the next time.
        Err(error) if error.is_out_of_memory() => {
            log::warn!("{name}: cooperative matrices are not tried: {error}");
            return false;
        }
        Err(error) => error.to_string(),
    };
    if verdict != WON {
        log::warn!("{name}: cooperative matrices are not used: {verdict}");
    }
    device.set_note(NOTE, &verdict);
    verdict == WON
}

/// The device's limits with what it offers, tried or not.
fn untried(device: &Device) -> Result<Limits> {
    let cooperative = device.adapter().cooperative;
    if cooperative.is_none() {
        let name = &device.adapter().name;
        return Err(Error::Option(format!(
            "`{name}` offers no cooperative matrices, or they are switched off"
        )));
    }
    Ok(Limits { cooperative, ..device.limits().clone() })
}

/// Multiplies and convolves on the device, and compares each element with the sum in `f64`: 18 kinds of products, and
/// convolutions forward, back to the image and back to the weight, in small blocks and in large ones. Returns the limits to plan
/// with if one wants cooperative matrices whether they are faster or not.
///
/// An element may differ by what rounding to `f16` does to its factors (2⁻¹¹ of each, or 2⁻²⁴ where `f16` has no normal
/// numbers), and by a rounding to `f32` for each product in its sum; tensor cores cut where they should round, so it counts
/// twice.
///
/// # Errors
/// [`Error::Option`] if the device offers no cooperative matrices; [`Error::Internal`] with the first element that is wrong;
/// what compiling and running return.
pub fn test_cooperative(device: &Device) -> Result<Limits> {
    let limits = untried(device)?;
    products::test(device, &limits)?;
    for product in [None, Some(BLOCKS[0].name)] {
        convolutions::test(device, &Limits { product, ..limits.clone() })?;
    }
    Ok(limits)
}

/// Times of the same product, by cooperative matrices and by what would run otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Race {
    /// Rows and columns of both factors.
    pub size: usize,
    /// With cooperative matrices.
    pub cooperative: Duration,
    /// Without.
    pub otherwise: Duration,
}

impl Race {
    /// Whether cooperative matrices won clearly: by a tenth, so that chance does not decide.
    pub fn is_won(&self) -> bool {
        self.cooperative.as_secs_f64() * 1.1 < self.otherwise.as_secs_f64()
    }
}

impl std::fmt::Display for Race {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, cooperative, otherwise } = self;
        write!(f, "{size}³ takes {cooperative:.2?} with and {otherwise:.2?} without them")
    }
}

/// Multiplies square matrices held in `f16` with cooperative matrices and without, in turns: 2,048³ on a GPU, 256³ on a CPU.
///
/// # Errors
/// [`Error::Option`] if the device offers no cooperative matrices; what running returns, such as too little memory.
pub fn race_cooperative(device: &Device) -> Result<Race> {
    let with = untried(device)?;
    let size = if with.class.is_cpu() { 256 } else { 2048 };
    let runner = |limits: &Limits| {
        Session::new(device, &trial::product([size; 3], [false; 2], Precision::F16, limits)?)
    };
    let [cooperative, otherwise] = trial::shortest(&mut [runner(&with)?, runner(device.limits())?])?;
    Ok(Race { size, cooperative, otherwise })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_wins_no_race() {
        let race = |cooperative: u64, otherwise: u64| {
            let [cooperative, otherwise] = [cooperative, otherwise].map(Duration::from_micros);
            Race { size: 2048, cooperative, otherwise }.is_won()
        };
        assert!(race(100, 200) && race(100, 111));
        assert!(!race(100, 109) && !race(200, 100));
    }
}
