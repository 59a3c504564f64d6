//! Selects the forward results stored in host memory until the backward pass.

use std::collections::BTreeSet;

use super::RecomputePlanner;
use super::script::Retention;
use crate::compile::{Activations, Offload};
use crate::error::{Error, Result};
use crate::limits::Card;

impl RecomputePlanner {
    /// Offloads the results that `which` selects among those that `retention` keeps, in the order in which
    /// they are computed.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a layer that keeps no results.
    pub(in crate::compile) fn send_away(
        &self,
        retention: &mut [Retention],
        which: Activations,
    ) -> Result<()> {
        self.selected(retention, which)?.into_iter().for_each(|slot| retention[slot] = Retention::Offload);
        Ok(())
    }

    /// Lets a search offload the results that `which` selects, where that takes the least time.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a layer that keeps no results.
    pub(in crate::compile) fn may_send_away(&mut self, which: Activations, card: &Card) -> Result<()> {
        for slot in self.selected(&vec![Retention::Save; self.model.slots.len()], which)? {
            let slot = &mut self.model.slots[slot];
            slot.away_s = Some(2.0 * slot.bytes as f64 / card.host_bytes_per_s);
        }
        Ok(())
    }

    fn selected(&self, retention: &[Retention], which: Activations) -> Result<Vec<usize>> {
        let read_back = self.model.read_back();
        let kept = |slot: &usize| {
            let large = self.model.slots[*slot].bytes >= Offload::SMALLEST;
            retention[*slot] == Retention::Save && large && read_back[*slot] && self.model.can_drop(*slot)
        };
        // In execution order.
        let made = self.model.order.iter().flat_map(|&n| self.model.writes(&self.model.works[n as usize]));
        let kept: Vec<usize> = made.map(|&slot| slot as usize).filter(kept).collect();
        Ok(match which {
            Activations::Keep => Vec::new(),
            Activations::All => kept,
            Activations::Most(most) => {
                let mut left = most.0;
                let fits = |slot: &usize| match left.checked_sub(self.model.slots[*slot].bytes) {
                    Some(rest) => {
                        left = rest;
                        true
                    }
                    None => false,
                };
                kept.into_iter().filter(fits).collect()
            }
            Activations::Layers(paths) => {
                let mut chosen = Vec::new();
                for path in paths {
                    let before = chosen.len();
                    chosen.extend(kept.iter().copied().filter(|&slot| self.is_in(slot, path)));
                    if chosen.len() == before {
                        let layers = kept.iter().map(|&slot| self.layer(slot).to_owned());
                        let known: BTreeSet<String> = layers.filter(|layer| !layer.is_empty()).collect();
                        let known = known.into_iter().collect();
                        return Err(Error::Unknown {
                            kind: "layer that keeps activations",
                            name: (*path).to_owned(),
                            known,
                        });
                    }
                }
                chosen
            }
        })
    }

    fn layer(&self, slot: usize) -> &str {
        let producer = self.model.slots[slot].producer;
        producer.map_or("", |n| &self.graph.nodes[n as usize].layer)
    }

    /// Whether a slot is computed in the layer of this path or below it.
    fn is_in(&self, slot: usize, path: &str) -> bool {
        self.layer(slot).strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}
