//! Copies between the device and host memory.

use std::collections::BTreeMap;
use std::ops::Range;

use super::program::{Program, Storage, StorageId};
use crate::compile::passes::BACK;
use crate::error::Result;
use crate::graph::{Share, Value, ValueId};
use crate::limits::Limits;

/// A copy between the device and host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Position in the order of operations.
    pub position: usize,
    /// Whether it runs after the dispatches of that position; otherwise before them.
    pub after: bool,
    /// Whether it copies to the device; otherwise to the host.
    pub up: bool,
    /// The storage.
    pub storage: StorageId,
    /// Byte offset in the storage.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The key under which the host stores it.
    pub name: String,
    /// First byte in the host's memory of that key.
    pub start: u64,
    /// For what ranks exchange, the index of the exchange in [`crate::graph::Graph::exchanges`].
    pub exchange: Option<u32>,
}

impl Program {
    /// Storages kept in host memory across steps, in the order in which they are copied to the device.
    pub fn offloaded(&self) -> impl Iterator<Item = &Storage> {
        self.storages.iter().filter(|storage| storage.offloaded)
    }

    /// Adds the storages of offloaded state. Each holds what one operation reads of it, from the first of these operations to the
    /// last.
    ///
    /// # Errors
    /// [`Error::TensorTooLarge`](crate::Error::TensorTooLarge) if that is larger than a binding.
    pub(super) fn add_offloaded(&mut self, limits: &Limits) -> Result<()> {
        let mut found: Vec<(ValueId, Range<usize>, u64)> = Vec::new();
        let mut index: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (position, &n) in self.order.iter().enumerate() {
            let node = &self.graph.nodes[n];
            for i in self.graph.offloaded_operands(node) {
                let (id, bytes) = (node.inputs[i], self.graph.operand_bytes(node, i));
                let at = *index.entry(id).or_insert_with(|| {
                    found.push((id, position..position, 0));
                    found.len() - 1
                });
                let (_, alive, most) = &mut found[at];
                (alive.end, *most) = (position, bytes.max(*most));
            }
        }
        for (id, alive, bytes) in found {
            self.check_size(id, bytes, limits.max_binding, limits)?;
            let Value { name, class, .. } = self.graph.value(id);
            let storage = self.push_storage(name.clone(), bytes, (alive.start, alive.end), *class, true)?;
            self.storage_of[id.index()] = Some(storage);
        }
        Ok(())
    }

    /// Bytes stored in host memory, by name: state across steps, activations and exchanges within the step.
    pub fn host_bytes(&self) -> BTreeMap<String, u64> {
        let own = self.transfers.iter().filter(|transfer| transfer.exchange.is_none());
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for transfer in own {
            let end = all.entry(transfer.name.clone()).or_default();
            *end = (transfer.start + transfer.bytes).max(*end);
        }
        for exchange in &self.graph.exchanges {
            let words = [exchange.sent(), exchange.received()];
            for (name, words) in exchange.names().into_iter().zip(words) {
                let most = all.entry(name).or_default();
                *most = (4 * words).max(*most);
            }
        }
        all
    }

    /// Whether transfer `i` is the last one to the host of an exchange.
    pub(crate) fn sends_last(&self, i: usize) -> bool {
        let Transfer { up: false, exchange: Some(exchange), .. } = &self.transfers[i] else { return false };
        let next = self.transfers[i + 1..].iter().find(|next| next.exchange.is_some());
        next.is_none_or(|next| next.up || next.exchange != Some(*exchange))
    }

    /// Records a copy of a value, or of a share of it that is all the device has, between the device and host memory.
    pub(super) fn transfer(
        &mut self,
        (id, share): (ValueId, Option<Share>),
        (position, after): (usize, bool),
        up: bool,
    ) {
        let (storage, offset, all) = self.place_of(id);
        let Some(storage) = storage else { return };
        let Value { name, dtype, offloaded, .. } = self.graph.value(id);
        let (start, bytes) =
            share.map_or((0, all), |share| (dtype.bytes(share.start), dtype.bytes(share.len)));
        // A value copied back within the step has its own name: the host key is that name without the suffix.
        let passes = up && !offloaded;
        let sent = name.strip_suffix(BACK).and_then(|name| name.strip_suffix('.')).filter(|_| passes);
        let name = sent.unwrap_or(name).to_owned();
        let exchange = None;
        self.transfers.push(Transfer { position, after, up, storage, offset, bytes, name, start, exchange });
    }

    /// Records a copy of a value, or of a share of it, to or from the words of an exchange, from word `start` on.
    pub(super) fn exchange(
        &mut self,
        (id, share): (ValueId, Option<Share>),
        position: usize,
        up: bool,
        (exchange, start): (u32, u64),
    ) {
        let (storage, mut offset, mut bytes) = self.place_of(id);
        let Some(storage) = storage else { return };
        if let Some(share) = share {
            let dtype = self.graph.value(id).dtype;
            (offset, bytes) = (offset + dtype.bytes(share.start), dtype.bytes(share.len));
        }
        let [sent, received] = self.graph.exchanges[exchange as usize].names();
        let (after, start, exchange) = (false, 4 * start, Some(exchange));
        let name = if up { received } else { sent };
        self.transfers.push(Transfer { position, after, up, storage, offset, bytes, name, start, exchange });
    }
}
