// The part of `range`, first and end, that its piece of this number covers, of `size` elements or what is left.
fn piece_of(range: vec2<u32>, number: u32, size: u32) -> vec2<u32> {
    let first = min(range.x + number * size, range.y);
    return vec2(first, first + min(size, range.y - first));
}
