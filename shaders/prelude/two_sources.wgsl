// A convolution reads two tensors as if they were joined along their channels; the first has p.first of them.
@group(0) @binding(5) var<storage, read_write> src2: array<f32>;
struct Bases {
    first: vec4<u32>,
    second: vec4<u32>,
}
// Where four images begin.
fn bases_of(image: vec4<u32>, group: u32) -> Bases {
    let plane = p.y.src * p.x.src;
    return Bases(image * (p.first * plane), image * ((p.kc - p.first) * plane));
}
// Four pixels of a channel.
fn source(bases: Bases, channel: u32, pixel: vec4<u32>, terms: Terms) -> vec4<f32> {
    let plane = p.y.src * p.x.src;
    if (channel < p.first) {
        let at = bases.first + (pixel + channel * plane);
        return image_at(at);
    }
    let at = bases.second + (pixel + (channel - p.first) * plane);
    return vec4(src2[at.x], src2[at.y], src2[at.z], src2[at.w]);
}
