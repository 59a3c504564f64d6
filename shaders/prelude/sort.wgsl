// One pass of a stable radix sort: pairs are put in order of one digit of their first number. They are cut into blocks,
// a thread for each; `counts` [blocks, digits] says how many of a block have each digit, then where the next goes.
struct Params {
    threads_x: u32,
    n: u32,
    blocks: u32,
    block: u32, // pairs in each
    digits: u32,
    shift: u32,
}
@group(0) @binding(0) var<uniform> p: Params;

fn digit_of(key: u32) -> u32 {
    return (key >> p.shift) & (p.digits - 1u);
}
