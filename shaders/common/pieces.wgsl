// The part of `range`, first and end, that its piece of this number covers, of `size` elements or what is left.
fn piece_of(range: vec2<u32>, number: u32, size: u32) -> vec2<u32> {
    let first = min(range.x + number * size, range.y);
    return vec2(first, first + min(size, range.y - first));
}

// Rows of a piece are summed in blocks, then rows: one long sum would lose the digits of its terms.
const BLOCK = 64u;

fn block_end(first: u32, end: u32) -> u32 { return first + min(BLOCK, end - first); }
