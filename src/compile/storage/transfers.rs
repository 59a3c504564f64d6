//! Copies between the device and host memory.

use std::collections::BTreeMap;

use super::program::{Program, Storage, StorageId};
use crate::compile::passes::BACK;
use crate::graph::{Share, ValueId};

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

    /// Bytes stored in host memory, by name: state across steps, activations and exchanges within the step.
    pub fn host_bytes(&self) -> BTreeMap<String, u64> {
        let own = self.transfers.iter().filter(|transfer| transfer.exchange.is_none());
        let mut all: BTreeMap<String, u64> =
            own.map(|transfer| (transfer.name.clone(), transfer.bytes)).collect();
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

    /// Records a copy of a value between the device and host memory.
    pub(super) fn transfer(&mut self, id: ValueId, (position, after): (usize, bool), up: bool) {
        let (storage, offset, bytes) = self.place_of(id);
        let Some(storage) = storage else { return };
        let name = self.graph.value(id).name.clone();
        // A value copied back within the step has its own name: the host key is that name without the suffix.
        let passes = up && !self.graph.value(id).offloaded;
        let sent = name.strip_suffix(BACK).and_then(|name| name.strip_suffix('.')).filter(|_| passes);
        let name = sent.unwrap_or(&name).to_owned();
        let (start, exchange) = (0, None);
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
