//! Elements, slices and rows by index.

use super::super::constant::folded;
use super::super::import::{axis, shape};
use super::{Call, Constant, Handler, Import, Results, Value, known, one, whole};
use crate::dtype::DType;
use crate::graph::Tensor;

pub(super) const OPS: &[(&str, Handler)] = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("NonZero", non_zero),
    ("OneHot", one_hot),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
];

/// Indices that may count from the end, of an axis of `len`.
fn places(ids: &Constant, len: usize) -> Result<Vec<usize>, String> {
    ids.as_ints()
        .into_iter()
        .map(|id| axis(id, len).map_err(|_| format!("index {id} along an axis of {len}")))
        .collect()
}

fn gather<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let along = axis(call.int("axis", 0), dims.len())?;
    let ids_dims = import.dims(&call.input(1))?;
    let result = [&dims[..along], &ids_dims, &dims[along + 1..]].concat();
    if let Value::Constant(ids) = call.input(1) {
        let places = places(&ids, dims[along])?;
        if let Value::Constant(x) = call.input(0) {
            return known(Constant { dims: result, ..x.take(along, &places)? });
        }
        if let [place] = places[..] {
            let x = whole(import, call, 0)?;
            return one(x.slice(along, place..place + 1).reshape(shape(&result)?));
        }
    }
    let x = import.x(call, 0)?;
    // Indices that count from the end are turned into others while they are known.
    let ids = match call.input(1) {
        Value::Constant(ids) => {
            let data = places(&ids, dims[along])?.into_iter().map(|place| place as f64).collect();
            import.indices(&Value::Constant(Constant { data, ..ids }))?
        }
        other => import.indices(&other)?,
    };
    if along == 0 && dims.len() == 2 {
        return one(x.embedding(&ids));
    }
    let count: usize = ids_dims.iter().product();
    one(x.index_select(along, &ids.reshape([count])).reshape(shape(&result)?))
}

fn gather_elements<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let along = axis(call.int("axis", 0), x.shape().rank())?;
    let ids = match import.known(&call.input(1)) {
        Some(ids) => {
            let data = places(&ids, x.dim(along))?.into_iter().map(|place| place as f64).collect();
            import.indices(&Value::Constant(Constant { data, ..ids }))?
        }
        None => import.indices(&call.input(1))?,
    };
    one(x.gather(along, &ids))
}

/// Rows that indices of several leading dimensions select: `ids [.., k]` of `x [n₀, .., nₖ₋₁, ..]`.
struct Rows {
    /// Rows of `x`, and elements of each.
    rows: usize,
    inner: usize,
    /// Number of rows that are selected.
    count: usize,
    /// Dimensions of what is selected.
    result: Vec<usize>,
    /// Lengths of the dimensions that are indexed, and how many rows lie between their elements.
    lens: Vec<usize>,
    strides: Vec<usize>,
    /// The first row of what each group of indices selects from, by `batch_dims`.
    starts: Vec<usize>,
}

impl Rows {
    fn of(dims: &[usize], ids: &[usize], batch: i64) -> Result<Self, String> {
        let wrong = || format!("indices {ids:?} with {batch} batch dimensions of {dims:?}");
        let batch = usize::try_from(batch).map_err(|_| wrong())?;
        let (depth, outer) = ids.split_last().ok_or_else(wrong)?;
        let lead = batch.checked_add(*depth).filter(|lead| *lead <= dims.len()).ok_or_else(wrong)?;
        if batch > outer.len() || outer[..batch] != dims[..batch] {
            return Err(wrong());
        }
        let product =
            |dims: &[usize]| dims.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim)).ok_or_else(wrong);
        let (rows, count) = (product(&dims[..lead])?, product(outer)?);
        let lens = dims[batch..lead].to_vec();
        let each = product(&lens)?;
        let strides = (0..lens.len()).map(|i| product(&lens[i + 1..])).collect::<Result<_, _>>()?;
        let group = count / product(&outer[..batch])?.max(1);
        let starts = (0..folded(&[count])?).map(|i| i / group.max(1) * each).collect();
        let result = [outer, &dims[lead..]].concat();
        Ok(Self { rows, inner: product(&dims[lead..])?, count, result, lens, strides, starts })
    }

    /// The rows of indices that are known; those below 0 count from the end.
    fn known(&self, ids: &Constant) -> Result<Vec<usize>, String> {
        let depth = self.lens.len();
        let row = |i: usize| -> Result<usize, String> {
            let mut row = self.starts[i];
            for (j, &len) in self.lens.iter().enumerate() {
                let id = ids.data[i * depth + j] as i64;
                let place = axis(id, len).map_err(|_| format!("index {id} along an axis of {len}"))?;
                row += place * self.strides[j];
            }
            Ok(row)
        };
        (0..self.count).map(row).collect()
    }

    /// The rows, `u32 [count]`, of indices that are known or computed by the step.
    fn of_tensor<'a>(&self, import: &mut Import<'a>, ids: &Value<'a>) -> Result<Tensor, String> {
        if let Value::Constant(ids) = ids {
            return import.indices(&indices(&self.known(ids)?));
        }
        if self.rows > 1 << 24 {
            return Err(format!("indices of {} rows: at most 2^24 are exact", self.rows));
        }
        let ids = import.float(ids)?.reshape([self.count, self.lens.len()]);
        let mut sum = import.float(&indices(&self.starts))?;
        for (j, &len) in self.lens.iter().enumerate() {
            let id = ids.slice(1, j..j + 1).squeeze(1);
            let from_end = id.less(&id.fill_like([], 0.0)).scale(len as f32);
            sum = sum.add(&id.add(&from_end).scale(self.strides[j] as f32));
        }
        Ok(sum.cast(DType::U32))
    }
}

fn indices<'a>(list: &[usize]) -> Value<'a> {
    Value::Constant(Constant::ints(list.iter().map(|i| *i as i64)))
}

fn gather_nd<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (dims, ids) = (import.dims(&call.input(0))?, import.dims(&call.input(1))?);
    let rows = Rows::of(&dims, &ids, call.int("batch_dims", 0))?;
    if let (Value::Constant(x), Some(ids)) = (call.input(0), import.known(&call.input(1))) {
        let table = Constant { dims: vec![rows.rows, rows.inner], ..x };
        return known(Constant { dims: rows.result.clone(), ..table.take(0, &rows.known(&ids)?)? });
    }
    let result = shape(&rows.result)?;
    let selected = rows.of_tensor(import, &call.input(1))?;
    one(import.x(call, 0)?.reshape([rows.rows, rows.inner]).index_select(0, &selected).reshape(result))
}

/// `x` with rows replaced by others, in the order of the list: the last one stays. `x [n, inner]`, `source [k, inner]`.
fn replaced<'a>(
    import: &mut Import<'a>,
    call: &Call<'a>,
    [n, inner]: [usize; 2],
    places: &[usize],
) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let mut from: Vec<usize> = (0..n).collect();
    places.iter().enumerate().for_each(|(i, place)| from[*place] = n + i);
    if let (Value::Constant(x), Value::Constant(source)) = (call.input(0), call.input(2)) {
        let integer = x.integer && source.integer;
        let table =
            Constant { dims: vec![n + places.len(), inner], data: [x.data, source.data].concat(), integer };
        return known(Constant { dims, ..table.take(0, &from)? });
    }
    let (x, source) = (import.x(call, 0)?, import.x(call, 2)?);
    let result = x.shape();
    let (x, source) = (x.reshape([n, inner]), source.reshape([places.len(), inner]));
    // A piece in order, as a slice is assigned, needs no indices.
    let start = places.first().copied().unwrap_or(0);
    if places.iter().copied().eq(start..start + places.len()) {
        let end = start + places.len();
        let parts = [x.slice(0, 0..start), source, x.slice(0, end..n)];
        let parts: Vec<&Tensor> = parts.iter().filter(|part| part.dim(0) > 0).collect();
        let Some((first, rest)) = parts.split_first() else { return one(x.reshape(result)) };
        return one(if rest.is_empty() { (*first).clone() } else { first.concat(rest, 0) }.reshape(result));
    }
    let ids = import.indices(&indices(&from))?;
    one(x.concat(&[&source], 0).index_select(0, &ids).reshape(result))
}

/// The indices of a node that replaces elements, which have to be known.
fn known_indices<'a>(import: &Import<'a>, call: &Call<'a>) -> Result<Constant, String> {
    import.known(&call.input(1)).ok_or_else(|| {
        "elements are replaced only at indices that are known when the network is read; with reduction=\"add\" at any"
            .to_owned()
    })
}

fn scatter_nd<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (dims, ids) = (import.dims(&call.input(0))?, import.dims(&call.input(1))?);
    let rows = Rows::of(&dims, &ids, 0)?;
    if import.dims(&call.input(2))? != rows.result {
        return Err(format!("updates that are not {:?}", rows.result));
    }
    match &call.text("reduction", "none")[..] {
        "none" => {
            let places = rows.known(&known_indices(import, call)?)?;
            replaced(import, call, [rows.rows, rows.inner], &places)
        }
        "add" => {
            let (x, source) = (import.x(call, 0)?, import.x(call, 2)?);
            let ids = rows.of_tensor(import, &call.input(1))?;
            let ids = ids.unsqueeze(1).expand([rows.count, rows.inner]);
            let (flat, source) =
                (x.reshape([rows.rows, rows.inner]), source.reshape([rows.count, rows.inner]));
            one(flat.scatter_add(0, &ids, &source).reshape(x.shape()))
        }
        other => Err(reduction(other)),
    }
}

fn reduction(name: &str) -> String {
    format!("reduction=\"{name}\": elements are replaced (\"none\") or added (\"add\")")
}

fn scatter_elements<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let along = axis(call.int("axis", 0), dims.len())?;
    let ids_dims = import.dims(&call.input(1))?;
    match &call.text("reduction", "none")[..] {
        "none" => {
            let ids = known_indices(import, call)?;
            if ids_dims.len() != dims.len() || import.dims(&call.input(2))? != ids_dims {
                return Err(format!("indices {ids_dims:?} and updates of another shape"));
            }
            let count = folded(&dims)?;
            let within = places(&ids, dims[along])?;
            let mut to = Vec::with_capacity(within.len());
            for (i, own) in within.into_iter().enumerate() {
                let (mut rest, mut place, mut stride) = (i, 0, 1);
                for axis in (0..dims.len()).rev() {
                    let at = if axis == along { own } else { rest % ids_dims[axis] };
                    if at >= dims[axis] {
                        return Err(format!("indices {ids_dims:?} of {dims:?}"));
                    }
                    rest /= ids_dims[axis];
                    place += at * stride;
                    stride *= dims[axis];
                }
                to.push(place);
            }
            replaced(import, call, [count, 1], &to)
        }
        "add" => {
            let (x, source) = (import.x(call, 0)?, import.x(call, 2)?);
            let ids = import.indices(&call.input(1))?;
            one(x.scatter_add(along, &ids, &source))
        }
        other => Err(reduction(other)),
    }
}

fn non_zero<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = call.constant(import, 0)?;
    let places: Vec<usize> = (0..x.data.len()).filter(|&i| x.data[i] != 0.0).collect();
    let mut data = Vec::new();
    for axis in 0..x.dims.len() {
        let inner = x.dims[axis + 1..].iter().fold(1usize, |n, dim| n.saturating_mul(*dim));
        data.extend(places.iter().map(|place| (place / inner % x.dims[axis]) as f64));
    }
    known(Constant { dims: vec![x.dims.len(), places.len()], data, integer: true })
}

fn one_hot<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let depth = call.constant(import, 1)?.single().ok_or("one depth is needed")?;
    let values = call.constant(import, 2)?;
    let [off, on] = values.data[..] else { return Err("two numbers are needed".to_owned()) };
    let ids = import.indices(&call.input(0))?;
    let rank = ids.shape().rank();
    let y = ids.one_hot(depth as usize).scale((on - off) as f32).offset(off as f32);
    let place = axis(call.int("axis", -1), rank + 1)?;
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.insert(place, rank);
    one(y.permute(&perm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_lengths_that_overflow_are_errors() {
        let dims = [0, 1 << 40, 1 << 40];
        let text = Rows::of(&dims, &[1, 3], 0).err();
        assert_eq!(text, Some(format!("indices [1, 3] with 0 batch dimensions of {dims:?}")));
    }
}
