//! Inputs in flight to the device: two staging buffers for each, so that the next batch is written while a
//! step runs.

use super::ledger::{Ledger, Purpose};
use crate::compile::{Plan, STAGING_SLOTS};
use crate::device::{Buffer, Device};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, IGNORE, Indices, Op, STEP_SCALARS, ValueId};
use crate::maybe_async;

/// Element types that can be fed and read: `f32`, `u32`, and the 16-bit formats of the crate `half`.
pub trait Element: bytemuck::Pod {
    /// The element type on the device.
    const DTYPE: DType;

    /// Returns the value as a number; `None` for a type of integers, whose values are always finite.
    fn number(self) -> Option<f32>;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;

    fn number(self) -> Option<f32> {
        Some(self)
    }
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;

    fn number(self) -> Option<f32> {
        None
    }
}

impl Element for half::f16 {
    const DTYPE: DType = DType::F16;

    fn number(self) -> Option<f32> {
        Some(self.to_f32())
    }
}

impl Element for half::bf16 {
    const DTYPE: DType = DType::BF16;

    fn number(self) -> Option<f32> {
        Some(self.to_f32())
    }
}

/// Returns an error for the first element that is NaN or infinite.
pub(super) fn finite<T: Element>(
    data: &[T],
    what: impl FnOnce() -> String,
    help: &'static str,
) -> Result<()> {
    let numbers = data.iter().filter_map(|x| x.number());
    match (0..).zip(numbers).find(|(_, x)| !x.is_finite()) {
        Some((index, value)) => Err(Error::NotFinite { what: what(), index, value, help }),
        None => Ok(()),
    }
}

/// A staging buffer, mapped while the host writes it.
struct Slot {
    buffer: Buffer,
    mapped: bool,
    used_by: Option<wgpu::SubmissionIndex>,
}

struct Input {
    value: ValueId,
    name: String,
    bytes: u64,
    slots: Vec<Slot>,
    /// The slot that holds the data fed last.
    current: Option<usize>,
    /// A buffer of the app's, and the offset in it, from which the input is copied instead.
    outside: Option<(wgpu::Buffer, u64)>,
    /// Whether a run leaves it as it was: nothing else is ever in its memory.
    lasting: bool,
    /// Whether its memory holds what was fed last, so that the next run need not copy it.
    there: bool,
}

/// The inputs of one program.
pub(super) struct Feeds {
    inputs: Vec<Input>,
}

impl Feeds {
    pub(super) fn new(graph: &Graph, ledger: &mut Ledger) -> Result<Self> {
        let mut inputs = Vec::new();
        for (value, input) in graph.inputs() {
            let bytes = input.bytes();
            let mut slots = Vec::new();
            for slot in 0..STAGING_SLOTS {
                let label = format!("staging of {} {slot}", input.name);
                let buffer = ledger.create(&label, bytes, Purpose::Upload)?;
                slots.push(Slot { buffer, mapped: true, used_by: None });
            }
            inputs.push(Input {
                value,
                name: input.name.clone(),
                bytes,
                slots,
                current: None,
                outside: None,
                lasting: false,
                there: false,
            });
        }
        Ok(Self { inputs })
    }

    /// Copies the inputs that a run of the plan leaves as they are only after they were fed.
    pub(super) fn keep_lasting(mut self, plan: &Plan) -> Self {
        self.inputs.iter_mut().for_each(|input| input.lasting = lasts(plan, input.value));
        self
    }

    /// Writes an input for the next step. Feeding it twice before a step replaces the first data.
    #[maybe_async]
    pub(super) async fn feed<T: Element>(
        &mut self,
        device: &Device,
        graph: &Graph,
        name: &str,
        data: &[T],
        accept_non_finite: bool,
    ) -> Result<()> {
        let input = self.input(graph, name)?;
        check(graph, input.value, data)?;
        if !accept_non_finite {
            let help = "repair or leave out the sample; `set_accept_non_finite(true)` feeds such values";
            finite(data, || format!("input `{name}`"), help)?;
        }
        // The current slot may still be in use by the step that was submitted last.
        let slot = match input.current {
            Some(current) if input.slots[current].mapped => current,
            Some(current) => (current + 1) % input.slots.len(),
            None => 0,
        };
        input.slots[slot].write(device, bytemuck::cast_slice(data)).await?;
        input.current = Some(slot);
        input.outside = None;
        input.there = false;
        Ok(())
    }

    /// Copies an input from a buffer of the app's in each run.
    pub(super) fn feed_from_device(
        &mut self,
        graph: &Graph,
        name: &str,
        buffer: &wgpu::Buffer,
        offset: u64,
    ) -> Result<()> {
        let input = self.input(graph, name)?;
        let wrong = |message: String| Err(Error::Input { name: name.to_owned(), message });
        if !buffer.usage().contains(wgpu::BufferUsages::COPY_SRC) {
            return wrong("the buffer lacks `BufferUsages::COPY_SRC`".to_owned());
        }
        if !offset.is_multiple_of(4) {
            return wrong(format!("offset {offset} of the buffer is not a multiple of 4"));
        }
        if offset.checked_add(input.bytes).is_none_or(|end| end > buffer.size()) {
            let (needs, has) = (input.bytes, buffer.size());
            return wrong(format!("takes {needs} bytes from offset {offset}, the buffer has {has}"));
        }
        input.outside = Some((buffer.clone(), offset));
        input.there = false;
        Ok(())
    }

    fn input(&mut self, graph: &Graph, name: &str) -> Result<&mut Input> {
        self.inputs.iter_mut().find(|input| input.name == name).ok_or_else(|| {
            let names = graph.inputs().map(|(_, value)| value.name.clone());
            let known = names.filter(|name| name != STEP_SCALARS).collect();
            Error::Unknown { kind: "input", name: name.to_owned(), known }
        })
    }

    /// Records the copies of the inputs that are not there yet; `place` returns the destination of each. What the app
    /// keeps in a buffer of its own is always copied, because it may have changed.
    pub(super) fn record<'a>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        mut place: impl FnMut(ValueId) -> (&'a wgpu::Buffer, u64),
    ) -> Result<()> {
        for input in self.inputs.iter_mut().filter(|input| !input.there) {
            if let Some((from, offset)) = &input.outside {
                let (to, at) = place(input.value);
                encoder.copy_buffer_to_buffer(from, *offset, to, at, input.bytes);
                continue;
            }
            let Some(current) = input.current else {
                let message = "nothing was fed; call `feed` before the first step".to_owned();
                return Err(Error::Input { name: input.name.clone(), message });
            };
            let slot = &mut input.slots[current];
            if slot.mapped {
                slot.buffer.unmap();
                slot.mapped = false;
            }
            let (buffer, offset) = place(input.value);
            encoder.copy_buffer_to_buffer(&slot.buffer, 0, buffer, offset, input.bytes);
        }
        Ok(())
    }

    /// Remembers which submission reads the current slots.
    pub(super) fn submitted(&mut self, submission: &wgpu::SubmissionIndex) {
        for input in self.inputs.iter_mut().filter(|input| !input.there && input.outside.is_none()) {
            if let Some(current) = input.current {
                input.slots[current].used_by = Some(submission.clone());
                input.there = input.lasting;
            }
        }
    }

    /// Returns the names of the inputs that the next run does not copy.
    pub(super) fn there(&self) -> Vec<&str> {
        self.inputs.iter().filter(|input| input.there).map(|input| input.name.as_str()).collect()
    }

    /// Notes that something else may be written to the inputs' memory, so that the next run copies all of them.
    pub(super) fn overwritten(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.there = false);
    }
}

/// Whether a run of the plan leaves an input as it was: its storage holds nothing else, and shares no byte with
/// another one.
fn lasts(plan: &Plan, input: ValueId) -> bool {
    let program = &plan.program;
    let Some(storage) = program.storage_of[input.index()] else { return false };
    // Reshapes hold the input's own elements.
    let view = |id: ValueId| {
        let maker = program.graph.nodes.iter().find(|node| node.outputs.contains(&id));
        id == input || maker.is_some_and(|node| matches!(node.op, Op::Reshape(_)))
    };
    let own = program.graph.ids().filter(|(id, _)| program.storage_of[id.index()] == Some(storage));
    let region = plan.layout.regions[storage.0 as usize];
    let end = region.offset + program.storages[storage.0 as usize].bytes;
    let apart = plan.layout.regions.iter().zip(&program.storages).enumerate().all(|(i, (other, held))| {
        i == storage.0 as usize
            || other.arena != region.arena
            || other.offset >= end
            || other.offset + held.bytes <= region.offset
    });
    apart && own.map(|(id, _)| id).all(view)
}

impl Slot {
    #[maybe_async]
    async fn write(&mut self, device: &Device, bytes: &[u8]) -> Result<()> {
        if !self.mapped {
            device.map(&self.buffer, wgpu::MapMode::Write, .., self.used_by.take()).wait(device).await?;
            self.mapped = true;
        }
        let mut view =
            self.buffer.get_mapped_range_mut(..).map_err(|e| device.refused("to write an input", &e))?;
        // With an odd number of 16-bit elements the last word is only half filled.
        view.slice(..bytes.len()).copy_from_slice(bytes);
        Ok(())
    }
}

/// Checks the type, the length and, for class indices and row ids, the range of an input.
fn check<T: Element>(graph: &Graph, id: ValueId, data: &[T]) -> Result<()> {
    let value = graph.value(id);
    let wrong = |message: String| Err(Error::Input { name: value.name.clone(), message });
    if value.dtype != T::DTYPE {
        return wrong(format!("is {}, got {}", value.dtype, T::DTYPE));
    }
    if data.len() as u64 != value.shape.numel() {
        let needed = value.shape.numel();
        return wrong(format!("{} takes {needed} elements, got {}", value.shape, data.len()));
    }
    let Some(indices) = value.indices else { return Ok(()) };
    let words: &[u32] = bytemuck::cast_slice(data);
    let (below, what, also) = match indices {
        Indices::Labels(classes) => (classes, "classes", "; u32::MAX is ignored"),
        Indices::Ids(rows) => (rows, "rows", ""),
    };
    let allowed = |word: u32| word < below || (word == IGNORE && matches!(indices, Indices::Labels(_)));
    match words.iter().position(|&word| !allowed(word)) {
        Some(at) => wrong(format!(
            "element {at} is {}, but there are {below} {what} (0 to {}{also})",
            words[at],
            below.saturating_sub(1)
        )),
        None => Ok(()),
    }
}
