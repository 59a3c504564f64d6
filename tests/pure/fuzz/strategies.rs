//! The body of the fuzz target `strategies`, which a plain test runs too.

use std::collections::BTreeMap;

use wgrad::memory::{AllocError, Handle, Kind, Span};

/// Runs one operation for every four bytes, after two bytes that choose the strategy and the granule.
pub fn run(bytes: &[u8]) {
    let [kind, granule, rest @ ..] = bytes else { return };
    let kind = Kind::ALL[usize::from(*kind) % Kind::ALL.len()];
    let granule = if kind == Kind::Caching { 512 } else { 1 << (granule % 10) };
    let pages = [64 * granule, 1000 * granule];
    let mut strategy = kind.build(granule).expect("a power of two");
    for (page, &bytes) in pages.iter().enumerate() {
        strategy.add_page(page as u32, bytes, bytes).expect("a fresh page");
    }
    let fresh = strategy.free_spans();
    let mut foreign = kind.build(granule).expect("a power of two");
    foreign.add_page(0, 1 << 20, 1).expect("a fresh page");
    let foreign = foreign.alloc(1, 1).expect("room").handle;
    let mut live: Vec<(Span, Handle)> = Vec::new();
    let mut freed = None;
    for op in rest.chunks_exact(4) {
        let number = u64::from(u16::from_le_bytes([op[1], op[2]]));
        match op[0] % 8 {
            0..4 => {
                // Sizes up to the largest 64-bit numbers: the last byte shifts.
                let size = if op[0] < 128 { number } else { number << (op[3] % 64) };
                let align = 1 << (op[3] % 17);
                match strategy.alloc(size, align) {
                    Ok(done) => {
                        assert!(done.span.size >= size.max(1) && done.span.offset % align == 0, "{done:?}");
                        live.push((done.span, done.handle));
                    }
                    Err(AllocError::NoSpace { .. }) => {}
                    Err(other) => panic!("{kind:?}: {other}"),
                }
            }
            4..7 if !live.is_empty() => {
                let (span, handle) = live.swap_remove(number as usize % live.len());
                assert_eq!(strategy.free(handle), Ok(span), "{kind:?}");
                freed = Some(handle);
            }
            _ => {
                let again = freed.map(|handle| strategy.free(handle));
                assert!(!matches!(again, Some(Ok(_))), "{kind:?}: {again:?}");
                let foreign = strategy.free(foreign);
                assert!(matches!(foreign, Err(AllocError::ForeignHandle { .. })), "{kind:?}: {foreign:?}");
            }
        }
        check(kind, &pages, &live, &strategy.free_spans());
    }
    for (span, handle) in live.drain(..) {
        assert_eq!(strategy.free(handle), Ok(span), "{kind:?}");
    }
    assert_eq!(strategy.free_spans(), fresh, "{kind:?}: not back to one hole per page");
    for page in 0..pages.len() as u32 {
        strategy.remove_page(page).expect("idle");
    }
}

fn check(kind: Kind, pages: &[u64], live: &[(Span, Handle)], holes: &[Span]) {
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    let mut tiles: Vec<Span> = live.iter().map(|(span, _)| *span).chain(holes.iter().copied()).collect();
    tiles.sort_unstable();
    for tile in tiles {
        let end = ends.entry(tile.page).or_default();
        // A bump arena's only hole is at its top.
        assert!(
            tile.offset == *end || (kind == Kind::Bump && tile.offset > *end),
            "{kind:?}: {tile:?} from {end}"
        );
        *end = tile.offset + tile.size;
    }
    for (page, &bytes) in pages.iter().enumerate() {
        let end = ends.get(&(page as u32)).copied().unwrap_or(0);
        assert!(end == bytes || (kind == Kind::Bump && end <= bytes), "{kind:?}: page {page} ends at {end}");
    }
}
