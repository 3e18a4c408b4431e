//! What the head of a payload says of it: pixels of an image, pages of a document, length of a sound or a film.
//!
//! Reads headers only, never content, and decodes no more base64 than they take. Hostile bytes give `None` or a
//! wrong figure, never a panic, nor work beyond one pass.

/// Decodes a base64 text up to `most` bytes, in either alphabet, past white space and a `data:…;base64,` before it;
/// ends at any other character.
#[must_use]
pub fn decode_base64(text: &[u8], most: usize) -> Vec<u8> {
    let text = after_data_prefix(text);
    let mut decoded = Vec::with_capacity(most.min(text.len() / 4 * 3 + 3));
    let (mut bits, mut held) = (0_u32, 0_u32);
    for &letter in text {
        if decoded.len() == most {
            break;
        }
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ if letter.is_ascii_whitespace() => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
        }
    }
    decoded
}

/// How many bytes a base64 text decodes to, without decoding it.
#[must_use]
pub fn decoded_length(text: &[u8]) -> u64 {
    let text = after_data_prefix(text);
    text.iter().filter(|letter| !letter.is_ascii_whitespace() && **letter != b'=').count() as u64 * 3 / 4
}

fn after_data_prefix(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_start();
    if !text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:")) {
        return text;
    }
    let comma = text.iter().take(1_024).position(|&letter| letter == b',');
    comma.and_then(|comma| text.get(comma + 1..)).unwrap_or_default()
}

/// Width and height in pixels of an image in base64; decodes 256 KiB at most, and that only of a JPEG whose size
/// comes after long metadata.
#[must_use]
pub fn image_size_in_base64(text: &[u8]) -> Option<(u32, u32)> {
    for most in [1 << 10, 1 << 14, 1 << 18] {
        let head = decode_base64(text, most);
        let size = image_size(&head);
        if size.is_some() || head.len() < most || !head.starts_with(b"\xFF\xD8") {
            return size;
        }
    }
    None
}

/// Width and height in pixels from the head of a PNG, JPEG, GIF or WebP; none of them zero.
#[must_use]
pub fn image_size(head: &[u8]) -> Option<(u32, u32)> {
    let (width, height) = if head.starts_with(b"\x89PNG\r\n\x1A\n") {
        let header = at::<4>(head, 12)? == *b"IHDR";
        header.then_some(())?;
        (u32::from_be_bytes(at(head, 16)?), u32::from_be_bytes(at(head, 20)?))
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        (little(at::<2>(head, 6)?), little(at::<2>(head, 8)?))
    } else if head.starts_with(b"RIFF") && at(head, 8)? == *b"WEBP" {
        webp_size(head)?
    } else if head.starts_with(b"\xFF\xD8") {
        jpeg_size(head)?
    } else {
        return None;
    };
    (width > 0 && height > 0).then_some((width, height))
}

fn webp_size(head: &[u8]) -> Option<(u32, u32)> {
    match &at(head, 12)? {
        b"VP8 " if at(head, 23)? == [0x9D, 0x01, 0x2A] => {
            Some((little(at::<2>(head, 26)?) & 0x3FFF, little(at::<2>(head, 28)?) & 0x3FFF))
        }
        b"VP8L" if at(head, 20)? == [0x2F] => {
            let bits = little(at::<4>(head, 21)?);
            Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        }
        b"VP8X" => Some((little(at::<3>(head, 24)?) + 1, little(at::<3>(head, 27)?) + 1)),
        _ => None,
    }
}

fn jpeg_size(head: &[u8]) -> Option<(u32, u32)> {
    let mut rest = head.get(2..)?;
    loop {
        let [0xFF, marker, tail @ ..] = rest else { return None };
        match marker {
            0xFF => rest = rest.get(1..)?,
            0x01 | 0xD0..=0xD8 => rest = tail,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                let (height, width) = (u16::from_be_bytes(at(tail, 3)?), u16::from_be_bytes(at(tail, 5)?));
                return Some((width.into(), height.into()));
            }
            // What follows a start of scan is no segment.
            0x00 | 0xD9 | 0xDA => return None,
            _ => rest = tail.get(usize::from(u16::from_be_bytes(at(tail, 0)?)).max(2)..)?,
        }
    }
}

/// How many pages a PDF has: the most of its page objects, the counts of its page trees, and what a linearized file
/// says of itself.
///
/// Where all that is compressed, the streams that have a length and a filter but no type: one for each page, as a
/// rule, and a few for fonts. `None` without any, or of what is no PDF.
#[must_use]
pub fn pdf_pages(bytes: &[u8]) -> Option<u32> {
    bytes.get(..1_024).unwrap_or(bytes).windows(5).find(|window| window == b"%PDF-")?;
    let (mut pages, mut most, mut streams) = (0_u32, 0_u32, 0_u32);
    let (mut tree, mut linear, mut bare, mut said) = (false, false, true, 0_u32);
    let mut key: &[u8] = b"";
    // Each name of a PDF begins with a slash.
    for piece in bytes.split(|&byte| byte == b'/') {
        let end = piece.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(piece.len());
        let (name, tail) = piece.split_at_checked(end)?;
        match name {
            b"Page" if key == b"Type" => pages = pages.saturating_add(1),
            b"Pages" if key == b"Type" => tree = true,
            b"Linearized" => linear = true,
            b"Count" if !linear => said = number(tail),
            b"N" if linear => said = number(tail),
            b"" | b"Length" | b"Filter" | b"FlateDecode" => {}
            _ => bare = false,
        }
        if bare && tail.get(..32).unwrap_or(tail).windows(6).any(|window| window == b"stream") {
            (streams, bare) = (streams.saturating_add(1), false);
        }
        if tail.windows(6).any(|window| window == b"endobj") {
            most = most.max(if tree || linear { said } else { 0 });
            (tree, linear, bare, said) = (false, false, true, 0);
        }
        key = piece.trim_ascii_end();
    }
    [pages.max(most), streams].into_iter().find(|&pages| pages > 0)
}

/// The whole number a text begins with, past white space; zero if there is none.
fn number(text: &[u8]) -> u32 {
    let digits = text.trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u32, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
}

/// Milliseconds of a WAV, MP3 or MP4 file that is `length` bytes long, from what there is of its bytes.
///
/// An MP3 is taken to keep the rate of its first frame.
#[must_use]
pub fn milliseconds(bytes: &[u8], length: u64) -> Option<u64> {
    if bytes.starts_with(b"RIFF") && at(bytes, 8)? == *b"WAVE" {
        wav_milliseconds(bytes, length)
    } else if at(bytes, 4) == Some(*b"ftyp") {
        mp4_milliseconds(bytes)
    } else {
        mp3_milliseconds(bytes, length)
    }
}

fn wav_milliseconds(bytes: &[u8], length: u64) -> Option<u64> {
    let (mut start, mut bytes_per_second) = (12_usize, 0);
    loop {
        let size = little(at::<4>(bytes, start.checked_add(4)?)?);
        let body = start.checked_add(8)?;
        match &at(bytes, start)? {
            b"fmt " => bytes_per_second = u64::from(little(at::<4>(bytes, body.checked_add(8)?)?)),
            b"data" => {
                // A recorder that streams cannot know the size and writes the greatest.
                let size = u64::from(size).min(length.saturating_sub(body as u64));
                return (size * 1_000).checked_div(bytes_per_second);
            }
            _ => {}
        }
        start = body.checked_add(size as usize)?.checked_add(size as usize & 1)?;
    }
}

fn mp4_milliseconds(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(bytes.windows(4).position(|window| window == b"mvhd")?..)?;
    let (units_per_second, units) = if at(header, 4)? == [1] {
        (u32::from_be_bytes(at(header, 24)?), u64::from_be_bytes(at(header, 28)?))
    } else {
        (u32::from_be_bytes(at(header, 16)?), u64::from(u32::from_be_bytes(at(header, 20)?)))
    };
    units.checked_mul(1_000)?.checked_div(u64::from(units_per_second)).filter(|&milliseconds| milliseconds > 0)
}

fn mp3_milliseconds(bytes: &[u8], length: u64) -> Option<u64> {
    const KILOBITS: [u64; 14] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    const KILOBITS_OF_HALF_RATE: [u64; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
    let mut start = 0;
    if bytes.starts_with(b"ID3") {
        let size: [u8; 4] = at(bytes, 6)?;
        start = 10 + size.iter().fold(0, |size, byte| size << 7 | usize::from(byte & 0x7F));
        start += bytes.get(start..)?.iter().take_while(|&&byte| byte == 0).count();
    }
    let [sync, kind, rate] = at(bytes, start)?;
    if sync != 0xFF || kind & 0xE6 != 0xE2 {
        return None;
    }
    let table = if kind & 0x18 == 0x18 { KILOBITS } else { KILOBITS_OF_HALF_RATE };
    let kilobits = table.get(usize::from(rate >> 4).checked_sub(1)?)?;
    Some(length.saturating_sub(start as u64).saturating_mul(8) / kilobits)
}

fn at<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
    bytes.get(start..)?.first_chunk().copied()
}

fn little<const N: usize>(bytes: [u8; N]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}
