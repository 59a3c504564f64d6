//! Chains of element-wise functions as one operation: intermediate results are never in memory.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::{Op, Saves};
use crate::dtype::DType;
use crate::shape::Shape;

/// What a link reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// An operand of the chain.
    Operand(usize),
    /// The result of an earlier link.
    Result(usize),
}

/// One function of a chain: an element-wise operation with a single result of the chain's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedOp {
    /// [`Op::Unary`], [`Op::UnaryGrad`], [`Op::Binary`], [`Op::Dropout`], [`Op::BatchNorm`], or an operation
    /// that only changes how an operand is read: [`Op::Expand`], and [`Op::Cast`] from 16 bits to 32.
    pub op: Op,
    /// Its operands.
    pub args: Vec<Arg>,
}

/// How the elements of an operand map to those of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// One to one.
    Whole,
    /// Element `i` of the result reads element `i / inner % len`: a scalar, a bias, a value for each channel.
    Strip {
        /// Consecutive elements of the result that read the same element.
        inner: u64,
        /// Elements of the operand.
        len: u64,
    },
    /// Every element reads the whole operand: the step scalars.
    Words,
}

/// A straight-line program over elements. The result of the last link is that of the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedElementwise {
    links: Vec<FusedOp>,
    shape: Shape,
    name: &'static str,
}

impl FusedElementwise {
    /// Creates a chain of links in order. Each reads operands and earlier links; the result of every link has
    /// `shape`.
    pub fn new(links: Vec<FusedOp>, shape: Shape) -> Self {
        let name = name(None, &links);
        Self { links, shape, name }
    }

    /// Creates the epilogue chain of an operation named `first`; operand 0 is the operation's result.
    pub fn epilogue(first: &str, links: Vec<FusedOp>, shape: Shape) -> Self {
        let name = name(Some(first), &links);
        Self { links, shape, name }
    }

    /// Returns the links, in order.
    pub fn links(&self) -> &[FusedOp] {
        &self.links
    }

    /// Returns the shape of the result.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of operands.
    pub fn operands(&self) -> usize {
        let count = |arg: &Arg| if let Arg::Operand(k) = arg { k + 1 } else { 0 };
        self.links.iter().flat_map(|link| &link.args).map(count).max().unwrap_or(0)
    }

    /// Returns the joined names of the links, such as `batch_norm+add+relu`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns how each operand is read; `None` if the broadcast of one is not a [`Read`], or if one is read
    /// in two different ways.
    pub fn reads(&self, operands: &[Shape]) -> Option<Vec<Read>> {
        reads(&self.links, operands, self.shape)
    }
}

/// Does what [`FusedElementwise::reads`] does, for links that are not a chain yet.
pub(crate) fn reads(links: &[FusedOp], operands: &[Shape], result: Shape) -> Option<Vec<Read>> {
    let mut reads: Vec<Option<Read>> = vec![None; operands.len()];
    for link in links {
        for (position, arg) in link.args.iter().enumerate() {
            let Arg::Operand(k) = *arg else { continue };
            let read = read(&link.op, position, operands[k], result)?;
            if reads[k].is_some_and(|other| other != read) {
                return None;
            }
            reads[k] = Some(read);
        }
    }
    reads.into_iter().collect()
}

/// Whether an operation on operands of these types can be a link.
pub(crate) fn can_fuse(op: &Op, first: Option<DType>) -> bool {
    match op {
        // Functions with a constant slope are never recorded as `UnaryGrad`.
        Op::UnaryGrad(f) => f.saves() != Saves::Nothing,
        Op::Unary(_) | Op::Binary(_) | Op::Dropout { .. } | Op::BatchNorm(_) => true,
        _ => only_reads(op, first),
    }
}

/// Whether the operation computes nothing, so that a separate pass over memory for it is wasted.
pub(crate) fn only_reads(op: &Op, first: Option<DType>) -> bool {
    match op {
        Op::Expand(_) => first == Some(DType::F32),
        Op::Cast(DType::F32) => first.is_some_and(DType::is_half),
        _ => false,
    }
}

fn read(op: &Op, position: usize, operand: Shape, result: Shape) -> Option<Read> {
    match (op, position) {
        (Op::Dropout { .. }, 1) => Some(Read::Words),
        (Op::BatchNorm(_), 1..) => match *result.dims() {
            [_, c, h, w] => Some(Read::Strip { inner: (h * w) as u64, len: c as u64 }),
            _ => None,
        },
        (Op::Binary(_) | Op::Expand(_), _) => broadcast(operand, result),
        _ => (operand == result).then_some(Read::Whole),
    }
}

/// Returns how an operand is read that broadcasts to `result`, if its own dimensions are adjacent in the
/// result.
fn broadcast(operand: Shape, result: Shape) -> Option<Read> {
    if operand.numel() == result.numel() {
        return Some(Read::Whole);
    }
    let (own, all) = (operand.dims(), result.dims());
    let missing = all.len().checked_sub(own.len())?;
    let at = |axis: usize| axis.checked_sub(missing).map_or(1, |own_axis| own[own_axis]);
    let wide = |axis: &usize| at(*axis) != 1;
    let (Some(first), Some(last)) = ((0..all.len()).find(wide), (0..all.len()).rfind(wide)) else {
        return Some(Read::Strip { inner: result.numel(), len: 1 });
    };
    let product = |dims: &[usize]| dims.iter().map(|&dim| dim as u64).product();
    (first..=last)
        .all(|axis| at(axis) == all[axis])
        .then(|| Read::Strip { inner: product(&all[last + 1..]), len: product(&all[first..=last]) })
}

/// Maximum number of link names written out.
const MOST_NAMES: usize = 4;

/// Interns a name: names of operations are `'static`, so each distinct one is leaked once.
fn name(first: Option<&str>, links: &[FusedOp]) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let of = |link: &FusedOp| match &link.op {
        Op::UnaryGrad(f) => format!("{}_grad", f.name()),
        op => op.name().to_owned(),
    };
    let telling = links.iter().filter(|link| !matches!(link.op, Op::Expand(_) | Op::Cast(_)));
    let mut names: Vec<String> = telling.map(of).collect();
    if names.len() > MOST_NAMES {
        let rest = names.len() - MOST_NAMES + 1;
        names.splice(MOST_NAMES - 2..MOST_NAMES - 2 + rest, [format!("{rest} more")]);
    }
    names.splice(0..0, first.map(str::to_owned));
    let name = names.join("+");
    let mut known = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match known.get(name.as_str()) {
        Some(known) => known,
        None => {
            let name: &'static str = name.leak();
            known.insert(name);
            name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Binary;
    use crate::graph::Unary;

    #[test]
    fn adjacent_broadcast_dimensions_form_a_strip() {
        let strip = |inner, len| Some(Read::Strip { inner, len });
        let cases: [(&[usize], &[usize], Option<Read>); 8] = [
            (&[2, 3, 4], &[2, 3, 4], Some(Read::Whole)),
            (&[1, 2, 3, 4], &[2, 3, 4], Some(Read::Whole)),
            (&[], &[2, 3], strip(6, 1)),
            (&[3, 1, 1], &[2, 3, 5, 7], strip(35, 3)),
            (&[4], &[2, 3, 4], strip(1, 4)),
            (&[2, 3, 1], &[2, 3, 4], strip(4, 6)),
            (&[2, 1, 4], &[2, 1, 4], Some(Read::Whole)),
            (&[2, 1, 4], &[2, 3, 4], None),
        ];
        for (operand, result, expected) in cases {
            let (operand, result) = (Shape::try_new(operand).unwrap(), Shape::try_new(result).unwrap());
            assert_eq!(broadcast(operand, result), expected, "{operand} in {result}");
        }
    }

    #[test]
    fn chain_names_list_their_operations() {
        let link = |op: Op| FusedOp { op, args: vec![Arg::Operand(0)] };
        let chain = |ops: Vec<Op>| {
            FusedElementwise::new(ops.into_iter().map(link).collect(), Shape::from([3])).name()
        };
        let add = Op::Binary(Binary::Add);
        let grad = Op::UnaryGrad(Unary::Relu);
        assert_eq!(chain(vec![Op::Expand(Shape::from([3])), add.clone(), grad.clone()]), "add+relu_grad");
        let long = vec![add.clone(), add.clone(), grad, add.clone(), add.clone(), Op::Unary(Unary::Exp)];
        assert_eq!(chain(long), "add+add+3 more+exp");
    }
}
