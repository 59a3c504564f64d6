//! The compiled half of the package `wgrad-web`: plans of training steps in JavaScript, without a GPU.

#[cfg(feature = "train")]
mod train;

use js_sys::{Array, Function, JSON, Object, Reflect};
use wasm_bindgen::prelude::*;
use wgrad::Bytes;
use wgrad::memory::planner::read_problem;
use wgrad::models::Model;
use wgrad::onnx::Network;
use wgrad::progress;
use wgrad::report::{self, Planned, Request, Source, TraceFile};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("../types.d.ts");

#[wasm_bindgen]
extern "C" {
    /// The options of `plan`, as types.d.ts has them.
    #[wasm_bindgen(typescript_type = "Settings")]
    pub type Settings;
    #[wasm_bindgen(typescript_type = "Report")]
    pub type Report;
    #[wasm_bindgen(typescript_type = "Packed")]
    pub type Packed;
    #[wasm_bindgen(typescript_type = "Replayed")]
    pub type Replayed;
    #[wasm_bindgen(typescript_type = "Known[]")]
    pub type Models;
    #[wasm_bindgen(typescript_type = "Time[]")]
    pub type Times;
    #[wasm_bindgen(typescript_type = "(what: string, share: number | undefined) => void")]
    pub type Progress;
}

/// A panic becomes an exception with its message. The module must be loaded anew after it.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        // Natively these sizes have 64 bits, and are refused by operations that cannot be that large.
        wasm_bindgen::throw_str(&match text.contains("with overflow") {
            true => "a size has more than 32 bits, which browsers count with: choose a smaller batch, image or context".to_owned(),
            false => format!("an error in wgrad: {text}"),
        })
    }));
}

/// Returns the networks that `plan` knows, each with what it takes: vectors, images or tokens.
#[wasm_bindgen]
pub fn models() -> Result<Models, JsError> {
    let list = Array::new();
    for name in Model::NAMES {
        let model = Model::named(name, 0)?;
        let takes = match (model.seq(), model.input_shape(1).rank()) {
            (Some(_), _) => "tokens",
            (None, 2) => "vectors",
            (None, _) => "images",
        };
        let known =
            [("name", name), ("takes", takes)].map(|(key, text)| Array::of2(&key.into(), &text.into()));
        list.push(&Object::from_entries(&known.iter().collect::<Array>()).unwrap_or_default());
    }
    Ok(list.unchecked_into())
}

/// Returns the values that a setting may have, if it is one of a few names; otherwise nothing.
#[wasm_bindgen]
pub fn choices(setting: &str) -> Vec<String> {
    Request::choices(setting).into_iter().map(str::to_owned).collect()
}

/// Returns the samples that an ONNX file fixes; `undefined` where it leaves them open.
#[wasm_bindgen]
pub fn fixed_batch(file: &[u8]) -> Result<Option<u32>, JsError> {
    Ok(Network::from_bytes(file)?.fixed_batch().and_then(|batch| u32::try_from(batch).ok()))
}

/// Returns the bytes of a size such as `8GB`.
#[wasm_bindgen]
pub fn size(text: &str) -> Result<f64, JsError> {
    match text.parse::<Bytes>() {
        Ok(Bytes(bytes)) => Ok(bytes as f64),
        Err(why) => Err(JsError::new(&format!("{text}: {why}"))),
    }
}

/// Packs buffers with known lifetimes. `problem` is a CSV file of the columns id, lower, upper (or end), size and perhaps
/// alignment; `effort` is fast, balanced or exact. Returns what `wgrad pack --json` prints, and `offsets` in the order of the file.
/// With a capacity it stops at the first packing of at most that height.
#[wasm_bindgen]
pub fn pack(problem: &str, effort: Option<String>, capacity: Option<f64>) -> Result<Packed, JsValue> {
    let problem = read_problem(problem).map_err(JsError::from)?;
    let effort = effort.as_deref().unwrap_or("balanced");
    let capacity = capacity.map(|bytes| bytes as u64);
    let (packing, json) = report::pack(&problem, effort, capacity).map_err(JsError::from)?;
    let packed = JSON::parse(&json.to_string())?;
    let offsets: Array =
        packing.solution.placements.iter().map(|placement| JsValue::from(placement.offset as f64)).collect();
    Reflect::set(&packed, &"offsets".into(), &offsets)?;
    Ok(packed.unchecked_into())
}

/// Replays an allocation trace through the strategies of these names, separated by commas (`all` by default): a memory snapshot of
/// PyTorch (pickle), lifetimes (CSV) or an event log of wgrad. Returns what `wgrad replay --json` prints of the file.
#[wasm_bindgen]
pub fn replay(name: &str, file: Vec<u8>, strategies: Option<String>) -> Result<Replayed, JsValue> {
    let file = TraceFile::parse(name, file, None).map_err(JsError::from)?;
    let json = report::replayed(&file, name, strategies.as_deref().unwrap_or("all"), None);
    Ok(JSON::parse(&json.map_err(JsError::from)?.to_string())?.unchecked_into())
}

/// A plan of a training step.
#[wasm_bindgen]
pub struct Plan(Planned);

/// Plans a training step of the network `settings.model`: a known one, or `file`, which is an ONNX file or, if the name ends in
/// `.json`, a `config.json` of Hugging Face. `progress` is called while it searches.
///
/// Throws an `Error` with the numbers and what to do for settings that cannot be.
#[wasm_bindgen]
pub fn plan(settings: &Settings, file: Option<Vec<u8>>, progress: Option<Progress>) -> Result<Plan, JsError> {
    let (model, request) = read(settings)?;
    let planned = || match &file {
        None => request.plan(&Source::Named(&model)),
        Some(text) if model.ends_with(".json") => request.plan(&Source::Config(&model, text)),
        Some(bytes) => {
            let network = Network::from_bytes(bytes)?.named(&model).without_elements();
            request.plan(&Source::Onnx(&network))
        }
    };
    let planned = match progress {
        None => planned(),
        Some(tell) => {
            let tell = Function::from(JsValue::from(tell));
            let tell = move |at: &progress::Progress| {
                // What the callback throws concerns its writer alone.
                let _ = tell.call2(&JsValue::NULL, &at.what.into(), &at.share.into());
            };
            progress::watch(tell, planned)
        }
    };
    Ok(Plan(planned?))
}

/// Reads an object of settings. Lists set an option several times.
fn read(settings: &Settings) -> Result<(String, Request), JsError> {
    let (mut model, mut request) = (None, Request::default());
    let mut set = |name: &str, value: JsValue| -> Result<(), JsError> {
        let text = value.as_string();
        let text = text.or_else(|| value.as_f64().map(|number| number.to_string()));
        let text = text.or_else(|| value.as_bool().map(|flag| flag.to_string()));
        let value =
            text.ok_or_else(|| JsError::new(&format!("{name}: expected a string, a number or a boolean")))?;
        match name {
            "model" => model = Some(value),
            _ => request.set(name, &value)?,
        }
        Ok(())
    };
    for entry in Object::entries(settings.unchecked_ref()) {
        let entry = Array::from(&entry);
        let (name, value) = (entry.get(0).as_string().unwrap_or_default(), entry.get(1));
        if value.is_null() || value.is_undefined() {
            continue;
        }
        match Array::is_array(&value) {
            true => Array::from(&value).iter().try_for_each(|value| set(&name, value))?,
            false => set(&name, value)?,
        }
    }
    let model = model
        .ok_or_else(|| JsError::new("no model: set `model` to a name of models(), or to that of a file"))?;
    Ok((model, request))
}

#[wasm_bindgen]
impl Plan {
    /// Network, batch and optimizer in words.
    #[wasm_bindgen(getter)]
    pub fn title(&self) -> String {
        self.0.title()
    }

    /// The table of bytes that `wgrad plan` prints.
    #[wasm_bindgen(getter)]
    pub fn text(&self) -> String {
        self.0.text()
    }

    /// What `wgrad plan --json` prints.
    pub fn report(&self) -> Result<Report, JsValue> {
        Ok(JSON::parse(&self.0.json().to_string())?.unchecked_into())
    }

    /// The modelled time of a step on each card that wgrad knows.
    pub fn times(&self) -> Result<Times, JsValue> {
        let times = self.0.times().map_err(JsError::from)?;
        Ok(JSON::parse(&times.to_string())?.unchecked_into())
    }

    /// What the page's scripts draw, as JSON.
    pub fn picture(&self) -> String {
        self.0.page_data().to_string()
    }

    /// The page of `wgrad plan --html`: one file that needs no network.
    pub fn html(&self) -> Result<String, JsError> {
        Ok(self.0.html()?)
    }
}
