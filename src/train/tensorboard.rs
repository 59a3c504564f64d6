//! TensorBoard's event files: records with checksums (TFRecord), each an `Event` message of TensorFlow's
//! `event.proto`.

/// Returns a record: length, checksum of the length, data, checksum of the data; little-endian.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend(length);
    out.extend(masked(crc32c(&length)).to_le_bytes());
    out.extend(data);
    out.extend(masked(crc32c(data)).to_le_bytes());
    out
}

/// Returns the record of an event: scalars by tag at a step or, without any, the header that begins a file.
pub(super) fn event(wall_time: f64, step: u64, scalars: &[(&str, f64)]) -> Vec<u8> {
    let mut message = Vec::new();
    // double wall_time = 1
    message.push(1 << 3 | 1);
    message.extend(wall_time.to_le_bytes());
    // int64 step = 2
    message.push(2 << 3);
    varint(&mut message, step);
    if scalars.is_empty() {
        // string file_version = 3
        field(&mut message, 3, b"brain.Event:2");
    } else {
        let mut summary = Vec::new();
        for (tag, number) in scalars {
            // string tag = 1, float simple_value = 2
            let mut value = Vec::new();
            field(&mut value, 1, tag.as_bytes());
            value.push(2 << 3 | 5);
            value.extend((*number as f32).to_le_bytes());
            field(&mut summary, 1, &value);
        }
        // Summary summary = 5
        field(&mut message, 5, &summary);
    }
    record(&message)
}

/// Appends a field of bytes: a string or a message.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Applies TFRecord's mask: a checksum of data that contain checksums would be weak.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the CRC-32C (Castagnoli), bit by bit: records are short.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn event_has_the_bytes_of_its_message() {
        let bytes = event(1.5, 300, &[("loss", 0.25)]);
        let (head, rest) = bytes.split_at(12);
        assert_eq!(u64::from_le_bytes(head[..8].try_into().unwrap()) as usize + 4, rest.len());
        let message = &rest[..rest.len() - 4];
        let expected = [
            &[9][..],
            &1.5f64.to_le_bytes(),
            &[16, 0xac, 2, 42, 13, 10, 11, 10, 4],
            b"loss",
            &[21],
            &0.25f32.to_le_bytes(),
        ];
        assert_eq!(message, expected.concat());
        assert_eq!(rest[message.len()..], masked(crc32c(message)).to_le_bytes());
        assert!(event(0.0, 0, &[]).windows(13).any(|w| w == b"brain.Event:2"));
    }
}
