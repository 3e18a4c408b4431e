//! Bedrock Converse: like Anthropic's, but the kind of a block is its only key.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use secateur_core::Kind;

use super::{Cost, Meter, Problem, Reader, Reading, dict, get, list, string, with_role};

impl Reader<'_> {
    pub(super) fn bedrock(&mut self, message: &Bound<'_, PyDict>, reading: &mut Reading) -> Result<(), Problem> {
        let rules = self.rules;
        let meter = &rules.meter;
        let py = message.py();
        reading.kind = with_role(message, |role| match role {
            "system" => Kind::System,
            "user" => Kind::Human,
            "assistant" => Kind::Assistant,
            _ => Kind::Other,
        })?;
        for element in list(get(message, intern!(py, "content"))?.as_ref(), "content")? {
            let block = dict(&element, "a block")?;
            if let Some(call) = get(block, intern!(py, "toolUse"))? {
                let call = dict(&call, "toolUse")?;
                let id = get(call, intern!(py, "toolUseId"))?.map(|id| string(&id)).transpose()?;
                let name = get(call, intern!(py, "name"))?;
                let input = get(call, intern!(py, "input"))?;
                self.add_call(reading, id, name.as_ref(), input.as_ref())?;
            } else if let Some(result) = get(block, intern!(py, "toolResult"))? {
                let result = dict(&result, "toolResult")?;
                let id = get(result, intern!(py, "toolUseId"))?.map(|id| string(&id)).transpose()?;
                let content =
                    meter.content(get(result, intern!(py, "content"))?.as_ref(), |block| block_cost(meter, block))?;
                self.add_result(reading, id, None, content);
            } else {
                reading.add(block_cost(meter, block)?.tokens);
            }
        }
        if reading.parts.iter().any(|part| part.result) {
            reading.kind = Kind::Result;
        }
        Ok(())
    }
}

fn block_cost(meter: &Meter, block: &Bound<'_, PyDict>) -> Result<Cost, Problem> {
    let py = block.py();
    if let Some(text) = get(block, intern!(py, "text"))? {
        return meter.cost(&text);
    }
    for key in [intern!(py, "image"), intern!(py, "document"), intern!(py, "video")] {
        if get(block, key)?.is_some() {
            return Ok(Cost::of(meter.media(block)?, false));
        }
    }
    if get(block, intern!(py, "cachePoint"))?.is_some() {
        return Ok(Cost::of(0, false));
    }
    meter.cost(block.as_any())
}
