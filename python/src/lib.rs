//! The compiled half of the Python package `wgrad`: plans as JSON and HTML. `python/wgrad/__init__.py` has the documented functions.

use std::path::PathBuf;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use wgrad::Error as Failure;
use wgrad::memory::planner::{Item, Problem};
use wgrad::models::Model;
use wgrad::onnx::Network;
use wgrad::report::{self, Request, Source, TraceFile};

create_exception!(wgrad, Error, PyException, "What went wrong in wgrad, with the numbers and what to do.");

/// Arguments that cannot be are a `ValueError`, everything else is a `wgrad.Error`.
fn raised(error: Failure) -> PyErr {
    match error {
        Failure::Setting { .. } | Failure::Unknown { .. } | Failure::Pack(_) => {
            PyValueError::new_err(error.to_string())
        }
        _ => Error::new_err(error.to_string()),
    }
}

/// Settings by the names of the command line, as text.
type Settings = Vec<(String, String)>;

fn request(settings: &Settings) -> wgrad::Result<Request> {
    let mut request = Request::default();
    settings.iter().try_for_each(|(name, value)| request.set(name, value))?;
    Ok(request)
}

/// A plan, with what its pictures need.
#[pyclass(frozen, module = "wgrad._native")]
struct Planned(report::Planned);

#[pymethods]
impl Planned {
    /// What `wgrad plan --json` prints.
    fn json(&self) -> String {
        self.0.json().to_string()
    }

    /// The table of bytes.
    fn text(&self) -> String {
        self.0.text()
    }

    fn title(&self) -> String {
        self.0.title()
    }

    /// The page of `wgrad plan --html`, with the plan next to one without any savings.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.html()).map_err(raised)
    }
}

#[pyfunction]
fn plan(py: Python<'_>, name: &str, settings: Settings) -> PyResult<Planned> {
    let planned = || request(&settings)?.plan(&Source::Named(name));
    py.detach(planned).map(Planned).map_err(raised)
}

#[pyfunction]
fn plan_onnx(py: Python<'_>, path: PathBuf, settings: Settings) -> PyResult<Planned> {
    let planned = || {
        let network = Network::read(&path)?.without_elements();
        request(&settings)?.plan(&Source::Onnx(&network))
    };
    py.detach(planned).map(Planned).map_err(raised)
}

/// Items are names, lifetimes `[lower, upper)`, sizes and alignments. Returns the report and an offset for each item.
#[pyfunction]
fn pack(
    py: Python<'_>,
    items: Vec<(String, u64, u64, u64, u64)>,
    capacity: Option<u64>,
    effort: &str,
) -> PyResult<(String, Vec<u64>)> {
    let item = |(name, lower, upper, size, alignment): (String, u64, u64, u64, u64)| {
        Item::new(name, lower, upper, size).aligned(alignment)
    };
    let problem = Problem::new(items.into_iter().map(item).collect());
    let (packing, json) = py.detach(|| report::pack(&problem, effort, capacity)).map_err(raised)?;
    let certificate = &packing.certificate;
    match capacity {
        Some(capacity) if certificate.height > capacity => {
            let (height, bound) = (certificate.height, certificate.lower_bound);
            let advice = match bound > capacity {
                true => "no packing can fit; shrink or shorten the buffers",
                false => "try effort=\"exact\"",
            };
            Err(Error::new_err(format!(
                "it needs {height} bytes, more than the capacity of {capacity} (lower bound {bound}): {advice}"
            )))
        }
        _ => Ok((
            json.to_string(),
            packing.solution.placements.iter().map(|placement| placement.offset).collect(),
        )),
    }
}

#[pyfunction]
fn replay_trace(
    py: Python<'_>,
    path: PathBuf,
    strategy: &str,
    capacity: Option<u64>,
    device: Option<usize>,
) -> PyResult<String> {
    let replayed = || {
        let file = TraceFile::read(&path, device)?;
        report::replayed(&file, &path.display().to_string(), strategy, capacity).map(|json| json.to_string())
    };
    py.detach(replayed).map_err(raised)
}

#[pyfunction]
fn models() -> Vec<&'static str> {
    Model::NAMES.to_vec()
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Error, Planned, models, pack, plan, plan_onnx, replay_trace};
}
