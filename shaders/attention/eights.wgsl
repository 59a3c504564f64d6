// Part of a tile of scores on CPU adapters: 8 of the other rows, one in each lane of a subgroup, against the thread's own
// four rows. Software adapters gather every load lane by lane, so loads decide the speed: each lane loads another row, and
// broadcasts share it. No broadcast is inside a branch: all lanes execute it.
const LANES = 8u;

// s_j: other row j against own rows x, y, z, w.
struct Part {
    s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>,
    s4: vec4<f32>, s5: vec4<f32>, s6: vec4<f32>, s7: vec4<f32>,
}

// Adds the products of a vec4 of each row; `own` is transposed: r0 holds the first elements of the own rows.
fn part_dots(t: Part, load: vec4<f32>, own: Quads) -> Part {
    return Part(
        dot4(subgroupBroadcast(load, 0u), own, t.s0), dot4(subgroupBroadcast(load, 1u), own, t.s1),
        dot4(subgroupBroadcast(load, 2u), own, t.s2), dot4(subgroupBroadcast(load, 3u), own, t.s3),
        dot4(subgroupBroadcast(load, 4u), own, t.s4), dot4(subgroupBroadcast(load, 5u), own, t.s5),
        dot4(subgroupBroadcast(load, 6u), own, t.s6), dot4(subgroupBroadcast(load, 7u), own, t.s7),
    );
}

// Adds the other rows, weighted by the elements of the part.
fn part_sums(t: Part, load: vec4<f32>, start: Quads) -> Quads {
    var sum = start;
    sum = spread(t.s0, subgroupBroadcast(load, 0u), sum);
    sum = spread(t.s1, subgroupBroadcast(load, 1u), sum);
    sum = spread(t.s2, subgroupBroadcast(load, 2u), sum);
    sum = spread(t.s3, subgroupBroadcast(load, 3u), sum);
    sum = spread(t.s4, subgroupBroadcast(load, 4u), sum);
    sum = spread(t.s5, subgroupBroadcast(load, 5u), sum);
    sum = spread(t.s6, subgroupBroadcast(load, 6u), sum);
    sum = spread(t.s7, subgroupBroadcast(load, 7u), sum);
    return sum;
}

// Scales the scores and hides those of other rows outside of `start` .. `end`; `first` is the number of other row 0.
fn part_seen(t: Part, first: u32, start: vec4<u32>, end: vec4<u32>) -> Part {
    return Part(
        hide(t.s0, first + 0u, start, end), hide(t.s1, first + 1u, start, end),
        hide(t.s2, first + 2u, start, end), hide(t.s3, first + 3u, start, end),
        hide(t.s4, first + 4u, start, end), hide(t.s5, first + 5u, start, end),
        hide(t.s6, first + 6u, start, end), hide(t.s7, first + 7u, start, end),
    );
}

fn part_top(t: Part, start: vec4<f32>) -> vec4<f32> {
    var top = start;
    top = max(top, t.s0); top = max(top, t.s1); top = max(top, t.s2); top = max(top, t.s3);
    top = max(top, t.s4); top = max(top, t.s5); top = max(top, t.s6); top = max(top, t.s7);
    return top;
}

fn part_total(t: Part, start: vec4<f32>) -> vec4<f32> {
    var sum = start;
    sum += t.s0; sum += t.s1; sum += t.s2; sum += t.s3;
    sum += t.s4; sum += t.s5; sum += t.s6; sum += t.s7;
    return sum;
}

// e^(score - top), with one `top` per own row.
fn part_weights(t: Part, top: vec4<f32>) -> Part {
    return Part(
        weight(t.s0, top), weight(t.s1, top), weight(t.s2, top), weight(t.s3, top),
        weight(t.s4, top), weight(t.s5, top), weight(t.s6, top), weight(t.s7, top),
    );
}

// The same with one `top` per other row.
fn part_weights_by(t: Part, top: f32) -> Part {
    return Part(
        weight(t.s0, vec4(subgroupBroadcast(top, 0u))), weight(t.s1, vec4(subgroupBroadcast(top, 1u))),
        weight(t.s2, vec4(subgroupBroadcast(top, 2u))), weight(t.s3, vec4(subgroupBroadcast(top, 3u))),
        weight(t.s4, vec4(subgroupBroadcast(top, 4u))), weight(t.s5, vec4(subgroupBroadcast(top, 5u))),
        weight(t.s6, vec4(subgroupBroadcast(top, 6u))), weight(t.s7, vec4(subgroupBroadcast(top, 7u))),
    );
}

// weight (dweight - mean) scale, with one `mean` per own row.
fn part_slopes(t: Part, d: Part, mean: vec4<f32>, scale: vec4<f32>) -> Part {
    return Part(
        t.s0 * (d.s0 - mean) * scale, t.s1 * (d.s1 - mean) * scale,
        t.s2 * (d.s2 - mean) * scale, t.s3 * (d.s3 - mean) * scale,
        t.s4 * (d.s4 - mean) * scale, t.s5 * (d.s5 - mean) * scale,
        t.s6 * (d.s6 - mean) * scale, t.s7 * (d.s7 - mean) * scale,
    );
}

// The same with one `mean` per other row.
fn part_slopes_by(t: Part, d: Part, mean: f32, scale: f32) -> Part {
    return Part(
        t.s0 * (d.s0 - vec4(subgroupBroadcast(mean, 0u))) * scale,
        t.s1 * (d.s1 - vec4(subgroupBroadcast(mean, 1u))) * scale,
        t.s2 * (d.s2 - vec4(subgroupBroadcast(mean, 2u))) * scale,
        t.s3 * (d.s3 - vec4(subgroupBroadcast(mean, 3u))) * scale,
        t.s4 * (d.s4 - vec4(subgroupBroadcast(mean, 4u))) * scale,
        t.s5 * (d.s5 - vec4(subgroupBroadcast(mean, 5u))) * scale,
        t.s6 * (d.s6 - vec4(subgroupBroadcast(mean, 6u))) * scale,
        t.s7 * (d.s7 - vec4(subgroupBroadcast(mean, 7u))) * scale,
    );
}

// Dropout where the own rows are queries and the other rows are keys from vec4 `quad` on.
fn part_kept(t: Part, row: vec4<u32>, quad: u32) -> Part {
    let q0 = transposed(
        kept(row.x, quad + 0u), kept(row.y, quad + 0u), kept(row.z, quad + 0u), kept(row.w, quad + 0u),
    );
    let q1 = transposed(
        kept(row.x, quad + 1u), kept(row.y, quad + 1u), kept(row.z, quad + 1u), kept(row.w, quad + 1u),
    );
    return Part(
        t.s0 * q0.r0, t.s1 * q0.r1, t.s2 * q0.r2, t.s3 * q0.r3,
        t.s4 * q1.r0, t.s5 * q1.r1, t.s6 * q1.r2, t.s7 * q1.r3,
    );
}

// Dropout where the own rows are the keys of a vec4 and the other rows are queries from `row` on.
fn part_kept_by(t: Part, row: u32, quad: u32) -> Part {
    return Part(
        t.s0 * kept(row + 0u, quad), t.s1 * kept(row + 1u, quad),
        t.s2 * kept(row + 2u, quad), t.s3 * kept(row + 3u, quad),
        t.s4 * kept(row + 4u, quad), t.s5 * kept(row + 5u, quad),
        t.s6 * kept(row + 6u, quad), t.s7 * kept(row + 7u, quad),
    );
}
