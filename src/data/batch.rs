//! The data of one step.

/// The values of one input, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers.
    F32(Vec<f32>),
    /// Labels and token ids.
    U32(Vec<u32>),
}

impl Values {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::U32(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the values to `len`, or appends zeros.
    fn resize(&mut self, len: usize) {
        match self {
            Self::F32(values) => values.resize(len, 0.0),
            Self::U32(values) => values.resize(len, 0),
        }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Vec<u32>> for Values {
    fn from(values: Vec<u32>) -> Self {
        Self::U32(values)
    }
}

/// A number of samples: the values of each input by name, with the samples as the first axis.
///
/// ```
/// use wgrad::data::Batch;
///
/// let batch = Batch::new(2).with("x", vec![0.0f32, 0.5, 1.0, 1.5]).with("y", vec![0u32, 1]);
/// assert_eq!((batch.samples(), batch.f32("x")[2], batch.u32("y")), (2, 1.0, &[0, 1][..]));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    samples: usize,
    inputs: Vec<(String, Values)>,
}

impl Batch {
    /// Creates a batch of `samples` samples without any input.
    pub fn new(samples: usize) -> Self {
        Self { samples, inputs: Vec::new() }
    }

    /// Adds the values of an input.
    #[must_use]
    pub fn with(mut self, name: &str, values: impl Into<Values>) -> Self {
        self.inputs.push((name.to_owned(), values.into()));
        self
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the inputs, in the order in which they were added.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.inputs.iter().map(|(name, values)| (name.as_str(), values))
    }

    /// Returns the numbers of an input; none if there is no such input, or if it has labels or ids.
    pub fn f32(&self, name: &str) -> &[f32] {
        match self.inputs().find(|(other, _)| *other == name) {
            Some((_, Values::F32(values))) => values,
            _ => &[],
        }
    }

    /// Returns the labels or ids of an input; none if there is no such input, or if it has numbers.
    pub fn u32(&self, name: &str) -> &[u32] {
        match self.inputs().find(|(other, _)| *other == name) {
            Some((_, Values::U32(values))) => values,
            _ => &[],
        }
    }

    /// Appends the samples of a batch with the same inputs. An error says what differs.
    pub(super) fn append(&mut self, other: Self) -> Result<(), String> {
        if self.samples == 0 {
            *self = other;
            return Ok(());
        }
        let names =
            |batch: &Self| batch.inputs().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if names(self) != names(&other) {
            return Err(format!("it has {}, those before have {}", names(&other), names(self)));
        }
        for ((name, mine), (_, more)) in self.inputs.iter_mut().zip(other.inputs) {
            if mine.len() * other.samples != more.len() * self.samples {
                let (found, each) = (more.len(), mine.len() / self.samples);
                return Err(format!(
                    "`{name}` has {found} values for {} samples, not {each} each",
                    other.samples
                ));
            }
            match (mine, more) {
                (Values::F32(mine), Values::F32(more)) => mine.extend(more),
                (Values::U32(mine), Values::U32(more)) => mine.extend(more),
                _ => return Err(format!("`{name}` has numbers in some samples and ids in others")),
            }
        }
        self.samples += other.samples;
        Ok(())
    }

    /// Returns the batch with samples of zeros appended up to `samples`.
    #[must_use]
    pub fn padded(mut self, samples: usize) -> Self {
        for (_, values) in &mut self.inputs {
            let each = values.len().checked_div(self.samples).unwrap_or(0);
            values.resize(each * samples);
        }
        Self { samples, ..self }
    }
}
