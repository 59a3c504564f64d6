//! The compiled half of the Python package `wgrad`: plans as JSON and HTML. `python/wgrad/__init__.py` has the documented functions.

use std::path::PathBuf;
use std::time::Instant;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use wgrad::Error as Failure;
use wgrad::memory::planner::{Effort, Item, Options, Problem, solve};
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

fn unknown(kind: &'static str, name: &str, known: &[&str]) -> Failure {
    let known = known.iter().map(|&name| name.to_owned()).collect();
    Failure::Unknown { kind, name: name.to_owned(), known }
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
    let effort = match effort {
        "fast" => Effort::Fast,
        "balanced" => Effort::Balanced,
        "exact" => Effort::Exact,
        _ => return Err(raised(unknown("effort", effort, &["fast", "balanced", "exact"]))),
    };
    let item = |(name, lower, upper, size, alignment): (String, u64, u64, u64, u64)| {
        Item::new(name, lower, upper, size).aligned(alignment)
    };
    let problem = Problem::new(items.into_iter().map(item).collect());
    let start = Instant::now();
    let options = Options { effort, capacity, time_limit: None };
    let packing = py.detach(|| solve(&problem, &options)).map_err(|error| raised(error.into()))?;
    let json = report::packing_json(&problem, &packing, start.elapsed().as_secs_f64()).to_string();
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
        _ => Ok((json, packing.solution.placements.iter().map(|placement| placement.offset).collect())),
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
        let chosen = report::contenders_named(strategy)?;
        if capacity == Some(0) {
            return Err(Failure::setting("capacity", "capacity 0: it must be at least 1 byte"));
        }
        let file = TraceFile::read(&path, device)?;
        let outcomes = chosen.into_iter().map(|contender| file.replay(contender, capacity));
        let outcomes = outcomes.collect::<wgrad::Result<Vec<_>>>()?;
        Ok(file.json(&path, &outcomes).to_string())
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
