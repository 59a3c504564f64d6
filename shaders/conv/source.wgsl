// How a convolution reads its image: in which type, through a batch norm, from one tensor or from two.
#if NORMED
#import common/elem
#import common/activation
// A convolution reads a batch norm of its source, f(gamma (x - mean) deviation + beta): no tensor holds it.
override ACTIVATION: u32 = 0u;
@group(0) @binding(5) var<storage, read_write> mean: array<f32>;
@group(0) @binding(6) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(7) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(8) var<storage, read_write> beta: array<f32>;

struct Terms {
    mean: vec4<f32>,
    scale: vec4<f32>,
    beta: vec4<f32>,
}
fn terms_of(channel: u32) -> Terms {
    let scale = deviation[channel] * gamma[channel];
    return Terms(vec4(mean[channel]), vec4(scale), vec4(beta[channel]));
}
// Of four elements in channels of their own.
fn terms_of_each(c: vec4<u32>) -> Terms {
    let inverse = vec4(deviation[c.x], deviation[c.y], deviation[c.z], deviation[c.w]);
    return Terms(
        vec4(mean[c.x], mean[c.y], mean[c.z], mean[c.w]),
        inverse * vec4(gamma[c.x], gamma[c.y], gamma[c.z], gamma[c.w]),
        vec4(beta[c.x], beta[c.y], beta[c.z], beta[c.w]),
    );
}
fn read(v: vec4<f32>, terms: Terms) -> vec4<f32> {
    return activated(norm(v, terms.mean, terms.scale, terms.beta), ACTIVATION);
}
#else
// A convolution reads its source as it is.
struct Terms {
    none: f32,
}
fn terms_of(channel: u32) -> Terms { return Terms(); }
fn terms_of_each(channel: vec4<u32>) -> Terms { return Terms(); }
fn read(v: vec4<f32>, terms: Terms) -> vec4<f32> { return v; }
#endif

#if IMAGE_COOPERATIVE
// A convolution's image in the 16 bits that are multiplied.
@group(0) @binding(1) var<storage, read_write> src: array<f16>;

fn image_at(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(vec4(src[at.x], src[at.y], src[at.z], src[at.w]));
}
#elif IMAGE_F16 || IMAGE_BF16
#import common/half
// A convolution's image in 16 bits, two to a word.
@group(0) @binding(1) var<storage, read_write> src: array<u32>;

fn image_at(at: vec4<u32>) -> vec4<f32> {
    return one_of_two(vec4(src[at.x >> 1u], src[at.y >> 1u], src[at.z >> 1u], src[at.w >> 1u]), at);
}
#else
// A convolution's image in 32 bits.
@group(0) @binding(1) var<storage, read_write> src: array<f32>;

fn image_at(at: vec4<u32>) -> vec4<f32> { return vec4(src[at.x], src[at.y], src[at.z], src[at.w]); }
#endif
#if !WEIGHT

#if TWO_SOURCES
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
#else
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
#endif
#endif
