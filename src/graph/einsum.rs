//! Einstein summation, lowered to permutations, sums and products of matrices.

use std::collections::BTreeMap;
use std::panic::Location;

use super::Tensor;
use crate::shape::MAX_RANK;

/// A tensor with a letter for each dimension.
struct Labelled {
    x: Tensor,
    letters: Vec<char>,
}

impl Labelled {
    /// Sums over the letters that nothing else names.
    fn keep(self, named: impl Fn(char) -> bool) -> Self {
        let gone: Vec<usize> = (0..self.letters.len()).filter(|&i| !named(self.letters[i])).collect();
        if gone.is_empty() {
            return self;
        }
        let letters = self.letters.iter().copied().filter(|&letter| named(letter)).collect();
        Self { x: self.x.sum(&gone), letters }
    }

    /// The places of a letter that occurs twice.
    fn repeated(&self) -> Option<(usize, usize)> {
        let places = 0..self.letters.len();
        places
            .clone()
            .flat_map(|j| (0..j).map(move |i| (i, j)))
            .find(|&(i, j)| self.letters[i] == self.letters[j])
    }

    /// The elements of equal indices in dimensions `i` and `j`, as the last dimension.
    fn diagonal(&self, i: usize, j: usize) -> Result<Self, String> {
        let (dims, letter) = (self.x.shape.dims(), self.letters[i]);
        let n = dims[i];
        if dims[j] != n {
            return Err(format!("`{letter}` is {n} and {} in one term", dims[j]));
        }
        let others: Vec<usize> = (0..dims.len()).filter(|axis| ![i, j].contains(axis)).collect();
        let line = [&others[..], &[i, j]].concat();
        let mut flat: Vec<usize> = others.iter().map(|axis| dims[*axis]).collect();
        flat.push(n.saturating_mul(n));
        let x = self.x.permute(&line).reshape_to(&flat, Location::caller());
        let x = x.slice_step(others.len(), 0..n.saturating_mul(n), n + 1);
        let letters = others.iter().map(|axis| self.letters[*axis]).chain([letter]).collect();
        Ok(Self { x, letters })
    }

    /// Without the dimensions of length 1 that are longer in other operands.
    fn broadcast(mut self, dims: &BTreeMap<char, usize>) -> Self {
        for i in (0..self.letters.len()).rev() {
            if self.x.dim(i) == 1 && dims[&self.letters[i]] != 1 {
                self.x = self.x.squeeze(i);
                self.letters.remove(i);
            }
        }
        self
    }

    /// Reorders the dimensions by groups of letters, each flattened to one dimension.
    fn grouped(&self, groups: [&[char]; 3], dims: &BTreeMap<char, usize>) -> Tensor {
        let order = groups.concat();
        let place = |letter: &char| self.letters.iter().position(|own| own == letter);
        let perm: Vec<usize> = order.iter().filter_map(place).collect();
        let moved =
            if perm.iter().copied().eq(0..perm.len()) { self.x.clone() } else { self.x.permute(&perm) };
        moved.reshape(groups.map(|group| group.iter().map(|letter| dims[letter]).product()))
    }
}

impl Tensor {
    /// Einstein summation of this tensor and others (`torch.einsum`): `"bij,bjk->bik"` is a batch of matrix products.
    /// Operands are multiplied from left to right, each pair as one product of matrices. Letters name dimensions; those
    /// missing on the right are summed over. A letter twice in one operand takes its diagonal. `...` stands for any
    /// dimensions, aligned at the last; dimensions of length 1 broadcast.
    #[track_caller]
    #[must_use]
    pub fn einsum(&self, equation: &str, others: &[&Tensor]) -> Tensor {
        let operands: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        if operands.iter().any(|x| x.id.is_none()) {
            return Tensor { id: None, ..self.clone() };
        }
        match parse(equation, &operands) {
            Ok((labelled, result, dims)) => {
                self.trace.called_at(Location::caller(), || contract(labelled, &result, &dims))
            }
            Err(why) => {
                let shapes: Vec<String> = operands.iter().map(|x| x.shape.to_string()).collect();
                self.mistake(format!("einsum `{equation}` of {}: {why}", shapes.join(", ")), self.shape)
            }
        }
    }
}

type Parsed = (Vec<Labelled>, Vec<char>, BTreeMap<char, usize>);

fn parse(equation: &str, operands: &[&Tensor]) -> Result<Parsed, String> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = equation.split_once("->").map_or((&equation[..], None), |(l, r)| (l, Some(r)));
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        return Err(format!("{} terms for {} tensors", terms.len(), operands.len()));
    }
    let mut labelled = Vec::new();
    for (term, x) in terms.iter().zip(operands) {
        labelled.push(name_dimensions(term, x)?);
    }
    let mut dims = BTreeMap::new();
    for (letter, dim) in labelled.iter().flat_map(|x| x.letters.iter().zip(x.x.shape.dims())) {
        let known = dims.entry(*letter).or_insert(*dim);
        match (*known, *dim) {
            (known, dim) if known == dim || dim == 1 => {}
            (1, dim) => *known = dim,
            (known, dim) => return Err(format!("`{}` is {known} and {dim}", shown(*letter))),
        }
    }
    let labelled: Vec<Labelled> = labelled.into_iter().map(|x| x.broadcast(&dims)).collect();
    let left: Vec<char> = dims.keys().rev().copied().filter(|letter| is_hidden(*letter)).collect();
    let result: Vec<char> = match right {
        Some(right) => match right.split_once("...") {
            Some((before, after)) => before.chars().chain(left).chain(after.chars()).collect(),
            None => right.chars().collect(),
        },
        // Those of `...`, then letters that occur once, in order.
        None => {
            let once = |l: &char| {
                l.is_ascii_alphabetic()
                    && terms.iter().flat_map(|t| t.chars()).filter(|own| own == l).count() == 1
            };
            left.into_iter().chain(dims.keys().copied().filter(once)).collect()
        }
    };
    if let Some((i, letter)) = result
        .iter()
        .enumerate()
        .find(|(i, letter)| !dims.contains_key(*letter) || result[..*i].contains(*letter))
    {
        let letter = shown(*letter);
        return Err(format!("`{letter}` at place {i} of the result is not in the terms, or repeats"));
    }
    if result.len() > MAX_RANK {
        return Err(format!("a result of {} dimensions; {MAX_RANK} is the most", result.len()));
    }
    Ok((labelled, result, dims))
}

/// Names of the dimensions that `...` stands for, from the last on.
const HIDDEN: std::ops::RangeInclusive<char> = '\u{e000}'..='\u{e0ff}';

fn is_hidden(letter: char) -> bool {
    HIDDEN.contains(&letter)
}

fn shown(letter: char) -> String {
    if is_hidden(letter) { "...".to_owned() } else { letter.to_string() }
}

/// A letter for each dimension of `x`, and diagonals instead of letters that repeat.
fn name_dimensions(term: &str, x: &Tensor) -> Result<Labelled, String> {
    let rank = x.shape.rank();
    let (before, after) = term.split_once("...").map_or((term, None), |(b, a)| (b, Some(a)));
    let named = before.chars().chain(after.unwrap_or("").chars());
    if let Some(letter) = named.clone().find(|letter| !letter.is_ascii_alphabetic()) {
        return Err(format!("`{letter}` is not a letter"));
    }
    let count = named.count();
    let Some(rest) = rank.checked_sub(count).filter(|rest| after.is_some() || *rest == 0) else {
        return Err(format!("`{term}` names {count} dimensions of {}", x.shape));
    };
    let hidden = HIDDEN.take(rest).collect::<Vec<_>>().into_iter().rev();
    let letters = before.chars().chain(hidden).chain(after.unwrap_or("").chars()).collect();
    let mut labelled = Labelled { x: x.clone(), letters };
    while let Some((i, j)) = labelled.repeated() {
        labelled = labelled.diagonal(i, j)?;
    }
    Ok(labelled)
}

fn contract(mut operands: Vec<Labelled>, result: &[char], dims: &BTreeMap<char, usize>) -> Tensor {
    let mut left = operands.remove(0);
    while !operands.is_empty() {
        let right = operands.remove(0);
        let later =
            |letter: char| result.contains(&letter) || operands.iter().any(|x| x.letters.contains(&letter));
        let left_of = left.letters.clone();
        let right = right.keep(|letter| later(letter) || left_of.contains(&letter));
        let l = left.keep(|letter| later(letter) || right.letters.contains(&letter));
        let of = |x: &Labelled, wanted: &dyn Fn(char) -> bool| -> Vec<char> {
            x.letters.iter().copied().filter(|letter| wanted(*letter)).collect()
        };
        let both = |letter: char| right.letters.contains(&letter);
        let batch = of(&l, &|letter| both(letter) && later(letter));
        let inner = of(&l, &|letter| both(letter) && !later(letter));
        let rows = of(&l, &|letter| !both(letter));
        let columns = of(&right, &|letter| !l.letters.contains(&letter));
        let a = l.grouped([&batch, &rows, &inner], dims);
        let b = right.grouped([&batch, &inner, &columns], dims);
        let letters = [batch, rows, columns].concat();
        let sizes: Vec<usize> = letters.iter().map(|letter| dims[letter]).collect();
        let product = a.matmul(&b);
        left = Labelled { x: product.reshape_to(&sizes, Location::caller()), letters };
    }
    let last = left.keep(|letter| result.contains(&letter));
    let perm: Vec<usize> =
        result.iter().filter_map(|letter| last.letters.iter().position(|own| own == letter)).collect();
    if perm.iter().copied().eq(0..perm.len()) { last.x } else { last.x.permute(&perm) }
}
