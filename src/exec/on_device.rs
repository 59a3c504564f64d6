//! Inputs, outputs and parameters in buffers on the device, without a copy through the host.

use super::arenas::lasting_storage;
use super::transfer::Place;
use super::{ProgramId, Session};
use crate::error::{Error, Result};

/// A tensor on the device, row-major: `bytes` from `offset` of a buffer that can be bound as storage and copied
/// from. It holds for as long as the session keeps its plans; [`Session::replan`], [`Session::refit`] and a
/// trainer's refits move tensors.
///
/// The device runs what is submitted to a queue in order: commands that the app submits after
/// [`Session::step`] read the results of that step, and the next step waits for them. Outputs are overwritten
/// by the next run of any plan of the session, parameters by the next training step. Do not write to them.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTensor<'a> {
    /// The buffer, which holds other tensors, too.
    pub buffer: &'a wgpu::Buffer,
    /// Start of the tensor, in bytes: a multiple of 4.
    pub offset: u64,
    /// Its length in bytes, a multiple of 4.
    pub bytes: u64,
}

impl DeviceTensor<'_> {
    /// Returns the tensor as a binding of a storage buffer. Small parameters that are updated together, and
    /// slices, may start where the adapter binds no buffer (`min_storage_buffer_offset_alignment`): copy
    /// those.
    pub fn binding(&self) -> wgpu::BindingResource<'_> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: self.buffer,
            offset: self.offset,
            size: std::num::NonZeroU64::new(self.bytes),
        })
    }
}

impl Session {
    /// Returns where an output of a plan's last run is. Does not wait.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the outputs there are; [`Error::NotReady`] if the plan has not run, or another
    /// one ran after it.
    pub fn output_on_device(&self, id: ProgramId, name: &str) -> Result<DeviceTensor<'_>> {
        let plan = self.plan(id)?;
        let (_, value) = plan.graph().output(name)?;
        self.check_ran_last(id, name)?;
        let (buffer, offset) = self.arenas.place_of(plan, value);
        Ok(DeviceTensor { buffer, offset, bytes: plan.graph().value(value).bytes() })
    }

    /// Returns where a parameter or optimizer state is, in the type in which the session stores it. Does not
    /// wait.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are; [`Error::NotReady`] for optimizer state in host memory;
    /// [`Error::Unsupported`] for what is larger than a buffer, and so in several.
    pub fn parameter_on_device(&self, name: &str) -> Result<DeviceTensor<'_>> {
        let plan = &self.state_plan;
        let storage = lasting_storage(plan, name)?;
        if self.host.has(name) {
            return Err(Error::NotReady(format!("`{name}` is in the host's memory: it is offloaded")));
        }
        let places = self.arenas.elements(plan, storage);
        let [Place { buffer, offset, bytes }] = places[..] else {
            let (adapter, count) = (self.device().adapter().name.clone(), places.len());
            let message = format!(
                "`{name}` is larger than a buffer and lies in {count} of them: read it with `Session::parameter`"
            );
            return Err(Error::Unsupported { adapter, message });
        };
        Ok(DeviceTensor { buffer, offset, bytes: bytes.next_multiple_of(4) })
    }

    /// Returns the names of the inputs that are in a plan's step memory as they were fed, so that its next run does not
    /// copy them.
    ///
    /// # Errors
    /// [`Error::NotReady`] if there is no such plan.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn inputs_there(&self, id: ProgramId) -> Result<Vec<&str>> {
        self.plan(id)?;
        Ok(self.programs[id.0].feeds.there())
    }

    /// Feeds an input from a buffer on the device, from `offset` on: each run copies it at its start, until the
    /// input is fed again. What the app submitted before the run is seen, and what it submits later is not. Type
    /// and values are not checked: class indices must be in range, numbers finite.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the inputs there are; [`Error::Input`] for a buffer that cannot be copied from,
    /// is too short, or holds the outputs of this session, and for an offset that is not a multiple of 4.
    pub fn feed_from_device(
        &mut self,
        id: ProgramId,
        name: &str,
        buffer: &wgpu::Buffer,
        offset: u64,
    ) -> Result<()> {
        self.plan(id)?;
        // The run writes there, and wgpu copies only between two buffers.
        if self.arenas.step.iter().any(|arena| **arena == *buffer) {
            let message = "the buffer holds this session's outputs, which a run overwrites; copy it first";
            return Err(Error::Input { name: name.to_owned(), message: message.to_owned() });
        }
        let program = &mut self.programs[id.0];
        program.feeds.feed_from_device(program.plan.graph(), name, buffer, offset)
    }
}
