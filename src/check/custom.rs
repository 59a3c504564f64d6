//! A kernel of a model's own, for random networks.

use super::network::Maker;

/// The kernel has no gradient, so its result is detached.
pub(super) fn custom_kernel(maker: &mut Maker) {
    const SOFTSIGN: &str = "@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_of(id);
    if (i < y_len) { y[i] = x[i] / (1.0 + abs(x[i])); }
}";
    let x = maker.matrix();
    let softsign = |x: &[&[f64]]| x[0].iter().map(|x| x / (1.0 + x.abs())).collect();
    let call = x.trace().kernel("softsign", SOFTSIGN).input("x", &x).reference(softsign);
    maker.keep(x.sub(&call.result(x.shape()).detach().scale(0.5)));
}
