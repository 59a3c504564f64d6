//! Validation of cooperative matrices. Those that an adapter offers are used only after they have proved
//! correct here, and faster than the kernels that would run otherwise. Some drivers have offered them with
//! wrong results, or slower.

mod convolutions;
mod exact;
mod products;

use std::time::Duration;

use super::{Session, trial};
use crate::compile::Plan;
use crate::device::Device;
use crate::dtype::Precision;
use crate::error::{Error, Result};
use crate::kernels::cooperative::BLOCKS;
use crate::limits::{Limits, Products};

impl Device {
    /// Returns what to plan for on this device: its limits and, with [`Precision::F16`] on a GPU that offers
    /// them, cooperative matrices (tensor cores). Products use them if they passed `test_cooperative` and
    /// won the race of products; convolutions use them if they won the race of convolutions as well
    /// (`race_cooperative`). These trials compile dozens of kernels, which takes seconds (3.6 s on Mesa's
    /// software adapter). They run once for a device, or once for an adapter and driver if
    /// [`DeviceOptions::cache`](crate::device::DeviceOptions::cache) names a folder. They do not run on
    /// software adapters, which have no hardware for cooperative matrices.
    pub fn target(&self, precision: Precision) -> Limits {
        let limits = self.limits();
        if precision != Precision::F16 || limits.class.is_cpu() {
            return limits.clone();
        }
        let verdict = verdict(self);
        let lanes = self.note(LANES).and_then(|lanes| lanes.parse().ok());
        let tried = self.adapter().cooperative.iter().find(|matrices| Some(matrices.lanes) == lanes);
        let Some(matrices) = tried.copied().filter(|_| is_favourable(&verdict)) else {
            return limits.clone();
        };
        limits.choosing(|kernels| {
            (kernels.cooperative, kernels.cooperative_convolutions) = (Some(matrices), verdict == WON);
        })
    }
}

impl Device {
    /// Returns, in words, why cooperative matrices are used or not. With `try_them`, runs the trials of
    /// [`Device::target`] if they have not run before; otherwise `None` if they have not.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn cooperative_verdict(&self, try_them: bool) -> Option<String> {
        let adapter = self.adapter();
        match adapter.cooperative.first() {
            None => Some(format!("not used: {}", adapter.cooperative_reason)),
            Some(_) if adapter.limits.class.is_cpu() => {
                Some("not used: software adapters have no hardware for them".to_owned())
            }
            Some(_) if try_them => Some(in_words(&verdict(self))),
            Some(_) => self.note(NOTE).map(|verdict| in_words(&verdict)),
        }
    }
}

fn in_words(verdict: &str) -> String {
    let used = if is_favourable(verdict) { "used" } else { "not used" };
    format!("{used}: {verdict}")
}

/// Name of the note that holds the verdict, and the verdicts in favour.
const NOTE: &str = "cooperative_verdict";
/// Name of the note that holds the lanes of the subgroups for which they were right.
const LANES: &str = "cooperative_lanes";
const WON: &str = "right and faster";
const PRODUCTS: &str = "right and faster in products alone";

fn is_favourable(verdict: &str) -> bool {
    verdict == WON || verdict == PRODUCTS
}

/// Returns the noted verdict, or runs the trials.
fn verdict(device: &Device) -> String {
    if let Some(verdict) = device.note(NOTE) {
        return verdict;
    }
    let name = &device.adapter().name;
    let races = test_cooperative(device).and_then(|with| {
        let lanes = with.kernels.cooperative.map_or(0, |matrices| matrices.lanes);
        device.set_note(LANES, &lanes.to_string());
        race_cooperative(device, &with)
    });
    let verdict = match races {
        Ok(Races { products, convolutions }) if products.is_won() && convolutions.is_won() => {
            log::info!("{name}: cooperative matrices are right and faster: {products}; {convolutions}");
            WON.to_owned()
        }
        Ok(Races { products, convolutions }) if products.is_won() => {
            log::warn!("{name}: convolutions do not use cooperative matrices, products do: {convolutions}");
            PRODUCTS.to_owned()
        }
        Ok(Races { products, .. }) => format!("right and not faster: {products}"),
        // Not noted: memory may suffice the next time.
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

/// Multiplies and convolves on the device, and compares each element with the sum in `f64`: 18 kinds of
/// products, and convolutions with their gradients of image and weight, in small and in large blocks. Returns
/// the limits to plan with if cooperative matrices are wanted whether they are faster or not: those of the first size
/// of subgroups with which all are right.
///
/// An element may differ by the rounding of its factors to `f16` (2⁻¹¹ of each, or 2⁻²⁴ where `f16` has no
/// normal numbers), and by one rounding to `f32` for each product in its sum. The latter counts twice,
/// because tensor cores truncate where they should round.
///
/// # Errors
/// [`Error::Setting`] if the device offers no cooperative matrices; [`Error::Internal`] with the first element
/// that is wrong; errors of compiling and running.
pub fn test_cooperative(device: &Device) -> Result<Limits> {
    let name = &device.adapter().name;
    let mut wrong = Error::unsupported(
        name,
        format!("`{name}` offers no cooperative matrices, or they are switched off"),
    );
    for matrices in &device.adapter().cooperative {
        let limits = device.limits().choosing(|kernels| kernels.cooperative = Some(*matrices));
        match test_with(device, &limits) {
            Ok(()) => return Ok(limits),
            Err(error) if error.is_out_of_memory() => return Err(error),
            Err(error) => wrong = error,
        }
    }
    Err(wrong)
}

/// Does what `test_cooperative` does, with the matrices of these limits.
fn test_with(device: &Device, limits: &Limits) -> Result<()> {
    products::test(device, limits)?;
    for products in [Products::default(), Products::all(BLOCKS[0].name)] {
        convolutions::test(device, &limits.choosing(|kernels| kernels.products = products))?;
    }
    Ok(())
}

/// Times of the same work with cooperative matrices and without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Race {
    /// What was computed.
    pub work: &'static str,
    /// Time with cooperative matrices.
    pub cooperative: Duration,
    /// Time without them.
    pub otherwise: Duration,
}

/// Results of [`race_cooperative`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Races {
    /// A product of matrices.
    pub products: Race,
    /// A convolution.
    pub convolutions: Race,
}

impl Race {
    /// Whether cooperative matrices won clearly: the other kernels took more than 1.1 times as long, so that
    /// noise does not decide.
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

/// Times a matrix product and a convolution with the cooperative matrices of the limits `with` and without, in alternation,
/// with operands stored in `f16`. The product is of square matrices, 2,048³ on a GPU and 256³ on a CPU. The
/// convolution is 3 × 3 and forward: on a GPU of 32 images of 128 channels of 56 × 56, on a CPU of one image
/// of 32 channels of 16 × 16.
///
/// # Errors
/// Errors of running, such as too little memory.
pub fn race_cooperative(device: &Device, with: &Limits) -> Result<Races> {
    let race = |work, plan: &dyn Fn(&Limits) -> Result<Plan>| -> Result<Race> {
        let session = |limits: &Limits| Session::new(device, &plan(limits)?);
        let [cooperative, otherwise] = trial::shortest(&mut [session(with)?, session(device.limits())?])?;
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
