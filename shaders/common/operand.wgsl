// The first operand x and the result y of an elementwise kernel.
#if IN_PLACE
// y overwrites x: one binding, because two writable bindings must not overlap.
@group(0) @binding(2) var<storage, read_write> y: array<InMemory>;
fn x_at(i: u32) -> Elem { return from_memory(y[i]); }
fn set_y(i: u32, to: Elem) { y[i] = to_memory(to); }
#elif HELD_X
#import common/held
// x as it was stored, and y in memory of its own.
@group(0) @binding(2) var<storage, read_write> y: array<InMemory>;
fn x_at(i: u32) -> Elem { return held_at(i); }
fn set_y(i: u32, to: Elem) { y[i] = to_memory(to); }
#else
// x and y in memory of their own.
@group(0) @binding(1) var<storage, read_write> x: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> y: array<InMemory>;
fn x_at(i: u32) -> Elem { return from_memory(x[i]); }
fn set_y(i: u32, to: Elem) { y[i] = to_memory(to); }
#endif
