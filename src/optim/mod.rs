//! Optimizers as graph builders: each appends its updates to a differentiated graph.

mod adaptive;
mod apollo;
mod checks;
mod classic;
mod clip;
mod lean;
mod muon;
mod schedule;

use std::panic::Location;

pub use adaptive::{Adagrad, NAdam, RAdam, RmsProp};
pub use apollo::Apollo;
pub use classic::{Adam, AdamW, Sgd};
pub use clip::Clip;
pub use lean::{Adafactor, Adam4bit, Adam8bit, AdamMini, Lion};
pub use muon::Muon;
pub use schedule::{Custom, Schedule};

use crate::autodiff::{Gradients, Read};
use crate::dtype::{DType, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{
    CORRECTION, Counting, LossScale, MomentCodes, Op, ParamGroup, Phase, Share, StepScalars, Stored, Tensor,
    Trace, Update, ValueId, corrections,
};
use crate::shape::Shape;

/// An optimizer with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// [`Sgd`]
    Sgd(Sgd),
    /// [`Adam`]
    Adam(Adam),
    /// [`AdamW`]
    AdamW(AdamW),
    /// [`NAdam`]
    NAdam(NAdam),
    /// [`RAdam`]
    RAdam(RAdam),
    /// [`RmsProp`]
    RmsProp(RmsProp),
    /// [`Adagrad`]
    Adagrad(Adagrad),
    /// [`Lion`]
    Lion(Lion),
    /// [`Adafactor`]
    Adafactor(Adafactor),
    /// [`Adam8bit`]
    Adam8bit(Adam8bit),
    /// [`Adam4bit`]
    Adam4bit(Adam4bit),
    /// [`AdamMini`]
    AdamMini(AdamMini),
    /// [`Muon`]
    Muon(Muon),
    /// [`Apollo`]
    Apollo(Apollo),
}

impl Default for Optimizer {
    /// [`AdamW`] with PyTorch's defaults.
    fn default() -> Self {
        Self::AdamW(AdamW::default())
    }
}

macro_rules! from_settings {
    ($($kind:ident)*) => {
        $(impl From<$kind> for Optimizer {
            fn from(settings: $kind) -> Self {
                Self::$kind(settings)
            }
        })*
    };
}

from_settings!(Sgd Adam AdamW NAdam RAdam RmsProp Adagrad Lion Adafactor Adam8bit Adam4bit AdamMini Muon Apollo);

impl Optimizer {
    /// The names that [`Optimizer::named`] knows.
    pub const NAMES: [&'static str; 17] = [
        "sgd",
        "momentum",
        "adam",
        "adamw",
        "lion",
        "adafactor",
        "adam8bit",
        "adam4bit",
        "amsgrad",
        "nadam",
        "radam",
        "rmsprop",
        "adagrad",
        "adam-mini",
        "muon",
        "apollo",
        "apollo-mini",
    ];

    /// Returns an optimizer with default settings, by name; `momentum` is SGD with μ = 0.9, `amsgrad` is
    /// [`Adam`] with that setting, and `apollo-mini` is [`Apollo::mini`].
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "sgd" => Sgd::default().into(),
            "momentum" => Sgd { momentum: 0.9, ..Sgd::default() }.into(),
            "adam" => Adam::default().into(),
            "adamw" => AdamW::default().into(),
            "lion" => Lion::default().into(),
            "adafactor" => Adafactor::default().into(),
            "adam8bit" => Adam8bit::default().into(),
            "adam4bit" => Adam4bit::default().into(),
            "amsgrad" => Adam { amsgrad: true, ..Adam::default() }.into(),
            "nadam" => NAdam::default().into(),
            "radam" => RAdam::default().into(),
            "rmsprop" => RmsProp::default().into(),
            "adagrad" => Adagrad::default().into(),
            "adam-mini" => AdamMini::default().into(),
            "muon" => Muon::default().into(),
            "apollo" => Apollo::default().into(),
            "apollo-mini" => Apollo::mini().into(),
            _ => return Err(Error::unknown("optimizer", name, &Self::NAMES)),
        })
    }

    /// Returns η before any schedule.
    pub fn learning_rate(&self) -> f32 {
        match self {
            Self::Sgd(sgd) => sgd.lr,
            Self::Adam(adam) => adam.lr,
            Self::AdamW(adamw) => adamw.lr,
            Self::NAdam(nadam) => nadam.lr,
            Self::RAdam(radam) => radam.lr,
            Self::RmsProp(rmsprop) => rmsprop.lr,
            Self::Adagrad(adagrad) => adagrad.lr,
            Self::Lion(lion) => lion.lr,
            Self::Adafactor(adafactor) => adafactor.lr,
            Self::Adam8bit(adam) => adam.lr,
            Self::Adam4bit(adam) => adam.lr,
            Self::AdamMini(adam) => adam.lr,
            Self::Muon(muon) => muon.lr,
            Self::Apollo(apollo) => apollo.lr,
        }
    }

    /// Returns the same optimizer with another η.
    #[must_use]
    pub fn with_learning_rate(mut self, rate: f32) -> Self {
        match &mut self {
            Self::Sgd(Sgd { lr, .. })
            | Self::Adam(Adam { lr, .. })
            | Self::AdamW(AdamW { lr, .. })
            | Self::NAdam(NAdam { lr, .. })
            | Self::RAdam(RAdam { lr, .. })
            | Self::RmsProp(RmsProp { lr, .. })
            | Self::Adagrad(Adagrad { lr, .. })
            | Self::Lion(Lion { lr, .. })
            | Self::Adafactor(Adafactor { lr, .. })
            | Self::Adam8bit(Adam8bit { lr, .. })
            | Self::Adam4bit(Adam4bit { lr, .. })
            | Self::AdamMini(AdamMini { lr, .. })
            | Self::Muon(Muon { lr, .. })
            | Self::Apollo(Apollo { lr, .. }) => *lr = rate,
        }
        self
    }

    /// Returns the same optimizer with another λ.
    #[must_use]
    pub fn with_weight_decay(mut self, decay: f32) -> Self {
        match &mut self {
            Self::Sgd(Sgd { weight_decay, .. })
            | Self::Adam(Adam { weight_decay, .. })
            | Self::AdamW(AdamW { weight_decay, .. })
            | Self::NAdam(NAdam { weight_decay, .. })
            | Self::RAdam(RAdam { weight_decay, .. })
            | Self::RmsProp(RmsProp { weight_decay, .. })
            | Self::Adagrad(Adagrad { weight_decay, .. })
            | Self::Lion(Lion { weight_decay, .. })
            | Self::Adafactor(Adafactor { weight_decay, .. })
            | Self::Adam8bit(Adam8bit { weight_decay, .. })
            | Self::Adam4bit(Adam4bit { weight_decay, .. })
            | Self::AdamMini(AdamMini { weight_decay, .. })
            | Self::Muon(Muon { weight_decay, .. })
            | Self::Apollo(Apollo { weight_decay, .. }) => *weight_decay = decay,
        }
        self
    }

    /// Returns optimizers with less state and the same learning rate, by name.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn lighter(&self) -> Vec<(&'static str, Self)> {
        let without = |sgd: Sgd| Self::Sgd(Sgd { momentum: 0.0, nesterov: false, ..sgd });
        let lightest = |lr, weight_decay| {
            let momentum = Sgd { lr, momentum: 0.9, weight_decay, ..Sgd::default() };
            [("momentum", momentum.into()), ("sgd", without(momentum))]
        };
        match *self {
            Self::Sgd(sgd) if sgd.momentum == 0.0 => Vec::new(),
            Self::Sgd(sgd) => vec![("sgd", without(sgd))],
            Self::Adam(Adam { lr, weight_decay, .. })
            | Self::AdamW(AdamW { lr, weight_decay, .. })
            | Self::NAdam(NAdam { lr, weight_decay, .. })
            | Self::RAdam(RAdam { lr, weight_decay, .. }) => {
                let eight = Adam8bit { lr, weight_decay, ..Adam8bit::default() };
                [vec![("adam8bit", eight.into())], lightest(lr, weight_decay).to_vec()].concat()
            }
            Self::Adam8bit(Adam8bit { lr, weight_decay, .. }) => {
                let four = Adam4bit { lr, weight_decay, ..Adam4bit::default() };
                vec![("adam4bit", four.into()), lightest(lr, weight_decay)[1]]
            }
            Self::RmsProp(rmsprop) if rmsprop.momentum > 0.0 => {
                let plain = RmsProp { momentum: 0.0, ..rmsprop };
                vec![("rmsprop", plain.into()), lightest(rmsprop.lr, rmsprop.weight_decay)[1]]
            }
            Self::Lion(Lion { lr, weight_decay, .. })
            | Self::Adam4bit(Adam4bit { lr, weight_decay, .. })
            | Self::AdamMini(AdamMini { lr, weight_decay, .. })
            | Self::Muon(Muon { lr, weight_decay, .. })
            | Self::Apollo(Apollo { lr, weight_decay, .. })
            | Self::RmsProp(RmsProp { lr, weight_decay, .. })
            | Self::Adagrad(Adagrad { lr, weight_decay, .. }) => {
                vec![("sgd", Sgd { lr, weight_decay, ..Sgd::default() }.into())]
            }
            // Its state is already small.
            Self::Adafactor(_) => Vec::new(),
        }
    }

    /// Returns the scalars that the device needs at step `step` (0 is the first) with learning rate `lr`.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn scalars(&self, step: u64, lr: f32, seed: u64) -> StepScalars {
        let [bias1, sqrt_bias2, gradient_share] =
            self.counting().corrections(step as f64 + 1.0, f64::from(lr)).map(|x| x as f32);
        StepScalars {
            learning_rate: lr,
            bias1,
            sqrt_bias2,
            step: step as u32,
            seed_low: seed as u32,
            seed_high: (seed >> 32) as u32,
            unscale: 1.0,
            skip: 0,
            gradient_share,
        }
    }

    /// Returns how the scalars of a step follow from the number of steps.
    const fn counting(&self) -> Counting {
        match *self {
            Self::Sgd(_) | Self::Lion(_) | Self::RmsProp(_) => Counting::Nothing,
            Self::Adam(Adam { betas, .. })
            | Self::AdamW(AdamW { betas, .. })
            | Self::Adam8bit(Adam8bit { betas, .. })
            | Self::Adam4bit(Adam4bit { betas, .. })
            | Self::AdamMini(AdamMini { betas, .. })
            | Self::Muon(Muon { betas, .. })
            | Self::Apollo(Apollo { betas, .. }) => Counting::Adam(betas.0, betas.1),
            Self::NAdam(NAdam { betas, momentum_decay, .. }) => {
                Counting::NAdam(betas.0, betas.1, momentum_decay)
            }
            Self::RAdam(RAdam { betas, .. }) => Counting::RAdam(betas.0, betas.1),
            Self::Adagrad(adagrad) => Counting::Adagrad(adagrad.lr_decay),
            Self::Adafactor(adafactor) => Counting::Adafactor(adafactor.beta2_decay),
        }
    }

    /// Appends clipping and one update for each parameter that has a gradient.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of its range.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn append(&self, trace: &Trace, gradients: Gradients, clip: Clip) -> Result<()> {
        self.check()?;
        clip.check()?;
        trace.phase(Phase::Update, || {
            let mut scalars = trace.step_scalars();
            let (raw, shares, weights) = (gradients.pairs, gradients.shares, gradients.weights);
            let mut pairs = raw.clone();
            let mut inverse = None;
            if let Some((settings, state)) = &gradients.scaled {
                // If clipping or the optimizer processes the gradients before the update, they are unscaled
                // before that.
                let early = clip != Clip::Off || self.of_whole_gradients().is_some();
                let unscaled = self.apply_loss_scale(*settings, state, pairs, &scalars, early);
                (pairs, scalars) = (unscaled.0, unscaled.1);
                inverse = Some(unscaled.2);
            }
            let (clipped, norm) = clip.append(pairs);
            output_gradients(trace, gradients.read, (&raw, norm), inverse.as_ref());
            for (id, gradient) in clipped {
                let piece = trace.piece(id);
                let share = piece.map(|piece| piece.share).or(shares.get(&id).copied());
                let id = piece.map_or(id, |piece| piece.of);
                let (name, weight) = (trace.name_of(id), trace.tensor(id));
                let most = gradients.update_at_once.get(&*name).copied();
                let layer = name.rsplit_once('.').map_or("", |(layer, _)| layer);
                let ParamGroup { mut rate, weight_decay, orthogonal, .. } = trace.group_of(&name);
                let mut optimizer = weight_decay.map_or(*self, |decay| self.with_weight_decay(decay));
                if let Self::Muon(muon) = optimizer
                    && (!orthogonal || weight.shape().rank() < 2 || trace.is_table(id))
                {
                    (optimizer, rate) = (muon.for_others().into(), rate * muon.adamw_rate);
                }
                if let Self::Apollo(apollo) = optimizer
                    && (!apollo.projects(weight.shape()) || trace.is_table(id))
                {
                    optimizer = apollo.for_others().into();
                }
                let corrected = weights == WeightStorage::Bf24
                    && trace.parameter(&name).is_some_and(|param| param.stored_as(weights) == DType::BF16);
                let stored = if corrected { Stored::Corrected } else { Stored::Nearest };
                trace.layer(layer, || {
                    optimizer.append_one(
                        trace,
                        (&name, rate),
                        (&weight, stored, share, most),
                        &gradient,
                        &scalars,
                    )
                });
            }
        });
        Ok(())
    }

    /// Returns the names of the state of each large parameter, as in PyTorch's state dictionaries.
    pub(crate) fn state_names(&self) -> Vec<&'static str> {
        match self {
            Self::Adafactor(_) => vec!["row_var", "col_var"],
            _ => {
                let large = Shape::from([Adam8bit::SMALLEST as usize]);
                self.states(large).into_iter().map(|(name, ..)| name).collect()
            }
        }
    }

    /// Checks all gradients for infinities and NaN. Returns the gradients, unscaled if `early`, the step's
    /// scalars with the outcome of the check, and the inverse of the scale.
    fn apply_loss_scale(
        &self,
        settings: LossScale,
        state: &Tensor,
        pairs: Vec<(ValueId, Tensor)>,
        scalars: &Tensor,
        early: bool,
    ) -> (Vec<(ValueId, Tensor)>, Tensor, Tensor) {
        let here = Location::caller();
        let mut checked: Vec<&Tensor> = pairs.iter().map(|(_, gradient)| gradient).collect();
        checked.sort_by_key(|gradient| gradient.id());
        checked.dedup_by_key(|gradient| gradient.id());
        if checked.is_empty() {
            let scale = state.one(Op::LossScaleSeed { start: settings.start }, &[state], here);
            return (pairs, scalars.clone(), scale.recip());
        }
        let flag = state.fill_like([], 0.0);
        let operands: Vec<&Tensor> = std::iter::once(&flag).chain(checked).collect();
        let bad = flag.one(Op::NotFinite, &operands, here);
        let op = Op::LossScale { settings, counting: self.counting(), early };
        let results = state.trace().emit(op, &[state, &bad, scalars], here);
        let [scalars, inverse] = [&results[0], &results[1]].map(Tensor::clone);
        if !early {
            return (pairs, scalars, inverse);
        }
        (pairs.into_iter().map(|(id, g)| (id, g.mul(&inverse))).collect(), scalars, inverse)
    }

    /// Appends the update of a parameter, or of its `share`. With `most`, a whole parameter that has state is updated by several
    /// operations, each of at most `most` elements.
    fn append_one(
        &self,
        trace: &Trace,
        (name, rate): (&str, f32),
        (weight, stored, share, most): (&Tensor, Stored, Option<Share>, Option<u64>),
        gradient: &Tensor,
        scalars: &Tensor,
    ) {
        let elements = weight.shape().numel();
        let in_pieces = trace.is_in_pieces(weight);
        let state = |(s, dtype, shape): (&str, DType, Shape)| {
            let name = format!("{name}.{s}");
            match share {
                _ if in_pieces => trace.one_state_of(dtype, &name, shape),
                Some(share) => {
                    trace.part_of_state(dtype, &name, shape, share.of_state(shape.numel(), elements))
                }
                None => {
                    let state = trace.state_of(dtype, &name, shape);
                    trace.split_like(&state, weight);
                    state
                }
            }
        };
        let words = Shape::from([corrections(elements) as usize]);
        let correction = (stored == Stored::Corrected).then(|| state((CORRECTION, DType::U32, words)));
        let emit = |inputs: &[&Tensor], share: Option<Share>| {
            let inputs: Vec<&Tensor> = inputs.iter().copied().chain(&correction).collect();
            trace.emit(
                Op::Update { rule: self.update(elements), rate, stored, share },
                &inputs,
                Location::caller(),
            );
        };
        if let Self::Adafactor(adafactor) = self {
            let [update, u2, w2] = adafactor.operands(trace, name, weight, gradient, scalars);
            return emit(&[weight, &update, scalars, &u2, &w2], share);
        }
        let step = match self {
            Self::Muon(muon) => Some(muon.step(trace, name, gradient, scalars)),
            Self::Apollo(apollo) => Some(apollo.step(trace, name, gradient, scalars)),
            _ => None,
        };
        if let Some(step) = step {
            return emit(&[weight, &step, scalars], share);
        }
        let mut states: Vec<Tensor> = self.states(weight.shape()).into_iter().map(state).collect();
        if share.is_some_and(|share| share.len == 0) {
            return;
        }
        if let (Self::AdamMini(adam), Some(second)) = (self, states.last_mut()) {
            *second = adam.second_moment(second, gradient, scalars);
        }
        let mut inputs = vec![weight, gradient, scalars];
        inputs.extend(&states);
        let whole = share.is_none() && weight.id().is_some_and(|id| !trace.is_split(id));
        match most.filter(|most| whole && inputs.len() > Update::STATE && elements > *most) {
            None => emit(&inputs, share),
            Some(most) => (0..elements).step_by(most as usize).for_each(|start| {
                emit(&inputs, Some(Share { start, len: most.min(elements - start) }));
            }),
        }
    }

    /// Returns the state of a parameter of this shape, except for Adafactor's: names as in PyTorch's state
    /// dictionaries, types and shapes.
    fn states(&self, shape: Shape) -> Vec<(&'static str, DType, Shape)> {
        if let Some(codes) = self.codes(shape.numel()) {
            let words = Shape::from([codes.words(shape.numel()) as usize]);
            let blocks = shape.numel().div_ceil(codes.block()) as usize;
            let [first, second] = match codes {
                MomentCodes::Eight => ["exp_avg_8bit", "exp_avg_sq_8bit"],
                MomentCodes::Four => ["exp_avg_4bit", "exp_avg_sq_4bit"],
            };
            let most = Shape::from([blocks, 2]);
            return vec![
                (first, DType::U32, words),
                (second, DType::U32, words),
                ("absmax", DType::F32, most),
            ];
        }
        let same = |names: &[&'static str]| names.iter().map(|name| (*name, DType::F32, shape)).collect();
        match self {
            Self::Sgd(sgd) if sgd.momentum == 0.0 => Vec::new(),
            Self::Sgd(_) => same(&["momentum_buffer"]),
            // Of a parameter that is orthogonalized; `Muon::step` creates it.
            Self::Muon(_) => same(&["momentum_buffer"]),
            Self::AdamMini(_) => {
                let rows = Shape::from([AdamMini::rows(shape)]);
                vec![("exp_avg", DType::F32, shape), ("exp_avg_sq", DType::F32, rows)]
            }
            Self::Lion(_) => same(&["exp_avg"]),
            Self::Adam(Adam { amsgrad: true, .. }) | Self::AdamW(AdamW { amsgrad: true, .. }) => {
                same(&["exp_avg", "exp_avg_sq", "max_exp_avg_sq"])
            }
            Self::Adam(_)
            | Self::AdamW(_)
            | Self::NAdam(_)
            | Self::RAdam(_)
            | Self::Adam8bit(_)
            | Self::Adam4bit(_)
            // Of a parameter that is not projected; `Apollo::step` creates that of others.
            | Self::Apollo(_) => same(&["exp_avg", "exp_avg_sq"]),
            Self::RmsProp(rmsprop) if rmsprop.momentum == 0.0 => same(&["square_avg"]),
            Self::RmsProp(_) => same(&["square_avg", "momentum_buffer"]),
            Self::Adagrad(_) => same(&["sum"]),
            // `Adafactor::operands` creates its state.
            Self::Adafactor(_) => Vec::new(),
        }
    }

    /// Returns the codes that store the moments of a parameter of `elements` elements; `None` for 32 bits.
    fn codes(&self, elements: u64) -> Option<MomentCodes> {
        let codes = match self {
            Self::Adam8bit(_) => MomentCodes::Eight,
            Self::Adam4bit(_) => MomentCodes::Four,
            _ => return None,
        };
        (elements >= Adam8bit::SMALLEST).then_some(codes)
    }

    /// Returns the update of a parameter of `elements` elements.
    fn update(&self, elements: u64) -> Update {
        match *self {
            Self::Sgd(Sgd { momentum: 0.0, weight_decay, .. }) => {
                Update::Sgd { weight_decay, corrected: false }
            }
            Self::Sgd(Sgd { momentum, weight_decay, nesterov, .. }) => {
                Update::Momentum { momentum, weight_decay, nesterov }
            }
            Self::Adam(Adam { betas: (beta1, beta2), eps, weight_decay, amsgrad, .. }) => {
                Update::Adam { beta1, beta2, eps, weight_decay, decoupled: false, amsgrad }
            }
            Self::AdamW(AdamW { betas: (beta1, beta2), eps, weight_decay, amsgrad, .. }) => {
                Update::Adam { beta1, beta2, eps, weight_decay, decoupled: true, amsgrad }
            }
            Self::NAdam(NAdam { betas: (beta1, beta2), eps, weight_decay, decoupled, .. })
            | Self::RAdam(RAdam { betas: (beta1, beta2), eps, weight_decay, decoupled, .. }) => {
                Update::Adam { beta1, beta2, eps, weight_decay, decoupled, amsgrad: false }
            }
            Self::RmsProp(RmsProp { alpha, eps, momentum, weight_decay, .. }) => {
                Update::RmsProp { keep: alpha, take: 1.0 - alpha, eps, momentum, weight_decay }
            }
            Self::Adagrad(Adagrad { eps, weight_decay, .. }) => {
                Update::RmsProp { keep: 1.0, take: 1.0, eps, momentum: 0.0, weight_decay }
            }
            Self::Adam8bit(Adam8bit { betas: (beta1, beta2), eps, weight_decay, .. })
            | Self::Adam4bit(Adam4bit { betas: (beta1, beta2), eps, weight_decay, .. }) => {
                match self.codes(elements) {
                    Some(codes) => Update::AdamCodes { codes, beta1, beta2, eps, weight_decay },
                    None => Update::Adam { beta1, beta2, eps, weight_decay, decoupled: true, amsgrad: false },
                }
            }
            Self::Lion(Lion { betas: (beta1, beta2), weight_decay, .. }) => {
                Update::Lion { beta1, beta2, weight_decay }
            }
            Self::Adafactor(adafactor) => adafactor.update(),
            Self::AdamMini(AdamMini { betas, eps, weight_decay, .. }) => {
                Update::AdamMini { beta1: betas.0, eps, weight_decay }
            }
            Self::Muon(muon) => muon.update(),
            Self::Apollo(apollo) => apollo.update(),
        }
    }
}

/// Makes outputs of the gradients that the host reads: of `raw`, before clipping, without the loss scale.
/// `norm` is theirs without the scale, if clipping computed it.
fn output_gradients(
    trace: &Trace,
    read: Vec<(String, Read)>,
    (raw, norm): (&[(ValueId, Tensor)], Option<Tensor>),
    inverse: Option<&Tensor>,
) {
    let unscaled = |tensor: Tensor| inverse.map_or(tensor.clone(), |inverse| tensor.mul(inverse));
    let norm = || {
        norm.clone().unwrap_or_else(|| {
            // In the phase of the gradients: in the phase of the updates, it would be a reason to keep them in
            // 16 bits until the norm is known (`store_activations`).
            let own = trace.phase(Phase::Backward, || clip::norm(raw));
            own.map_or_else(|| trace.step_scalars().fill_like([], 0.0), unscaled)
        })
    };
    for (name, of) in read {
        match of {
            Read::Value(_, gradient) => trace.output(&name, &unscaled(gradient)),
            Read::Norm => trace.output(&name, &norm()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lighter_optimizers_keep_the_rate_and_have_less_state() {
        let names = |optimizer: Optimizer| {
            let lighter = optimizer.lighter();
            let bytes = |optimizer: &Optimizer| -> u64 {
                let states = optimizer.states(Shape::from([Adam8bit::SMALLEST as usize]));
                states.iter().map(|(_, dtype, shape)| dtype.bytes(shape.numel())).sum()
            };
            for (name, other) in &lighter {
                assert_eq!(other.learning_rate(), 0.3, "{name}");
                assert!(bytes(other) < bytes(&optimizer), "{name}");
            }
            lighter.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(AdamW { lr: 0.3, ..AdamW::default() }.into()), ["adam8bit", "momentum", "sgd"]);
        assert_eq!(names(NAdam { lr: 0.3, ..NAdam::default() }.into()), ["adam8bit", "momentum", "sgd"]);
        assert_eq!(names(Adam8bit { lr: 0.3, ..Adam8bit::default() }.into()), ["adam4bit", "sgd"]);
        assert_eq!(names(Adam4bit { lr: 0.3, ..Adam4bit::default() }.into()), ["sgd"]);
        let rmsprop = RmsProp { lr: 0.3, momentum: 0.9, ..RmsProp::default() };
        assert_eq!(names(rmsprop.into()), ["rmsprop", "sgd"]);
        assert_eq!(names(Adagrad { lr: 0.3, ..Adagrad::default() }.into()), ["sgd"]);
        assert_eq!(names(AdamMini { lr: 0.3, ..AdamMini::default() }.into()), ["sgd"]);
        assert_eq!(names(Muon { lr: 0.3, ..Muon::default() }.into()), ["sgd"]);
        assert_eq!(names(Apollo { lr: 0.3, ..Apollo::default() }.into()), ["sgd"]);
        assert_eq!(names(Sgd { lr: 0.3, momentum: 0.9, ..Sgd::default() }.into()), ["sgd"]);
        assert_eq!(names(Sgd { lr: 0.3, ..Sgd::default() }.into()), [""; 0]);
    }
}
