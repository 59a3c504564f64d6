//! Persistent storages: they keep their contents across steps and come first in every program.

use std::collections::BTreeMap;

use super::program::{Program, Span, Storage, StorageId, too_large};
use crate::compile::passes::{is_small, small_states};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Class, ValueId};
use crate::limits::Limits;

impl Program {
    /// Adds parameters first, used or not, so that every program over the same parameters places them alike.
    /// Then adds optimizer state, that of small parameters first.
    pub(in crate::compile) fn add_persistent(&mut self, limits: &Limits) -> Result<()> {
        let mut by_name: BTreeMap<String, ValueId> = BTreeMap::new();
        for (id, value) in self.graph.ids() {
            if value.class == Class::Parameter {
                by_name.insert(value.name.clone(), id);
            }
        }
        let mut last = None;
        for param in self.graph.parameters.clone() {
            let storage = match by_name.get(param.name()) {
                Some(id) => self.new_storage(*id, 0, usize::MAX, limits)?,
                None => {
                    let bytes = param.shape().numel().saturating_mul(4);
                    let name = param.name().to_owned();
                    let storage = self.push_storage(name, bytes, (0, usize::MAX), Class::Parameter, false)?;
                    if bytes > limits.max_buffer {
                        let in_buffer = Self::whole_pieces_of(&param, DType::F32, limits);
                        if in_buffer == 0 {
                            let most = (bytes, limits.max_buffer);
                            return Err(too_large(
                                param.name(),
                                param.shape(),
                                Class::Parameter,
                                most,
                                limits,
                            ));
                        }
                        self.storages[storage.0 as usize].in_buffer = in_buffer;
                    }
                    storage
                }
            };
            if is_small(&param) {
                last = self.lay_after(last, storage, limits);
            }
        }
        for kind in small_states(&self.graph) {
            let mut last = None;
            for id in kind {
                let storage = self.new_storage(id, 0, usize::MAX, limits)?;
                last = self.lay_after(last, storage, limits);
            }
        }
        let states = self.graph.ids().filter(|(_, v)| v.class == Class::Optimizer && !v.offloaded);
        let states: Vec<ValueId> = states.map(|(id, _)| id).collect();
        for id in states {
            if self.storage_of[id.index()].is_none() {
                self.new_storage(id, 0, usize::MAX, limits)?;
            }
        }
        Ok(())
    }

    /// Appends a storage to the row that ends with `last`, if one binding still covers the row.
    fn lay_after(&mut self, last: Option<StorageId>, next: StorageId, limits: &Limits) -> Option<StorageId> {
        if let Some(last) = last {
            let before = &self.storages[last.0 as usize];
            let (first, start) = before.after.unwrap_or((last, 0));
            let start = start + before.bytes;
            let next = &mut self.storages[next.0 as usize];
            if start + next.bytes <= limits.max_binding.min(limits.max_buffer) {
                next.after = Some((first, start));
            }
        }
        Some(next)
    }

    /// The first storage of the row that contains a span, and the byte offset of the span in that row.
    pub(in crate::compile) fn in_row(&self, span: Span) -> (StorageId, u64) {
        match self.storages[span.storage.0 as usize].after {
            Some((first, start)) => (first, start + span.offset),
            None => (span.storage, span.offset),
        }
    }

    /// Indices of a storage and of the storages that follow it in its row.
    pub fn row(&self, first: StorageId) -> impl Iterator<Item = usize> {
        let pieces = move |(_, s): &(usize, &Storage)| s.after.is_some_and(|(of, _)| of == first);
        // Only persistent storages form rows, and they come first.
        let rows = self.storages[first.0 as usize].persistent;
        let lasting = self.storages.iter().take_while(move |s| rows && s.persistent).enumerate();
        let others = lasting.filter(pieces).map(|(i, _)| i);
        std::iter::once(first.0 as usize).chain(others)
    }
}
