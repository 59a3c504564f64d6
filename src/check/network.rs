//! Random networks over every operation, reproducible by seed.

use std::collections::BTreeMap;

use super::dice::Dice;
use super::draws::{DRAWS, Draw};
#[cfg(test)]
use super::wide::{wide_images, wide_sequences, wide_tables};
use crate::compile::TrainStep;
use crate::dtype::{DType, FrozenStorage};
use crate::error::Result;
use crate::graph::{IGNORE, Init, ParamGroup, Params, RunningStats, Tensor, Trace};
use crate::shape::Shape;

/// Data of an input. Rows of later micro-batches follow those of the first.
#[derive(Clone, Debug)]
pub(super) enum Feed {
    /// `f32` numbers, rounded if `dtype` is a 16-bit format.
    Floats { numbers: Vec<f32>, dtype: DType },
    /// Class indices or row numbers.
    Indices(Vec<u32>),
}

/// A random training step with data for several micro-batches.
pub(super) struct Network {
    /// The traced step.
    pub step: TrainStep,
    /// Samples of one micro-batch.
    pub batch: usize,
    /// Data of each input, by name: [`PARTS`] times the rows of one micro-batch.
    pub feeds: BTreeMap<String, Feed>,
}

/// Number of micro-batches with data.
pub(super) const PARTS: usize = 3;

impl Network {
    /// Builds a network of `nodes` draws, determined by `seed`.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) if a draw is not valid, which is a bug of this module.
    pub(super) fn random(seed: u64, nodes: usize) -> Result<Self> {
        Self::build(seed, |maker| {
            for _ in 0..nodes {
                let (_, draw) = DRAWS[maker.dice.below(DRAWS.len())];
                draw(maker);
            }
        })
    }

    /// Builds a network of `nodes` draws whose results are larger than all inputs and parameters.
    ///
    /// # Errors
    /// Those of [`Network::random`].
    #[cfg(test)]
    pub(super) fn wide(seed: u64, nodes: usize) -> Result<Self> {
        Self::build(seed, |maker| {
            for _ in 0..nodes {
                let draw = maker.dice.of(&[wide_images as Draw, wide_sequences, wide_tables]);
                draw(maker);
            }
        })
    }

    /// Builds a network of a single draw.
    ///
    /// # Errors
    /// Those of [`Network::random`].
    pub(super) fn of(draw: Draw, seed: u64) -> Result<Self> {
        Self::build(seed, draw)
    }

    fn build(seed: u64, draw: impl FnOnce(&mut Maker)) -> Result<Self> {
        let params = Params::new(seed);
        let (mut feeds, mut batch) = (BTreeMap::new(), 0);
        let step = TrainStep::trace(&params, |trace| {
            let mut maker = Maker::new(trace, &params, seed);
            draw(&mut maker);
            batch = maker.sizes.batch;
            let loss = maker.loss();
            feeds = std::mem::take(&mut maker.feeds);
            loss
        })?;
        Ok(Self { step, batch, feeds })
    }
}

/// Lengths of a network's dimensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    /// Columns of matrices.
    pub width: usize,
    pub channels: usize,
    /// Rows and columns of images.
    pub side: usize,
    /// Rows of sequences.
    pub length: usize,
    pub heads: usize,
    /// Elements of a head.
    pub head: usize,
    pub classes: usize,
}

/// Builder of a network: the values computed so far, which later draws read.
pub(super) struct Maker<'a> {
    pub trace: &'a Trace,
    params: &'a Params,
    pub dice: Dice,
    pub sizes: Sizes,
    feeds: BTreeMap<String, Feed>,
    /// `[batch, width]`
    matrices: Vec<Tensor>,
    /// `[batch, channels, side, side]`
    images: Vec<Tensor>,
    /// `[batch, length, heads, head]`
    sequences: Vec<Tensor>,
    /// Scalar terms of the loss.
    terms: Vec<Tensor>,
    /// Number of values that the host reads, without the loss.
    outputs: usize,
}

impl<'a> Maker<'a> {
    fn new(trace: &'a Trace, params: &'a Params, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let sizes = Sizes {
            batch: dice.of(&[2, 3, 8]),
            width: dice.of(&[4, 7, 16, 33, 128]),
            channels: dice.of(&[2, 4, 6, 8]),
            side: dice.of(&[5, 6, 9, 12]),
            length: dice.of(&[1, 4, 7, 12]),
            heads: dice.of(&[2, 4]),
            head: dice.of(&[4, 6, 8, 16]),
            classes: dice.of(&[3, 10, 17]),
        };
        let mut maker = Self {
            trace,
            params,
            dice,
            sizes,
            feeds: BTreeMap::new(),
            matrices: Vec::new(),
            images: Vec::new(),
            sequences: Vec::new(),
            terms: Vec::new(),
            outputs: 0,
        };
        let Sizes { batch, width, channels, side, length, heads, head, .. } = sizes;
        // The first values depend on parameters, so that gradients flow whatever is drawn.
        for shape in [vec![batch, width], vec![batch, channels, side, side], vec![batch, length, heads, head]]
        {
            let shape = Shape::try_new(&shape).expect("at most four dimensions");
            let weight = maker.weight(shape, 1);
            let x = maker.input(shape).add(&weight);
            maker.keep(x);
        }
        maker
    }

    /// Adds a trained parameter, uniform in ±1/√`fan_in`.
    pub(super) fn weight(&mut self, shape: impl Into<Shape>, fan_in: usize) -> Tensor {
        self.parameter(shape, Init::fan_in(fan_in), true)
    }

    /// Adds a parameter initialized with `init`, or a buffer if not `trained`.
    pub(super) fn parameter(&mut self, shape: impl Into<Shape>, init: Init, trained: bool) -> Tensor {
        let name = format!("w{}", self.params.list().len());
        let add = if trained { Params::add } else { Params::add_buffer };
        let param = add(self.params, &name, shape.into(), init);
        if trained && self.dice.one_in(6) {
            // Without a decay of its own: gradients are read from a plan without decay.
            let group = ParamGroup { rate: 0.5, ..ParamGroup::default() };
            self.params.set_group(&name, group).expect("the parameter is there");
        }
        if trained && self.dice.one_in(8) {
            let storage = self.dice.one_in(2).then(|| self.dice.of(&FrozenStorage::ALL));
            let group = ParamGroup { frozen: true, storage, ..ParamGroup::default() };
            self.params.set_group(&name, group).expect("the parameter is there");
        }
        self.trace.param(&param)
    }

    /// Adds running statistics of `channels` channels.
    pub(super) fn running(&mut self, channels: usize) -> [Tensor; 2] {
        let mean = self.parameter([channels], Init::Constant(0.1), false);
        [mean, self.parameter([channels], Init::Constant(0.9), false)]
    }

    /// Batch norm with the statistics of the batch; updates the running statistics.
    pub(super) fn batch_norm(&mut self, x: &Tensor) -> Tensor {
        let c = x.dim(1);
        let (gamma, beta) = (self.weight([c], 1).offset(1.0), self.weight([c], 1));
        let [mean, var] = self.running(c);
        let running = RunningStats { mean: &mean, var: &var, momentum: 0.1 };
        x.batch_norm_train(&gamma, &beta, 1e-5, Some(&running))
    }

    /// Declares an `f32` input. One in four has an outlier of 40, and one in six a mean of 4.
    pub(super) fn input(&mut self, shape: impl Into<Shape>) -> Tensor {
        let (name, shape) = (format!("x{}", self.feeds.len()), shape.into());
        let numbers = self.numbers(shape);
        self.feeds.insert(name.clone(), Feed::Floats { numbers, dtype: DType::F32 });
        self.trace.input(&name, shape)
    }

    /// Declares a 16-bit input, with the same distribution.
    pub(super) fn half(&mut self, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let (name, shape) = (format!("h{}", self.feeds.len()), shape.into());
        let numbers = self.numbers(shape);
        let numbers = dtype.unpack(&dtype.pack(&numbers), numbers.len());
        self.feeds.insert(name.clone(), Feed::Floats { numbers, dtype });
        self.trace.input_of(dtype, &name, shape)
    }

    fn numbers(&mut self, shape: Shape) -> Vec<f32> {
        let count = shape.numel() as usize * PARTS;
        let mean = if self.dice.below(6) == 0 { 4.0 } else { 0.0 };
        let mut numbers: Vec<f32> = (0..count).map(|_| mean + self.dice.number()).collect();
        if self.dice.below(4) == 0 {
            numbers[0] = 40.0;
        }
        numbers
    }

    /// Declares an input of class indices; with `ignored`, one in four is [`IGNORE`].
    pub(super) fn labels(&mut self, shape: impl Into<Shape>, ignored: bool) -> Tensor {
        self.labels_of(self.sizes.classes, shape, ignored)
    }

    /// Declares labels of `classes` classes.
    pub(super) fn labels_of(&mut self, classes: usize, shape: impl Into<Shape>, ignored: bool) -> Tensor {
        let (name, shape) = (format!("y{}", self.feeds.len()), shape.into());
        let draw = |dice: &mut Dice| match ignored && dice.below(4) == 0 {
            true => IGNORE,
            false => dice.below(classes) as u32,
        };
        let labels = (0..shape.numel() as usize * PARTS).map(|_| draw(&mut self.dice)).collect();
        self.feeds.insert(name.clone(), Feed::Indices(labels));
        self.trace.labels(&name, shape, classes as u32)
    }

    /// Declares an input of row numbers for a table of `rows` rows.
    pub(super) fn ids(&mut self, shape: impl Into<Shape>, rows: usize) -> Tensor {
        let (name, shape) = (format!("i{}", self.feeds.len()), shape.into());
        let ids = (0..shape.numel() as usize * PARTS).map(|_| self.dice.below(rows) as u32).collect();
        self.feeds.insert(name.clone(), Feed::Indices(ids));
        self.trace.ids(&name, shape, rows as u32)
    }

    /// Declares an input that cuts sequences into documents, for [`Tensor::attention_within`].
    pub(super) fn documents(&mut self) -> Tensor {
        let (name, Sizes { batch, length, .. }) = (format!("d{}", self.feeds.len()), self.sizes);
        let mut ends = Vec::with_capacity(batch * length * 2 * PARTS);
        for _ in 0..batch * PARTS {
            let mut start = 0;
            while start < length {
                let end = start + 1 + self.dice.below(length - start);
                ends.extend((start..end).flat_map(|_| [start as u32, end as u32]));
                start = end;
            }
        }
        self.feeds.insert(name.clone(), Feed::Indices(ends));
        self.trace.ids(&name, [batch, length, 2], length as u32 + 1)
    }

    /// Picks a value; recent values more often than old ones, as in real networks.
    fn pick(&mut self, from: fn(&Self) -> &Vec<Tensor>) -> Tensor {
        let count = from(self).len();
        let back =
            if self.dice.below(4) > 0 { self.dice.below(count.min(3)) } else { self.dice.below(count) };
        from(self)[count - 1 - back].clone()
    }

    /// Picks a matrix `[batch, width]`.
    pub(super) fn matrix(&mut self) -> Tensor {
        self.pick(|maker| &maker.matrices)
    }

    /// Picks an image `[batch, channels, side, side]`.
    pub(super) fn image(&mut self) -> Tensor {
        self.pick(|maker| &maker.images)
    }

    /// Picks a sequence `[batch, length, heads, head]`.
    pub(super) fn sequence(&mut self) -> Tensor {
        self.pick(|maker| &maker.sequences)
    }

    /// Makes a value an output, for the host to read.
    pub(super) fn read(&mut self, x: &Tensor) {
        self.outputs += 1;
        self.trace.output(&format!("out{}", self.outputs), x);
    }

    /// Makes a value of one of the three shapes available to later draws. With probability 1/8 the host reads
    /// it.
    pub(super) fn keep(&mut self, x: Tensor) {
        if self.dice.one_in(8) {
            self.read(&x);
        }
        match x.shape().rank() {
            2 => self.matrices.push(x),
            _ if x.shape().dims()[1..] == [self.sizes.length, self.sizes.heads, self.sizes.head]
                && (x.shape() != self.image_shape() || self.dice.below(2) == 0) =>
            {
                self.sequences.push(x);
            }
            _ => self.images.push(x),
        }
    }

    fn image_shape(&self) -> Shape {
        let Sizes { batch, channels, side, .. } = self.sizes;
        Shape::from([batch, channels, side, side])
    }

    /// Projects a tensor with the batch as its first dimension to a matrix `[batch, width]`.
    pub(super) fn keep_flat(&mut self, x: &Tensor) {
        let flat = x.reshape([x.dim(0), (x.shape().numel() / x.dim(0).max(1) as u64) as usize]);
        let weight = self.weight([flat.dim(1), self.sizes.width], flat.dim(1));
        self.keep(flat.matmul(&weight));
    }

    /// Adds a scalar to the loss.
    pub(super) fn term(&mut self, x: Tensor) {
        self.terms.push(x);
    }

    fn loss(&mut self) -> Tensor {
        let last = |list: &[Tensor], count: usize| list[list.len().saturating_sub(count)..].to_vec();
        let read = [last(&self.matrices, 2), last(&self.images, 1), last(&self.sequences, 1)].concat();
        for x in read {
            let weight = self.weight(Shape::from([x.shape().last()]), 1);
            let term = x.sub(&weight).tanh().square().mean(&[]);
            self.terms.push(term);
        }
        let terms = std::mem::take(&mut self.terms);
        terms.into_iter().reduce(|sum, term| sum.add(&term)).expect("the last values are terms")
    }
}
