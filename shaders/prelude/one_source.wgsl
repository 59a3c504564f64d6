// A convolution reads one tensor.
struct Bases {
    at: vec4<u32>,
}
// Where four images begin.
fn bases_of(image: vec4<u32>, group: u32) -> Bases {
    return Bases((image * p.groups + group) * p.kc * p.y.src * p.x.src);
}
// Four pixels of a channel of the group.
fn source(bases: Bases, channel: u32, pixel: vec4<u32>, terms: Terms) -> vec4<f32> {
    let at = bases.at + (pixel + channel * (p.y.src * p.x.src));
    return read(image_at(at), terms);
}
