//! Which settings of an optimizer are valid.

use super::{
    Adafactor, Adagrad, Adam, Adam4bit, Adam8bit, AdamMini, AdamW, Apollo, Lion, Muon, NAdam, Optimizer,
    RAdam, RmsProp,
};
use crate::error::{Error, Result};

impl Optimizer {
    /// Returns the name of an optimizer that computes with rows or whole matrices of a gradient before it updates elements.
    pub(super) fn of_whole_gradients(&self) -> Option<&'static str> {
        match self {
            Self::Adafactor(_) => Some("Adafactor"),
            Self::AdamMini(_) => Some("Adam-mini"),
            Self::Muon(_) => Some("Muon"),
            Self::Apollo(_) => Some("APOLLO"),
            _ => None,
        }
    }

    /// Checks that ranks may each update a part of a parameter: each element by itself.
    pub(crate) fn check_shards(&self) -> Result<()> {
        let Some(name) = self.of_whole_gradients() else { return Ok(()) };
        let message = format!(
            "{name} updates rows or matrices as a whole, which ranks cannot share; use another optimizer, such as AdamW or \
             Adam8bit, or do not shard its state"
        );
        Err(Error::setting("parallel.shard", message))
    }

    /// Checks that ranks may each have a part of a parameter with state of the same elements.
    pub(crate) fn check_tensor(&self) -> Result<()> {
        if self.check_shards().is_ok() && !matches!(self, Self::Adam8bit(_) | Self::Adam4bit(_)) {
            return Ok(());
        }
        let message = "Adafactor, Adam-mini, Muon, APOLLO, Adam8bit and Adam4bit have state of rows or blocks, which ranks that \
                       compute a layer together would cut; use another optimizer, such as AdamW";
        Err(Error::setting("parallel.tensor", message))
    }

    /// Checks the range of each setting.
    pub(super) fn check(&self) -> Result<()> {
        let mut rules = vec![("lr", self.learning_rate(), f32::MAX)];
        match self {
            Self::Sgd(sgd) => {
                rules.extend([("momentum", sgd.momentum, 1.0), ("weight_decay", sgd.weight_decay, f32::MAX)]);
            }
            Self::Muon(Muon { momentum, weight_decay, adamw_rate, betas, eps, .. }) => rules.extend([
                ("momentum", *momentum, 1.0),
                ("weight_decay", *weight_decay, f32::MAX),
                ("adamw_rate", *adamw_rate, f32::MAX),
                ("beta1", betas.0, 1.0),
                ("beta2", betas.1, 1.0),
                ("eps", *eps, f32::MAX),
            ]),
            Self::Apollo(Apollo { betas, eps, weight_decay, rank, refresh, scale, .. }) => rules.extend([
                ("beta1", betas.0, 1.0),
                ("beta2", betas.1, 1.0),
                ("eps", *eps, f32::MAX),
                ("weight_decay", *weight_decay, f32::MAX),
                ("1 / rank", (*rank as f32).recip(), f32::MAX),
                ("1 / refresh", (*refresh as f32).recip(), f32::MAX),
                ("scale", *scale, f32::MAX),
            ]),
            Self::Lion(Lion { betas, weight_decay, .. }) => rules.extend([
                ("beta1", betas.0, 1.0),
                ("beta2", betas.1, 1.0),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
            Self::Adafactor(Adafactor { beta2_decay, eps, clip, weight_decay, .. }) => rules.extend([
                ("-beta2_decay", -beta2_decay, f32::MAX),
                ("eps1", eps.0, f32::MAX),
                ("eps2", eps.1, f32::MAX),
                ("1 / clip", clip.recip(), f32::MAX),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
            Self::RmsProp(RmsProp { alpha, eps, momentum, weight_decay, .. }) => rules.extend([
                ("alpha", *alpha, 1.0),
                ("eps", *eps, f32::MAX),
                ("momentum", *momentum, 1.0),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
            Self::Adagrad(Adagrad { lr_decay, eps, weight_decay, .. }) => rules.extend([
                ("lr_decay", *lr_decay, f32::MAX),
                ("eps", *eps, f32::MAX),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
            Self::NAdam(NAdam { betas, eps, momentum_decay, weight_decay, .. }) => rules.extend([
                ("beta1", betas.0, 1.0),
                ("beta2", betas.1, 1.0),
                ("eps", *eps, f32::MAX),
                ("momentum_decay", *momentum_decay, f32::MAX),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
            Self::Adam(Adam { betas, eps, weight_decay, .. })
            | Self::AdamW(AdamW { betas, eps, weight_decay, .. })
            | Self::RAdam(RAdam { betas, eps, weight_decay, .. })
            | Self::Adam8bit(Adam8bit { betas, eps, weight_decay, .. })
            | Self::Adam4bit(Adam4bit { betas, eps, weight_decay, .. })
            | Self::AdamMini(AdamMini { betas, eps, weight_decay, .. }) => rules.extend([
                ("beta1", betas.0, 1.0),
                ("beta2", betas.1, 1.0),
                ("eps", *eps, f32::MAX),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
        }
        match rules.into_iter().find(|(_, value, below)| !(*value >= 0.0 && value < below)) {
            Some((name, value, below)) => {
                let most = if below == 1.0 { "below 1" } else { "finite" };
                let message = format!("optimizer: {name} = {value}; it must be at least 0 and {most}");
                Err(Error::setting(format!("optimizer.{name}"), message))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sgd;
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |optimizer: Optimizer, name: &str| {
            let error = optimizer.check().expect_err(name).to_string();
            assert!(error.starts_with(&format!("optimizer: {name} = ")), "{error}");
        };
        refused(Sgd { lr: -0.1, ..Sgd::default() }.into(), "lr");
        refused(Sgd { momentum: 1.0, ..Sgd::default() }.into(), "momentum");
        refused(Adam { betas: (1.0, 0.5), ..Adam::default() }.into(), "beta1");
        refused(AdamW { betas: (0.5, f32::NAN), ..AdamW::default() }.into(), "beta2");
        refused(Adam8bit { eps: f32::INFINITY, ..Adam8bit::default() }.into(), "eps");
        refused(Lion { weight_decay: -1.0, ..Lion::default() }.into(), "weight_decay");
        refused(RmsProp { alpha: 1.0, ..RmsProp::default() }.into(), "alpha");
        refused(Adagrad { lr_decay: -1.0, ..Adagrad::default() }.into(), "lr_decay");
        refused(NAdam { momentum_decay: -1.0, ..NAdam::default() }.into(), "momentum_decay");
        refused(RAdam { betas: (0.5, 1.0), ..RAdam::default() }.into(), "beta2");
        refused(AdamMini { betas: (0.5, 1.0), ..AdamMini::default() }.into(), "beta2");
        refused(Muon { adamw_rate: -1.0, ..Muon::default() }.into(), "adamw_rate");
        refused(Apollo { rank: 0, ..Apollo::default() }.into(), "1 / rank");
        refused(Apollo { refresh: 0, ..Apollo::default() }.into(), "1 / refresh");
        refused(Adafactor { clip: 0.0, ..Adafactor::default() }.into(), "1 / clip");
        for name in Optimizer::NAMES {
            let optimizer = Optimizer::named(name).expect("known");
            assert!(optimizer.check().is_ok(), "{name}");
            assert!(optimizer.with_learning_rate(0.0).check().is_ok(), "{name} with a rate of 0");
        }
    }
}
