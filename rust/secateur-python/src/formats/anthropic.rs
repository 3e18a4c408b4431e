//! Anthropic messages: calls and results are blocks within the content.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use secateur_core::Kind;

use super::{Problem, Reader, Reading, dict, get, list, string, with_role};

impl Reader<'_> {
    pub(super) fn anthropic(&mut self, message: &Bound<'_, PyDict>, reading: &mut Reading) -> Result<(), Problem> {
        let rules = self.rules;
        let meter = &rules.meter;
        let py = message.py();
        reading.kind = with_role(message, |role| match role {
            "system" | "developer" => Kind::System,
            "user" | "human" => Kind::Human,
            "assistant" | "agent" => Kind::Assistant,
            _ => Kind::Other,
        })?;
        let Some(content) = get(message, intern!(py, "content"))? else { return Ok(()) };
        if content.is_instance_of::<PyString>() {
            reading.add(meter.cost(&content)?.tokens);
            return Ok(());
        }
        for element in list(Some(&content), "content")? {
            if element.is_instance_of::<PyString>() {
                reading.add(meter.cost(&element)?.tokens);
                continue;
            }
            let block = dict(&element, "a block")?;
            let kind = get(block, intern!(py, "type"))?.map(|kind| string(&kind)).transpose()?.unwrap_or_default();
            match kind.as_str() {
                "tool_use" => {
                    let id = get(block, intern!(py, "id"))?.map(|id| string(&id)).transpose()?;
                    let name = get(block, intern!(py, "name"))?;
                    let input = get(block, intern!(py, "input"))?;
                    self.add_call(reading, id, name.as_ref(), input.as_ref())?;
                }
                "tool_result" => {
                    let id = get(block, intern!(py, "tool_use_id"))?.map(|id| string(&id)).transpose()?;
                    let result = get(block, intern!(py, "content"))?;
                    let content = meter.content(result.as_ref(), |block| meter.typed_block(block))?;
                    self.add_result(reading, id, None, content);
                }
                _ => reading.add(meter.typed_block(block)?.tokens),
            }
        }
        if reading.parts.iter().any(|part| part.result) {
            reading.kind = Kind::Result;
        }
        Ok(())
    }
}
