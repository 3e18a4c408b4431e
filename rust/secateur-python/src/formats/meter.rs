//! What texts, values and media of messages cost, by a profile and the rules of a model.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use secateur_core::media::{Detail, MediaRule};
use secateur_core::{Estimator, ScriptCounts, Text, payload};

use super::{Cost, Problem, get, list, string};
use crate::memory::Memory;
use crate::text::with_text;

/// Deeper values are refused, before the stack runs out.
const DEEPEST: usize = 200;
/// Kinds of blocks that hold media, where the kind stands under "type"; as in python/secateur/formats/wire.py.
const MEDIA_KINDS: [&str; 13] = [
    "image",
    "image_url",
    "input_image",
    "document",
    "document_url",
    "file",
    "file_url",
    "input_file",
    "audio",
    "audio_url",
    "input_audio",
    "video",
    "video_url",
];
/// Keys of blocks and parts that hold media, where the kind is a key.
const MEDIA_KEYS: [&str; 7] = ["inlineData", "inline_data", "fileData", "file_data", "image", "document", "video"];
/// Longer documents are not searched for their pages, which takes 1 ms a MiB.
const SEARCHED_DOCUMENT: usize = 4 << 20;

/// Counts as a request to a model would be counted.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    /// None for the published script rule.
    pub(crate) estimator: Option<(Estimator, Arc<Memory>)>,
    pub(crate) media: MediaRule,
    /// What a provider adds to each message, in tokens: role, separators.
    pub(crate) message: u32,
    /// What it adds to each call, in tokens.
    pub(crate) call: u32,
    /// What it adds to each argument of a call, in tokens.
    pub(crate) argument: u32,
    /// What it adds to each result, in tokens.
    pub(crate) result: u32,
}

impl Default for Meter {
    fn default() -> Self {
        let media = MediaRule::of_model("");
        Self { estimator: None, media, message: 4, call: 0, argument: 0, result: 0 }
    }
}

/// What a value says, while it is gone through.
enum Tally {
    Script(ScriptCounts),
    /// Written out, to be read at once.
    Written(String),
}

impl Tally {
    fn text(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        match self {
            Self::Script(counts) => {
                let more = with_text(text, ScriptCounts::of)?;
                counts.ascii += more.ascii;
                counts.cjk += more.cjk;
                counts.other += more.other;
                Ok(())
            }
            Self::Written(written) => with_text(text, |text| text.append_to(written)),
        }
    }

    fn mark(&mut self, mark: &str) {
        match self {
            Self::Script(counts) => counts.ascii += mark.len(),
            Self::Written(written) => written.push_str(mark),
        }
    }

    fn quoted(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        self.mark("\"");
        self.text(text)?;
        self.mark("\"");
        Ok(())
    }
}

fn capped(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

impl Meter {
    /// Tokens of a text, or of what is sent in its place.
    pub(super) fn text(&self, value: &Bound<'_, PyAny>) -> Result<u32, Problem> {
        match value.cast::<PyString>() {
            Ok(text) => Ok(self.remembered(text)?),
            Err(_) => Ok(self.cost(value)?.tokens),
        }
    }

    /// What a string costs: looked up where reading it takes longer.
    fn remembered(&self, text: &Bound<'_, PyString>) -> PyResult<u32> {
        let Some((estimator, memory)) = &self.estimator else { return with_text(text, |text| self.count(text)) };
        let key = Memory::key(text)?;
        if let Some(tokens) = key.and_then(|key| memory.get(key)) {
            return Ok(capped(tokens));
        }
        let tokens = with_text(text, |text| estimator.count(text))?;
        if let Some(key) = key {
            memory.put(key, tokens);
        }
        Ok(capped(tokens))
    }

    fn count(&self, text: Text<'_>) -> u32 {
        match &self.estimator {
            Some((estimator, _)) => capped(estimator.count(text)),
            None => capped(ScriptCounts::of(text).tokens() as u64),
        }
    }

    /// What a value costs: a string as it is, anything else as the JSON that it would be sent as.
    pub(super) fn cost(&self, value: &Bound<'_, PyAny>) -> Result<Cost, Problem> {
        if value.is_instance_of::<PyString>() {
            return Ok(Cost::of(self.text(value)?, true));
        }
        let mut tally = if self.estimator.is_some() {
            Tally::Written(String::new())
        } else {
            Tally::Script(ScriptCounts::default())
        };
        let mut media = 0;
        self.json(value, &mut tally, &mut media, 0)?;
        let tokens = match tally {
            Tally::Script(counts) => capped(counts.tokens() as u64),
            Tally::Written(written) => self.count(Text::from(written.as_str())),
        };
        // What is nothing but text and numbers can be written out and cut; an image cannot.
        Ok(Cost::of(tokens.saturating_add(media), media == 0))
    }

    /// What the arguments of a call cost beside their text.
    pub(super) fn arguments(&self, value: &Bound<'_, PyAny>) -> u32 {
        let count = value.cast::<PyDict>().map_or(1, PyDictMethods::len);
        self.argument.saturating_mul(count as u32)
    }

    /// Writes a value as JSON, and adds up the payloads in it as media.
    fn json(&self, value: &Bound<'_, PyAny>, tally: &mut Tally, media: &mut u32, depth: usize) -> Result<(), Problem> {
        if depth > DEEPEST {
            return Err(Problem::Said("is nested too deeply".to_owned()));
        }
        if let Ok(text) = value.cast::<PyString>() {
            tally.quoted(text)?;
        } else if let Some(dict) = &mapping(value)? {
            if is_media(dict)? {
                *media = media.saturating_add(self.media(dict)?);
                return Ok(());
            }
            tally.mark("{");
            // A list of its own: reading a value may run code that changes the dict.
            for item in dict.items() {
                let (key, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                self.json(&key, tally, media, depth + 1)?;
                tally.mark(": ");
                self.json(&value, tally, media, depth + 1)?;
                tally.mark(", ");
            }
            tally.mark("}");
        } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            tally.mark("[");
            for element in value.try_iter()? {
                self.json(&element?, tally, media, depth + 1)?;
                tally.mark(", ");
            }
            tally.mark("]");
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            *media = media.saturating_add(self.payload(Payload::Raw(bytes.as_bytes()), Sort::Image, Detail::Auto));
        } else if value.is_none() || value.is_instance_of::<PyBool>() {
            tally.mark("false");
        } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
            tally.text(&written(value)?)?;
        } else {
            tally.quoted(&written(value)?)?;
        }
        Ok(())
    }

    /// What a content block costs whose kind stands under "type": text as text, media by the model's rule, all else as
    /// JSON.
    pub(super) fn typed_block(&self, block: &Bound<'_, PyDict>) -> Result<Cost, Problem> {
        let py = block.py();
        let kind = get(block, pyo3::intern!(py, "type"))?.map(|kind| string(&kind)).transpose()?.unwrap_or_default();
        for (kinds, key) in [
            (&["text", "input_text", "output_text", "summary_text"][..], pyo3::intern!(py, "text")),
            (&["refusal"][..], pyo3::intern!(py, "refusal")),
            (&["thinking"][..], pyo3::intern!(py, "thinking")),
        ] {
            if kinds.contains(&kind.as_str())
                && let Some(text) = get(block, key)?
            {
                return self.cost(&text);
            }
        }
        self.cost(block.as_any())
    }

    /// What content costs: a string, or blocks of which `block` says the cost.
    pub(super) fn content(
        &self,
        content: Option<&Bound<'_, PyAny>>,
        mut block: impl FnMut(&Bound<'_, PyDict>) -> Result<Cost, Problem>,
    ) -> Result<Cost, Problem> {
        let Some(content) = content else { return Ok(Cost::of(0, true)) };
        if content.is_instance_of::<PyString>() {
            return self.cost(content);
        }
        let mut total = Cost::of(0, true);
        for element in list(Some(content), "content")? {
            let each = if element.is_instance_of::<PyString>() {
                self.cost(&element)?
            } else {
                block(super::dict(&element, "a block")?)?
            };
            total = Cost::of(total.tokens.saturating_add(each.tokens), total.text && each.text);
        }
        Ok(total)
    }

    /// What a block that holds an image, a document, a sound or a film costs.
    pub(super) fn media(&self, block: &Bound<'_, PyDict>) -> Result<u32, Problem> {
        let mut found = Found::default();
        look_into(block.as_any(), "", &mut found, 0)?;
        let Some((key, payload)) = found.payload else {
            return Ok(self.payload(Payload::Absent, found.sort.unwrap_or(Sort::Image), found.detail));
        };
        if found.is_text {
            // A document whose source is text costs what its text does.
            return self.text(&payload);
        }
        let sort = found.sort.unwrap_or(Sort::Image);
        if let Ok(bytes) = payload.cast::<PyBytes>() {
            return Ok(self.payload(Payload::Raw(bytes.as_bytes()), sort, found.detail));
        }
        let text = payload.cast::<PyString>().map_err(PyErr::from)?;
        Ok(with_text(text, |text| match text {
            Text::Ascii(base64) if key != "url" || is_data(base64) => {
                self.payload(Payload::Base64(base64), sort, found.detail)
            }
            _ => self.payload(Payload::Absent, sort, found.detail),
        })?)
    }

    /// [`Self::media`] for callers outside of a history.
    pub(crate) fn media_tokens(&self, block: &Bound<'_, PyDict>) -> PyResult<u32> {
        self.media(block).map_err(|problem| problem.at(0))
    }

    fn payload(&self, payload: Payload<'_>, sort: Sort, detail: Detail) -> u32 {
        let length = match payload {
            Payload::Base64(text) => payload::decoded_length(text),
            Payload::Raw(bytes) => bytes.len() as u64,
            Payload::Absent => 0,
        };
        match sort {
            Sort::Image => {
                let size = match payload {
                    Payload::Base64(text) => payload::image_size_in_base64(text),
                    Payload::Raw(bytes) => payload::image_size(bytes),
                    Payload::Absent => None,
                };
                self.media.image_tokens(size, detail)
            }
            Sort::Document => {
                let pages = match payload {
                    Payload::Base64(text) if text.len() <= SEARCHED_DOCUMENT => {
                        payload::pdf_pages(&payload::decode_base64(text, SEARCHED_DOCUMENT))
                    }
                    Payload::Raw(bytes) if bytes.len() <= SEARCHED_DOCUMENT => payload::pdf_pages(bytes),
                    _ => None,
                };
                self.media.document_tokens(pages, length)
            }
            Sort::Audio | Sort::Video => {
                let milliseconds = match payload {
                    Payload::Base64(text) => payload::milliseconds(&payload::decode_base64(text, 1 << 16), length),
                    Payload::Raw(bytes) => payload::milliseconds(bytes, length),
                    Payload::Absent => None,
                };
                match sort {
                    Sort::Audio => self.media.audio_tokens(milliseconds, length),
                    _ => self.media.video_tokens(milliseconds, length),
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Image,
    Document,
    Audio,
    Video,
}

#[derive(Debug, Clone, Copy)]
enum Payload<'a> {
    Base64(&'a [u8]),
    Raw(&'a [u8]),
    /// It is elsewhere.
    Absent,
}

/// What a media block says of itself.
#[derive(Debug, Default)]
struct Found<'py> {
    sort: Option<Sort>,
    detail: Detail,
    is_text: bool,
    payload: Option<(&'static str, Bound<'py, PyAny>)>,
}

impl Found<'_> {
    /// Takes a kind, a MIME type or a format as a hint; the first that says something counts, but a MIME type wins.
    fn hint(&mut self, text: &str, is_mime: bool) {
        let sort = if text.starts_with("image") || matches!(text, "png" | "jpeg" | "jpg" | "gif" | "webp") {
            Sort::Image
        } else if text.contains("audio") || matches!(text, "wav" | "mp3" | "flac" | "opus" | "pcm16") {
            Sort::Audio
        } else if text.starts_with("video") || matches!(text, "mp4" | "mov" | "webm" | "mkv") {
            Sort::Video
        } else if text.contains("pdf") || text == "document" || text.contains("file") || text.starts_with("text/") {
            Sort::Document
        } else {
            return;
        };
        if is_mime || self.sort.is_none() {
            self.sort = Some(sort);
        }
        self.is_text |= text.starts_with("text/");
    }
}

/// Looks for the payload of a media block and for what it is; providers nest them under many names.
fn look_into<'py>(value: &Bound<'py, PyAny>, name: &str, found: &mut Found<'py>, depth: usize) -> Result<(), Problem> {
    const MOST_NESTED: usize = 6;
    if let Some(dict) = mapping(value)? {
        if depth > MOST_NESTED {
            return Ok(());
        }
        for item in dict.items() {
            let (key, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            let Ok(key) = key.cast::<PyString>() else { continue };
            let key = key.to_string_lossy().into_owned();
            found.hint(&key, false);
            look_into(&value, &key, found, depth + 1)?;
        }
        return Ok(());
    }
    if value.is_instance_of::<PyBytes>() {
        found.payload = Some(("data", value.clone()));
        return Ok(());
    }
    let Ok(text) = value.cast::<PyString>() else { return Ok(()) };
    match name {
        "type" | "format" => {
            let text = string(value)?;
            found.hint(&text, false);
            found.is_text |= text == "text" && depth > 1;
        }
        "media_type" | "mimeType" | "mime_type" => found.hint(&string(value)?, true),
        "detail" | "mediaResolution" | "media_resolution" => {
            let said = string(value)?.to_ascii_lowercase();
            found.detail = match said.rsplit('_').next() {
                Some("low") => Detail::Low,
                Some("high" | "medium") => Detail::High,
                Some("original") => Detail::Original,
                _ => Detail::Auto,
            };
        }
        "data" | "file_data" | "fileData" | "bytes" | "text" => found.payload = Some(("data", value.clone())),
        "url" | "image_url" | "uri" | "fileUri" | "file_uri" | "file_url" | "audio_url" | "video_url"
        | "document_url" | "audio" | "video" => {
            if with_text(text, |text| matches!(text, Text::Ascii(units) if is_data(units)))? {
                let mime = with_text(text, |text| {
                    let mut head = String::new();
                    text.prefix(64).append_to(&mut head);
                    head
                })?;
                found.hint(
                    mime.to_ascii_lowercase().trim_start_matches("data:").split([';', ',']).next().unwrap_or_default(),
                    true,
                );
            }
            found.payload.get_or_insert(("url", value.clone()));
        }
        _ => {}
    }
    Ok(())
}

/// Whether an address holds its content.
fn is_data(address: &[u8]) -> bool {
    address.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:"))
}

/// A mapping of any kind as a dict.
fn mapping<'py>(value: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyDict>>, Problem> {
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Some(dict.clone()));
    }
    if value.is_instance_of::<PyString>() || value.cast::<PyMapping>().is_err() {
        return Ok(None);
    }
    let dict = PyDict::new(value.py());
    dict.call_method1("update", (value,))?;
    Ok(Some(dict))
}

/// A value written out.
fn written<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyString>, Problem> {
    // Python refuses to write whole numbers of more than 4,300 digits.
    value.str().map_err(|error| Problem::Said(format!("holds a value that cannot be written ({error})")))
}

/// Whether a block is an image, a document or a sound, by its kind: what a string looks like says nothing.
fn is_media(block: &Bound<'_, PyDict>) -> Result<bool, Problem> {
    let py = block.py();
    if let Some(kind) = get(block, pyo3::intern!(py, "type"))? {
        return Ok(kind
            .cast::<PyString>()
            .is_ok_and(|kind| kind.to_str().is_ok_and(|kind| MEDIA_KINDS.contains(&kind))));
    }
    for key in MEDIA_KEYS {
        if block.get_item(key)?.is_some_and(|value| value.is_instance_of::<PyDict>()) {
            return Ok(true);
        }
    }
    Ok(false)
}
