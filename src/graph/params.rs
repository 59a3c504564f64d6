//! The parameters of a model: names, shapes and initial values. No device memory is involved.

use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Attend;
use super::lora::{Adapted, Adapter};
use crate::dtype::{DType, FrozenStorage, WeightStorage};
use crate::error::{Error, Result, TraceError};
use crate::random;
use crate::shape::Shape;

/// How a parameter is initialized.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// The same number everywhere.
    Constant(f32),
    /// Uniform in [-bound, bound).
    Uniform(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Normal with mean 0 and this standard deviation, drawn again beyond two deviations.
    TruncatedNormal(f32),
    /// A matrix `[rows, columns]` of the first dimension and all others with orthogonal rows, or columns where there are
    /// fewer, each of this length (Saxe et al. 2014).
    Orthogonal(f32),
    /// These elements, row-major.
    Data(Arc<[f32]>),
}

impl Init {
    /// The initialization of `torch.nn.Linear`: uniform in ±1/√fan_in (Kaiming with a = √5, He et al. 2015).
    pub fn fan_in(fan_in: usize) -> Self {
        Self::Uniform(1.0 / (fan_in.max(1) as f32).sqrt())
    }

    /// Uniform in ±√(6 / (fan_in + fan_out)) (Glorot & Bengio 2010).
    pub fn xavier_uniform(fan_in: usize, fan_out: usize) -> Self {
        Self::Uniform((6.0 / fan_in.saturating_add(fan_out).max(1) as f32).sqrt())
    }

    /// Normal with deviation √(2 / (fan_in + fan_out)) (Glorot & Bengio 2010).
    pub fn xavier_normal(fan_in: usize, fan_out: usize) -> Self {
        Self::Normal((2.0 / fan_in.saturating_add(fan_out).max(1) as f32).sqrt())
    }

    /// Uniform in ±√(6 / fan), for layers before a ReLU (He et al. 2015).
    pub fn kaiming_uniform(fan: usize) -> Self {
        Self::Uniform((6.0 / fan.max(1) as f32).sqrt())
    }

    /// Normal with deviation √(2 / fan), for layers before a ReLU (He et al. 2015).
    pub fn kaiming_normal(fan: usize) -> Self {
        Self::Normal((2.0 / fan.max(1) as f32).sqrt())
    }
}

/// A parameter that a model registered with [`Params`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Param(Arc<Registered>);

/// How training updates the parameters of a group, where that differs from the optimizer's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamGroup {
    /// Factor of the learning rate; for [`Adafactor`](crate::optim::Adafactor), of its relative step size.
    pub rate: f32,
    /// Replaces the optimizer's λ.
    pub weight_decay: Option<f32>,
    /// Not trained: no gradient, no optimizer state and no update, weight decay included
    /// (`requires_grad_(False)`). What only its gradient needs is not in the plan.
    pub frozen: bool,
    /// Whether [`Muon`](crate::optim::Muon) updates the group's matrices by its orthogonal steps; off, by AdamW. Other
    /// optimizers do not read it.
    pub orthogonal: bool,
    /// How matrices of the group are stored while they are frozen, for those of
    /// [`WeightStorage::SMALLEST`] elements or more; `None`: as those that are trained
    /// ([`PlanOptions::weights`](crate::compile::PlanOptions::weights)).
    pub storage: Option<FrozenStorage>,
}

impl Default for ParamGroup {
    /// The optimizer's settings.
    fn default() -> Self {
        Self { rate: 1.0, weight_decay: None, frozen: false, orthogonal: true, storage: None }
    }
}

#[derive(Clone, Debug)]
struct Registered {
    registry: Arc<()>,
    index: usize,
    name: String,
    shape: Shape,
    init: Init,
    key: u64,
    kind: Kind,
    group: ParamGroup,
}

/// What a parameter is registered as.
#[derive(Clone, Debug)]
enum Kind {
    Parameter,
    Buffer,
    /// Keys or values of a text, in this type.
    Cache(DType),
    /// Rows of it are looked up.
    Table,
    Adapter(Adapter),
}

impl Param {
    /// Whether the parameter belongs to `registry`.
    pub(super) fn is_of(&self, registry: &Arc<()>) -> bool {
        Arc::ptr_eq(&self.0.registry, registry)
    }

    /// Returns the position in the order of registration.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn index(&self) -> usize {
        self.0.index
    }

    /// Returns the full path, such as `fc1.weight`: the key in a safetensors file.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the dimensions.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Whether training updates it by a gradient: it is neither a buffer nor frozen.
    pub fn trained(&self) -> bool {
        !self.is_buffer() && !self.0.group.frozen
    }

    /// Whether it was registered by [`Params::add_buffer`], such as running statistics.
    pub fn is_buffer(&self) -> bool {
        matches!(self.0.kind, Kind::Buffer | Kind::Cache(_))
    }

    /// Whether it was registered by [`Params::add_cache`]: its contents belong to one text and are saved to no file.
    pub fn is_cache(&self) -> bool {
        matches!(self.0.kind, Kind::Cache(_))
    }

    /// Returns the parameter in another group.
    pub(crate) fn in_group(&self, group: ParamGroup) -> Self {
        Self(Arc::new(Registered { group, ..Registered::clone(&self.0) }))
    }

    /// Returns the type in which plans with these weights store it. In 16 bits it must be large and more than a vector: biases
    /// and norm scales each affect many numbers and are small in comparison; statistics are not trained.
    pub(crate) fn stored_as(&self, weights: WeightStorage) -> DType {
        let large = self.shape().rank() >= 2 && self.shape().numel() >= WeightStorage::SMALLEST;
        if let Kind::Cache(dtype) = self.0.kind {
            return dtype;
        }
        match self.0.group {
            _ if self.is_buffer() || !large => DType::F32,
            ParamGroup { frozen: true, storage: Some(storage), .. } => match storage.dtype() {
                codes if codes.is_quantised() && matches!(self.0.kind, Kind::Table) => DType::BF16,
                dtype => dtype,
            },
            _ => weights.storage().unwrap_or(DType::F32),
        }
    }

    /// Returns what it adapts, if it is one of a [`Lora`](crate::nn::Lora).
    pub(crate) fn adapter(&self) -> Option<&Adapter> {
        match &self.0.kind {
            Kind::Adapter(adapter) => Some(adapter),
            _ => None,
        }
    }

    /// Returns how training updates it.
    pub fn group(&self) -> &ParamGroup {
        &self.0.group
    }

    /// Returns the initial elements `range` (row-major), without those past the end. They depend only on the
    /// initialization, the seed and the name.
    pub fn initial(&self, range: Range<u64>) -> Vec<f32> {
        let key = self.0.key;
        let end = range.end.min(self.0.shape.numel());
        let range = range.start.min(end)..end;
        match &self.0.init {
            Init::Constant(value) => range.map(|_| *value).collect(),
            Init::Uniform(bound) => drawn(range, |i| (random::uniform(key, i) * 2.0 - 1.0) * bound),
            Init::Normal(std) => drawn(range, |i| random::normal(key, i) * std),
            Init::TruncatedNormal(std) => drawn(range, |i| truncated_normal(key, i) * std),
            Init::Data(data) => data[range.start as usize..range.end as usize].to_vec(),
            // Replaced by its elements when it is registered.
            Init::Orthogonal(gain) => vec![*gain; (range.end - range.start) as usize],
        }
    }
}

/// Elements that a thread draws at once: a millisecond of normal numbers.
const PART: usize = 1 << 15;

/// Draws each element by its number, on all cores: a billion normal numbers take one core 40 s.
fn drawn(range: Range<u64>, draw: impl Fn(u64) -> f32 + Sync) -> Vec<f32> {
    let mut elements = vec![0.0; (range.end - range.start) as usize];
    let threads = match elements.len().div_ceil(PART) {
        // Asking for the number of cores reads files.
        0 | 1 => 1,
        parts => std::thread::available_parallelism().map_or(1, usize::from).min(parts),
    };
    let parts = Mutex::new(elements.chunks_mut(PART).enumerate());
    let work = || {
        // The lock is held only while the next part is taken.
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((number, part)) = next() {
            let first = range.start + (number * PART) as u64;
            part.iter_mut().zip(first..).for_each(|(element, i)| *element = draw(i));
        }
    };
    std::thread::scope(|scope| {
        // What a thread that cannot be spawned would do is left to the others.
        for _ in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    elements
}

/// A number of the normal distribution within two deviations.
fn truncated_normal(key: u64, i: u64) -> f32 {
    // Numbers of other keys, until one is within; one in 22 is not.
    let draw =
        |attempt: u64| random::normal(key.wrapping_add(attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15)), i);
    (0..64).map(draw).find(|x| x.abs() <= 2.0).unwrap_or(0.0)
}

/// The elements of [`Init::Orthogonal`]: normal numbers, made orthogonal one vector after the other (Gram-Schmidt, twice, in
/// `f64`).
fn orthogonal(shape: Shape, key: u64, gain: f32) -> Vec<f32> {
    let rows = shape.dims().first().copied().unwrap_or(1);
    let columns = (shape.numel() / rows.max(1) as u64) as usize;
    let (count, len) = (rows.min(columns), rows.max(columns));
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    for v in 0..count {
        let mut own: Vec<f64> =
            (0..len).map(|i| f64::from(random::normal(key, (v * len + i) as u64))).collect();
        for _ in 0..2 {
            for other in &vectors {
                let along: f64 = own.iter().zip(other).map(|(a, b)| a * b).sum();
                own.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
            }
        }
        let length = own.iter().map(|a| a * a).sum::<f64>().sqrt();
        own.iter_mut().for_each(|a| *a /= length);
        vectors.push(own);
    }
    let element =
        |row: usize, column: usize| if rows <= columns { vectors[row][column] } else { vectors[column][row] };
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    all.map(|(row, column)| element(row, column) as f32 * gain).collect()
}

/// Where a model registers its parameters, under a path. Clones share the registry.
///
/// ```
/// use wgrad::graph::{Init, Params};
/// let params = Params::new(42);
/// let weight = params.scope("fc1").add("weight", [16, 8], Init::fan_in(8));
/// assert_eq!(weight.name(), "fc1.weight");
/// assert_eq!(params.count(), 128);
/// ```
#[derive(Clone, Debug)]
pub struct Params {
    registry: Arc<Mutex<Registry>>,
    path: String,
}

#[derive(Debug)]
pub(super) struct Registry {
    /// Tells this registry from others.
    identity: Arc<()>,
    seed: u64,
    pub(super) list: Vec<Param>,
    pub(super) errors: Vec<TraceError>,
    pub(super) lora: Option<Adapted>,
}

impl Params {
    /// Creates an empty registry. The seed determines the initial parameters and the dropout masks.
    pub fn new(seed: u64) -> Self {
        let identity = Arc::new(());
        let registry = Registry { identity, seed, list: Vec::new(), errors: Vec::new(), lora: None };
        Self { registry: Arc::new(Mutex::new(registry)), path: String::new() }
    }

    /// Returns a handle to the same registry, one level down the path.
    pub fn scope(&self, name: impl std::fmt::Display) -> Self {
        Self { registry: Arc::clone(&self.registry), path: self.join(&name.to_string()) }
    }

    /// Returns the path of this handle, such as `block3.mlp`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Registers a parameter. A duplicate name, or data of another length, is reported when a step is traced.
    #[track_caller]
    pub fn add(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Param {
        self.register(name, shape.into(), init, Kind::Parameter)
    }

    /// Registers a parameter whose rows are looked up.
    #[track_caller]
    pub(crate) fn add_table(&self, name: &str, shape: [usize; 2], init: Init) -> Param {
        self.register(name, shape.into(), init, Kind::Table)
    }

    /// Registers a parameter of an adapter.
    #[track_caller]
    pub(crate) fn add_adapter(
        &self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
        adapter: Adapter,
    ) -> Param {
        self.register(name, shape.into(), init, Kind::Adapter(adapter))
    }

    /// Registers a buffer in PyTorch's sense: it lives with the parameters but has no gradient, such as
    /// running statistics.
    #[track_caller]
    pub fn add_buffer(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Param {
        self.register(name, shape.into(), init, Kind::Buffer)
    }

    /// Registers a buffer `[p, t, heads, d]` for the keys or the values that
    /// [`Tensor::cached_attention`](super::Tensor::cached_attention) stores: `p` pages of `t` tokens, in `f32`, `f16`,
    /// `bf16`, or in 8.5 bits as [`DType::Uint8`]. It starts as zeros and is saved to no file. Another type is reported when a step
    /// is traced.
    #[track_caller]
    pub fn add_cache(&self, name: &str, shape: [usize; 4], dtype: DType) -> Param {
        self.register(name, shape.into(), Init::Constant(0.0), Kind::Cache(dtype))
    }

    #[track_caller]
    fn register(&self, name: &str, shape: Shape, init: Init, kind: Kind) -> Param {
        let name = self.join(name);
        let mut guard = self.lock();
        let registry = &mut *guard;
        let at = Location::caller();
        let mut complain = |message: String| {
            registry.errors.push(TraceError { message, file: at.file(), line: at.line() });
        };
        let mut init = init;
        if let Init::Data(data) = &init
            && data.len() as u64 != shape.numel()
        {
            complain(format!("parameter `{name}` {shape} got {} elements", data.len()));
            init = Init::Constant(0.0);
        }
        if let Err(message) = shape.check_size() {
            complain(format!("parameter `{name}` {message}"));
        }
        if let Kind::Cache(dtype) = kind
            && let Err(message) = Attend::check_cache(dtype, shape)
        {
            complain(format!("cache `{name}` {message}"));
        }
        if name == "__metadata__" {
            complain(
                "no parameter can have the name `__metadata__`: safetensors files keep their notes there"
                    .to_owned(),
            );
        }
        if let Some(other) = registry.list.iter().find(|p| p.name() == name) {
            let message = format!("parameter `{name}` is registered twice, as {} and {shape}", other.shape());
            registry.errors.push(TraceError { message, file: at.file(), line: at.line() });
        }
        let key = random::key(registry.seed, &name);
        if let Init::Orthogonal(gain) = init {
            init = Init::Data(orthogonal(shape, key, gain).into());
        }
        let (index, identity) = (registry.list.len(), Arc::clone(&registry.identity));
        let group = match &registry.lora {
            Some(adapted) if !matches!(kind, Kind::Adapter(_)) => {
                adapted.config.frozen(ParamGroup::default())
            }
            _ => ParamGroup::default(),
        };
        let registered = Registered { registry: identity, index, name, shape, init, key, kind, group };
        let param = Param(Arc::new(registered));
        registry.list.push(param.clone());
        param
    }

    /// Sets how the parameters whose path matches `pattern` are updated in steps that are traced from now on.
    /// `*` stands for any characters; patterns are of whole paths, whatever the scope of this handle. A later
    /// call replaces an earlier one. Returns the number of parameters in the group.
    ///
    /// ```
    /// use wgrad::graph::{Init, ParamGroup, Params};
    /// let params = Params::new(0);
    /// params.scope("fc1").add("bias", [8], Init::Constant(0.0));
    /// let no_decay = ParamGroup { weight_decay: Some(0.0), ..ParamGroup::default() };
    /// assert_eq!(params.set_group("*.bias", no_decay)?, 1);
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`] for numbers that are negative or not finite; [`Error::Unknown`] if no
    /// parameter matches that is not a buffer.
    pub fn set_group(&self, pattern: &str, group: ParamGroup) -> Result<usize> {
        for (name, value) in [("rate", Some(group.rate)), ("weight_decay", group.weight_decay)] {
            if let Some(value) = value.filter(|value| !(*value >= 0.0 && value.is_finite())) {
                let message =
                    format!("group `{pattern}`: {name} = {value}; it must be at least 0 and finite");
                return Err(Error::setting(format!("group.{name}"), message));
            }
        }
        self.change_groups(pattern, |_| group)
    }

    /// Freezes the parameters whose path matches `pattern` in steps that are traced from now on, and leaves the
    /// rest of their [`ParamGroup`] as it is. Returns their number.
    ///
    /// Unless the group has a [`ParamGroup::storage`], parameters are stored alike, frozen or not, so that forward passes
    /// traced before can share a session with such a step.
    ///
    /// ```
    /// use wgrad::graph::{Init, Params};
    /// let params = Params::new(0);
    /// let weight = params.scope("conv1").add("weight", [8, 3, 3, 3], Init::fan_in(27));
    /// assert_eq!(params.freeze("conv1.*")?, 1);
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Params::set_group`].
    pub fn freeze(&self, pattern: &str) -> Result<usize> {
        self.change_groups(pattern, |group| ParamGroup { frozen: true, ..group })
    }

    fn change_groups(&self, pattern: &str, change: impl Fn(ParamGroup) -> ParamGroup) -> Result<usize> {
        let mut registry = self.lock();
        let mut matched = 0;
        for param in registry.list.iter_mut().filter(|p| !p.is_buffer() && matches(pattern, p.name())) {
            *param = param.in_group(change(param.0.group));
            matched += 1;
        }
        if matched > 0 {
            return Ok(matched);
        }
        let known = registry.list.iter().filter(|p| !p.is_buffer()).map(|p| p.name().to_owned()).collect();
        Err(Error::Unknown { kind: "parameter like", name: pattern.to_owned(), known })
    }

    /// Returns every parameter, in the order of registration.
    pub fn list(&self) -> Vec<Param> {
        self.lock().list.clone()
    }

    /// Returns the parameter of this name, below the path of this handle.
    #[cfg(feature = "onnx")]
    pub(crate) fn find(&self, name: &str) -> Option<Param> {
        let name = self.join(name);
        self.lock().list.iter().find(|param| param.name() == name).cloned()
    }

    /// Returns the number of elements of all parameters, frozen ones included, without those of buffers.
    pub fn count(&self) -> u64 {
        self.lock().list.iter().filter(|p| !p.is_buffer()).map(|p| p.shape().numel()).sum()
    }

    /// Returns the number of elements of those that are trained.
    pub fn trained(&self) -> u64 {
        self.lock().list.iter().filter(|p| p.trained()).map(|p| p.shape().numel()).sum()
    }

    /// Returns the seed given to [`Params::new`].
    pub fn seed(&self) -> u64 {
        self.lock().seed
    }

    pub(super) fn identity(&self) -> Arc<()> {
        Arc::clone(&self.lock().identity)
    }

    pub(super) fn errors(&self) -> Vec<TraceError> {
        let registry = self.lock();
        let mut errors = registry.errors.clone();
        errors.extend(registry.lora.iter().flat_map(Adapted::unmatched));
        errors
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// Whether a name matches a pattern in which `*` stands for any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len()).filter(|&i| name.is_char_boundary(i)).any(|i| matches(rest, &name[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, name, wanted) in [
            ("fc.bias", "fc.bias", true),
            ("*.bias", "block3.fc.bias", true),
            ("*.bias", "fc.bias2", false),
            ("block*.norm*.weight", "block3.norm1.weight", true),
            ("block*.norm*.weight", "block3.fc.weight", false),
            ("*", "", true),
            ("bias", "fc.bias", false),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} and {name}");
        }
    }

    #[test]
    fn groups_that_match_nothing_or_have_invalid_numbers_are_errors() {
        let params = Params::new(0);
        params.add("w", [3], Init::Constant(0.0));
        params.add_buffer("mean", [3], Init::Constant(0.0));
        let group = ParamGroup { rate: 0.5, ..ParamGroup::default() };
        assert_eq!(params.set_group("w", group).unwrap(), 1);
        assert_eq!((params.list()[0].group(), params.list()[1].group().rate), (&group, 1.0));
        assert!(matches!(params.set_group("mean", group), Err(Error::Unknown { .. })));
        assert!(matches!(params.freeze("mean"), Err(Error::Unknown { .. })));
        for rate in [-1.0, f32::NAN, f32::INFINITY] {
            assert!(matches!(
                params.set_group("w", ParamGroup { rate, ..group }),
                Err(Error::Setting { .. })
            ));
        }
    }

    #[test]
    fn freezing_keeps_the_rest_of_the_group_and_can_be_undone() {
        let params = Params::new(0);
        params.add("w", [3], Init::Constant(0.0));
        let group = ParamGroup { rate: 0.5, ..ParamGroup::default() };
        params.set_group("w", group).unwrap();
        assert_eq!(params.freeze("*").unwrap(), 1);
        let frozen = &params.list()[0];
        assert_eq!(*frozen.group(), ParamGroup { frozen: true, ..group });
        assert!(!frozen.trained() && !frozen.is_buffer());
        params.set_group("w", group).unwrap();
        assert!(params.list()[0].trained());
        assert_eq!(params.count(), 3);
    }

    #[test]
    fn initial_values_depend_only_on_seed_and_name() {
        let (a, b) = (Params::new(1), Params::new(1));
        b.add("other", [3], Init::Constant(0.0));
        let start = |p: &Params| p.add("w", [100], Init::Normal(1.0)).initial(0..100);
        assert_eq!(start(&a), start(&b));
        assert_ne!(start(&Params::new(1)), start(&Params::new(2)));
    }

    #[test]
    fn initial_values_of_a_range_match_the_whole() {
        let w = Params::new(1).add("w", [10], Init::Uniform(0.5));
        assert_eq!(w.initial(3..7), w.initial(0..10)[3..7]);
        assert!(w.initial(0..10).iter().all(|x| x.abs() <= 0.5));
        // As many as several threads draw, and parts of them that begin anywhere.
        let n = 5 * PART as u64 + 3;
        for init in [Init::Uniform(0.5), Init::Normal(1.0), Init::TruncatedNormal(0.02)] {
            let w = Params::new(1).add("w", [n as usize], init);
            let whole = w.initial(0..n);
            for first in [1, PART as u64 - 1, 2 * PART as u64 + 5, n - 1] {
                assert_eq!(w.initial(first..n), whole[first as usize..]);
                assert_eq!(w.initial(first..first + 1), [whole[first as usize]]);
            }
        }
    }
}
