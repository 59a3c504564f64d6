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
    /// missing on the right are summed over. No letter may repeat in one operand, and `...` is not known.
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
    let terms: Vec<Vec<char>> = left.split(',').map(|term| term.chars().collect()).collect();
    if terms.len() != operands.len() {
        return Err(format!("{} terms for {} tensors", terms.len(), operands.len()));
    }
    let mut dims = BTreeMap::new();
    for (term, x) in terms.iter().zip(operands) {
        if term.len() != x.shape.rank() {
            return Err(format!(
                "`{}` names {} dimensions of {}",
                String::from_iter(term),
                term.len(),
                x.shape
            ));
        }
        for (i, (&letter, &dim)) in term.iter().zip(x.shape.dims()).enumerate() {
            if !letter.is_ascii_alphabetic() {
                return Err(format!("`{letter}` is not a letter"));
            }
            if term[..i].contains(&letter) {
                return Err(format!("`{letter}` is twice in one term"));
            }
            if *dims.entry(letter).or_insert(dim) != dim {
                return Err(format!("`{letter}` is {} and {dim}", dims[&letter]));
            }
        }
    }
    let result: Vec<char> = match right {
        Some(right) => right.chars().collect(),
        // Letters that occur once, in order.
        None => dims
            .keys()
            .copied()
            .filter(|l| terms.iter().flatten().filter(|own| *own == l).count() == 1)
            .collect(),
    };
    if let Some((i, letter)) = result
        .iter()
        .enumerate()
        .find(|(i, letter)| !dims.contains_key(*letter) || result[..*i].contains(*letter))
    {
        return Err(format!("`{letter}` at place {i} of the result is not in the terms, or repeats"));
    }
    if result.len() > MAX_RANK {
        return Err(format!("a result of {} dimensions; {MAX_RANK} is the most", result.len()));
    }
    let labelled = terms.into_iter().zip(operands).map(|(letters, x)| Labelled { x: (*x).clone(), letters });
    Ok((labelled.collect(), result, dims))
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
