//! Cooperative matrices on trial: what an adapter offers is used when it has shown here that it is right, and faster than the
//! kernels that would run otherwise. Drivers have offered them with wrong results, and slower.

mod convolutions;
mod exact;
mod products;

use std::time::Duration;

use super::{Session, trial};
use crate::compile::Plan;
use crate::device::Device;
use crate::dtype::Precision;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::lower::cooperative::BLOCKS;

/// What plans for a device may count on: its limits and, with [`Precision::F16`] on a GPU that offers them, cooperative
/// matrices that passed [`test_cooperative`] and won the race of products, and with convolutions if they won theirs
/// ([`race_cooperative`]). That compiles dozens of kernels, which takes seconds (3.6 s on Mesa's software adapter): once for a
/// device, or for an adapter and driver if [`DeviceOptions::cache`](crate::device::DeviceOptions::cache) names a folder.
/// Software adapters have no hardware for them: there they are not even tried.
pub fn limits_for(device: &Device, precision: Precision) -> Limits {
    let limits = device.limits();
    if precision != Precision::F16 || limits.class.is_cpu() {
        return limits.clone();
    }
    let verdict = verdict(device);
    let cooperative = device.adapter().cooperative.filter(|_| is_favourable(&verdict));
    Limits { cooperative, cooperative_convolutions: verdict == WON, ..limits.clone() }
}

/// Under which name the verdict is noted, and the words of those in favour.
const NOTE: &str = "cooperative_by_races";
const WON: &str = "right and faster";
const PRODUCTS: &str = "right and faster in products alone";

fn is_favourable(verdict: &str) -> bool {
    verdict == WON || verdict == PRODUCTS
}

/// What was noted, or what trials say now.
fn verdict(device: &Device) -> String {
    if let Some(verdict) = device.note(NOTE) {
        return verdict;
    }
    let name = &device.adapter().name;
    let verdict = match test_cooperative(device).and_then(|_| race_cooperative(device)) {
        Ok(Races { products, convolutions }) if products.is_won() && convolutions.is_won() => {
            log::info!("{name}: cooperative matrices are right and faster: {products}; {convolutions}");
            WON.to_owned()
        }
        Ok(Races { products, convolutions }) if products.is_won() => {
            log::warn!("{name}: convolutions do not use cooperative matrices, products do: {convolutions}");
            PRODUCTS.to_owned()
        }
        Ok(Races { products, .. }) => format!("right and not faster: {products}"),
        // That may be otherwise the next time.
        Err(error) if error.is_out_of_memory() => {
            log::warn!("{name}: cooperative matrices are not tried: {error}");
            return error.to_string();
        }
        Err(error) => error.to_string(),
    };
    if !is_favourable(&verdict) {
        log::warn!("{name}: cooperative matrices are not used: {verdict}");
    }
    device.set_note(NOTE, &verdict);
    verdict
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

/// Times of the same work, by cooperative matrices and by what would run otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Race {
    /// What was computed.
    pub work: &'static str,
    /// With cooperative matrices.
    pub cooperative: Duration,
    /// Without.
    pub otherwise: Duration,
}

/// What [`race_cooperative`] found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Races {
    /// A product of matrices.
    pub products: Race,
    /// A convolution.
    pub convolutions: Race,
}

impl Race {
    /// Whether cooperative matrices won clearly: by a tenth, so that chance does not decide.
    pub fn is_won(&self) -> bool {
        self.cooperative.as_secs_f64() * 1.1 < self.otherwise.as_secs_f64()
    }
}

impl std::fmt::Display for Race {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { work, cooperative, otherwise } = self;
        write!(f, "{work} takes {cooperative:.2?} with and {otherwise:.2?} without them")
    }
}

/// Computes with cooperative matrices and without, in turns, operands held in `f16`: a product of square matrices, 2,048³ on a
/// GPU and 256³ on a CPU, and a convolution by 3 × 3 forward, of 32 images of 128 channels of 56 × 56 or one of 32 of 16 × 16.
///
/// # Errors
/// [`Error::Option`] if the device offers no cooperative matrices; what running returns, such as too little memory.
pub fn race_cooperative(device: &Device) -> Result<Races> {
    let with = untried(device)?;
    let race = |work, plan: &dyn Fn(&Limits) -> Result<Plan>| -> Result<Race> {
        let session = |limits: &Limits| Session::new(device, &plan(limits)?);
        let [cooperative, otherwise] = trial::shortest(&mut [session(&with)?, session(device.limits())?])?;
        Ok(Race { work, cooperative, otherwise })
    };
    let (product, size, convolution, sizes) = if with.class.is_cpu() {
        ("a product of 256³", 256, "a convolution of 32 channels of 16 × 16", [1, 32, 32, 16])
    } else {
        ("a product of 2,048³", 2048, "a convolution of 32 times 128 channels of 56 × 56", [32, 128, 128, 56])
    };
    Ok(Races {
        products: race(product, &|limits| trial::product([size; 3], [false; 2], Precision::F16, limits))?,
        convolutions: race(convolution, &|limits| trial::convolution(sizes, Precision::F16, limits))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn race_needs_a_margin_to_be_won() {
        let race = |cooperative: u64, otherwise: u64| {
            let [cooperative, otherwise] = [cooperative, otherwise].map(Duration::from_micros);
            Race { work: "work", cooperative, otherwise }.is_won()
        };
        assert!(race(100, 200) && race(100, 111));
        assert!(!race(100, 109) && !race(200, 100));
    }
}
