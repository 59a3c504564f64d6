//! Low-rank adapters: what layers are adapted, and how.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::str::FromStr;
use std::sync::Arc;

use super::params::{ParamGroup, Params, matches};
use crate::dtype::FrozenStorage;
use crate::error::{Error, Result, TraceError};

/// Low-rank adapters of linear layers (LoRA, Hu et al. 2021): `y = W x + b` becomes `y = W x + b + (alpha / rank) B A x`
/// with `A [rank, in]` and `B [out, rank]`; `W` and `b` stay as they are. With [`dora`](Self::dora), also the lengths of the rows of
/// what `x` is multiplied with are trained.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// Rows of `A` and columns of `B`, at least 1.
    pub rank: usize,
    /// Numerator of the factor `alpha / rank`; above 0.
    pub alpha: f32,
    /// Probability that an element of the input of `A` becomes 0 in training.
    pub dropout: f64,
    /// Train length and direction of each row apart (DoRA, Liu et al. 2024): with `V = W + (alpha / rank) B A`, row `i` of the
    /// weight is `(‖W_i‖ + d_i) V_i / ‖V_i‖`, where `d [out]` is trained as well, and `‖V_i‖` is a constant in the backward
    /// pass. Weight decay draws `d` to 0, the lengths to those of `W`.
    pub dora: bool,
    /// Paths of the layers, or what they end in after a dot, as `target_modules` of PEFT: `q_proj` is
    /// `model.layers.0.self_attn.q_proj` and those of all other layers. `*` stands for any characters, alone for all linear
    /// layers.
    pub targets: Vec<String>,
    /// How matrices of what stays as it is are stored: [`ParamGroup::storage`].
    pub base: Option<FrozenStorage>,
}

impl Default for LoraConfig {
    /// PEFT's rank of 8 and alpha of 8, without dropout, for all linear layers.
    fn default() -> Self {
        Self { rank: 8, alpha: 8.0, dropout: 0.0, dora: false, targets: vec!["*".to_owned()], base: None }
    }
}

impl LoraConfig {
    /// Returns the factor of `B A x`.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank as f32
    }

    /// # Errors
    /// [`Error::Setting`] for a number out of its range, or without targets.
    pub(super) fn check(&self) -> Result<()> {
        let Self { rank, alpha, dropout, ref targets, .. } = *self;
        let wrong = |name: &str, message: String| Err(Error::setting(format!("lora.{name}"), message));
        if rank == 0 {
            return wrong("rank", "adapters of rank 0: it must be at least 1".to_owned());
        }
        if !(alpha > 0.0 && alpha.is_finite()) {
            return wrong("alpha", format!("adapters with alpha {alpha}: it must be above 0 and finite"));
        }
        if !(0.0..1.0).contains(&dropout) {
            let message = format!("adapters with dropout {dropout}: it must be at least 0 and below 1");
            return wrong("dropout", message);
        }
        if targets.is_empty() {
            return wrong("targets", "adapters of no layers: `*` is every linear layer".to_owned());
        }
        Ok(())
    }

    /// The group of a parameter of the base.
    pub(super) fn frozen(&self, group: ParamGroup) -> ParamGroup {
        ParamGroup { frozen: true, storage: self.base.or(group.storage), ..group }
    }

    /// Whether the layer at this path is adapted.
    pub(super) fn adapts(&self, path: &str) -> bool {
        self.targets.iter().any(|target| is_target(target, path))
    }
}

impl fmt::Display for LoraConfig {
    /// Formats as `LoRA r = 16, alpha = 32, dropout 0.05 on q_proj, v_proj`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, alpha, dropout, dora, ref targets, .. } = *self;
        let kind = if dora { "DoRA" } else { "LoRA" };
        write!(f, "{kind} r = {rank}, alpha = {alpha}")?;
        if dropout > 0.0 {
            write!(f, ", dropout {dropout}")?;
        }
        match &targets[..] {
            [all] if all == "*" => f.write_str(" on all linear layers"),
            some => write!(f, " on {}", some.join(", ")),
        }
    }
}

impl FromStr for LoraConfig {
    type Err = Error;

    /// Reads `r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05,dora=true`, each part of which may be absent: then `r` is 8,
    /// `alpha` is `r`, and all linear layers are adapted, without dropout and DoRA. `all-linear` is `*`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |message: String| Error::setting("lora", format!("`{text}`: {message}"));
        let mut config = Self::default();
        let mut alpha = None;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                wrong(format!("`{part}` is not NAME=VALUE; names are r, alpha, targets, dropout and dora"))
            })?;
            let number = |value: &str| {
                value.parse().map_err(|_| wrong(format!("{name}={value}: it must be a number")))
            };
            match name {
                "r" => {
                    config.rank =
                        value.parse().map_err(|_| wrong(format!("r={value} is no whole number")))?;
                }
                "alpha" => alpha = Some(number(value)? as f32),
                "dropout" => config.dropout = number(value)?,
                "dora" => {
                    let flag = value.parse().map_err(|_| wrong(format!("dora={value} is not true or false")));
                    config.dora = flag?;
                }
                "targets" if value == "all-linear" => config.targets = vec!["*".to_owned()],
                "targets" => config.targets = value.split('+').map(str::to_owned).collect(),
                _ => {
                    return Err(wrong(format!(
                        "no option `{name}`; known: r, alpha, targets, dropout, dora"
                    )));
                }
            }
        }
        config.alpha = alpha.unwrap_or(config.rank as f32);
        config.check().map(|()| config)
    }
}

/// Whether a path is the target or ends in it after a dot.
fn is_target(target: &str, path: &str) -> bool {
    matches(target, path) || matches(&format!("*.{target}"), path)
}

/// What a parameter of a [`Lora`](crate::nn::Lora) belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adapter {
    /// How it was configured.
    pub config: Arc<LoraConfig>,
    /// The matrix that it adapts.
    pub base: String,
    /// Whether that is `[in, out]`.
    pub input_first: bool,
}

/// What [`Params::adapt`] asked for.
#[derive(Debug)]
pub(super) struct Adapted {
    pub(super) config: Arc<LoraConfig>,
    at: &'static Location<'static>,
    /// Paths of the layers that could be adapted.
    layers: Vec<String>,
}

impl Adapted {
    /// A mistake for each target without a layer.
    pub(super) fn unmatched(&self) -> Vec<TraceError> {
        let Self { config, at, layers } = self;
        let without =
            config.targets.iter().filter(|target| !layers.iter().any(|path| is_target(target, path)));
        let known: BTreeSet<&str> =
            layers.iter().map(|path| path.rsplit('.').next().unwrap_or(path)).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let mistake = |target: &String| TraceError {
            message: format!(
                "adapters: no linear layer built after `Params::adapt` is `{target}`; their paths end in: {known}"
            ),
            file: at.file(),
            line: at.line(),
        };
        without.map(mistake).collect()
    }
}

impl Params {
    /// Trains low-rank adapters in place of the layers: freezes all parameters, those of layers that are built later too, and
    /// gives every [`Linear`](crate::nn::Linear) (and the layers of [`Gpt`](crate::models::Gpt)) that is built later and
    /// that `lora` names a [`Lora`](crate::nn::Lora), which is trained. Call it before the model is built. What shall be
    /// trained besides, [`Params::set_group`] unfreezes after that. A target without a layer is reported when a step is
    /// traced.
    ///
    /// ```
    /// use wgrad::graph::{LoraConfig, ParamGroup, Params};
    /// use wgrad::models::{Llama, LlamaConfig};
    /// let params = Params::new(0);
    /// let targets = vec!["q_proj".to_owned(), "v_proj".to_owned()];
    /// params.adapt(&LoraConfig { rank: 4, targets, ..LoraConfig::default() })?;
    /// let model = Llama::new(&params, &LlamaConfig::TINY)?;
    /// let trained = |p: &&wgrad::graph::Param| p.trained();
    /// assert_eq!(params.list().iter().filter(trained).count(), 2 * 2 * 6);
    /// params.set_group("*norm.weight", ParamGroup::default())?; // the norms, too
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`] for a number out of its range, or if adapters were asked for before.
    #[track_caller]
    pub fn adapt(&self, lora: &LoraConfig) -> Result<()> {
        lora.check()?;
        let at = Location::caller();
        let mut registry = self.lock();
        if registry.lora.is_some() {
            return Err(Error::setting(
                "lora",
                "the parameters have adapters already: one config is for all layers",
            ));
        }
        for param in registry.list.iter_mut().filter(|param| param.adapter().is_none()) {
            *param = param.in_group(lora.frozen(*param.group()));
        }
        registry.lora = Some(Adapted { config: Arc::new(lora.clone()), at, layers: Vec::new() });
        Ok(())
    }

    /// Records a mistake in a layer with adapters, which is reported when a step is traced.
    #[track_caller]
    pub(crate) fn complain(&self, message: String) {
        let at = Location::caller();
        self.lock().errors.push(TraceError { message, file: at.file(), line: at.line() });
    }

    /// Returns the config of the adapter that [`Params::adapt`] asks for in the linear layer at this path.
    pub(crate) fn adapter(&self) -> Option<Arc<LoraConfig>> {
        let mut registry = self.lock();
        let adapted = registry.lora.as_mut()?;
        adapted.layers.push(self.path().to_owned());
        adapted.config.adapts(self.path()).then(|| Arc::clone(&adapted.config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_paths_or_their_ends() {
        for (target, path, wanted) in [
            ("q_proj", "model.layers.0.self_attn.q_proj", true),
            ("q_proj", "q_proj", true),
            ("proj", "model.layers.0.self_attn.q_proj", false),
            ("self_attn.*", "model.layers.0.self_attn.q_proj", true),
            ("layers.1.*", "model.layers.0.self_attn.q_proj", false),
            ("*", "fc", true),
        ] {
            assert_eq!(is_target(target, path), wanted, "{target} and {path}");
        }
    }

    #[test]
    fn text_is_read_and_wrong_text_named() {
        let read = |text: &str| text.parse::<LoraConfig>();
        assert_eq!(read("").unwrap(), LoraConfig::default());
        let all = LoraConfig { rank: 16, alpha: 16.0, ..LoraConfig::default() };
        assert_eq!(read("r=16,targets=all-linear").unwrap(), all);
        let targets = ["q_proj", "v_proj"].map(str::to_owned).to_vec();
        let two = LoraConfig { rank: 4, alpha: 32.0, dropout: 0.05, dora: false, targets, base: None };
        assert_eq!(read("r=4,alpha=32,dropout=0.05,targets=q_proj+v_proj").unwrap(), two);
        let lengths = LoraConfig { dora: true, ..LoraConfig::default() };
        assert_eq!(read("dora=true").unwrap(), lengths);
        assert!(lengths.to_string().starts_with("DoRA r = 8"));
        for (text, part) in [
            ("16", "`16` is not NAME=VALUE"),
            ("r=x", "r=x is no whole number"),
            ("alpha=x", "alpha=x: it must be a number"),
            ("rank=3", "known: r, alpha"),
            ("r=0", "rank 0"),
            ("dropout=1", "dropout 1"),
            ("dora=1", "dora=1 is not true or false"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        let fine = LoraConfig::default();
        assert!(fine.check().is_ok() && fine.scale() == 1.0);
        for wrong in [
            LoraConfig { rank: 0, ..fine.clone() },
            LoraConfig { alpha: 0.0, ..fine.clone() },
            LoraConfig { alpha: f32::NAN, ..fine.clone() },
            LoraConfig { dropout: 1.0, ..fine.clone() },
            LoraConfig { targets: Vec::new(), ..fine.clone() },
        ] {
            assert!(matches!(wrong.check(), Err(Error::Setting { .. })), "{wrong:?}");
        }
    }
}
