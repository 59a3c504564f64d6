//! Files for data that can be recomputed. Each has a checksum over all of its contents and names its maker. A
//! file that is damaged, or of another driver or version, counts as missing.

use std::path::Path;

use crate::files;

/// Returns the adapter of a device, its driver and this crate's version: a file is valid for those alone.
pub(super) fn maker(info: &wgpu::AdapterInfo) -> String {
    format!("{} · {} · {} · wgrad {}", info.name, info.driver, info.driver_info, env!("CARGO_PKG_VERSION"))
}

/// Writes a file whole or not at all, even if others write it at the same time. Creates its folder if there
/// is none.
pub(super) fn write(path: &Path, file: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    files::write(path, file)
}

/// Returns the contents of a file: `magic` (what the file is and its format version), checksum of the rest,
/// length of the maker's name, the name, the data.
pub(super) fn pack(magic: &[u8], data: &[u8], maker: &str) -> Vec<u8> {
    let rest = [&(maker.len() as u64).to_le_bytes(), maker.as_bytes(), data].concat();
    [magic, &checksum(&rest).to_le_bytes(), &rest].concat()
}

/// Returns the data of a file that is undamaged and of this maker.
pub(super) fn unpack<'f>(magic: &[u8], file: &'f [u8], maker: &str) -> Option<&'f [u8]> {
    let (sum, rest) = file.strip_prefix(magic)?.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*sum) != checksum(rest) {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*length) == maker.len() as u64).then_some(())?;
    rest.strip_prefix(maker.as_bytes())
}

/// Returns the FNV-1a hash.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    const MAGIC: &[u8] = b"a file 1\n";

    fn pack(data: &[u8], maker: &str) -> Vec<u8> {
        super::pack(MAGIC, data, maker)
    }

    fn unpack<'f>(file: &'f [u8], maker: &str) -> Option<&'f [u8]> {
        super::unpack(MAGIC, file, maker)
    }

    #[test]
    fn only_undamaged_files_of_the_same_driver_are_used() {
        let file = pack(b"pipelines", "driver 1");
        assert_eq!(unpack(&file, "driver 1"), Some(&b"pipelines"[..]));
        assert_eq!(unpack(&file, "driver 2"), None);
        assert_eq!(unpack(&file, "driver"), None);
        assert_eq!(unpack(&pack(b"", "driver 1"), "driver 1"), Some(&b""[..]));
        assert_eq!(super::unpack(b"another 1\n", &file, "driver 1"), None);
        for end in 0..file.len() {
            assert_eq!(unpack(&file[..end], "driver 1"), None, "cut after {end} bytes");
            let mut damaged = file.clone();
            damaged[end] ^= 0x10;
            assert_eq!(unpack(&damaged, "driver 1"), None, "damaged at {end}");
        }
    }
}
