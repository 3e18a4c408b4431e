//! OpenAI Responses: a list of items; what the model puts out in one response is a run of them.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use secateur_core::{Clearing, Kind};

use super::{Problem, Reader, Reading, either, get, string, with_role};

/// Calls that are answered by an item of their own, named like them and `_output`.
const ANSWERED: [&str; 6] =
    ["function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"];

/// Those of them whose arguments and outputs are text.
const TEXT_CALLS: [&str; 2] = ["function_call", "custom_tool_call"];

impl Reader<'_> {
    pub(super) fn responses(&mut self, item: &Bound<'_, PyDict>, reading: &mut Reading) -> Result<(), Problem> {
        let rules = self.rules;
        let meter = &rules.meter;
        let py = item.py();
        let kind = get(item, intern!(py, "type"))?.map(|kind| string(&kind)).transpose()?;
        let kind = kind.as_deref().unwrap_or("message");
        let id = get(item, intern!(py, "call_id"))?.map(|id| string(&id)).transpose()?;
        if kind == "message" {
            reading.kind = with_role(item, |role| match role {
                "system" | "developer" => Kind::System,
                "user" => Kind::Human,
                "assistant" => Kind::Assistant,
                _ => Kind::Other,
            })?;
            reading.continues = reading.kind == Kind::Assistant;
            let content = get(item, intern!(py, "content"))?;
            reading.add(meter.content(content.as_ref(), |block| meter.typed_block(block))?.tokens);
        } else if kind.strip_suffix("_output").is_some_and(|call| ANSWERED.contains(&call)) {
            reading.kind = Kind::Result;
            let output = get(item, intern!(py, "output"))?;
            let content = match &output {
                Some(output) if output.is_instance_of::<PyDict>() => meter.cost(output)?,
                output => meter.content(output.as_ref(), |block| meter.typed_block(block))?,
            };
            self.add_result(reading, id, None, content);
            if !TEXT_CALLS.iter().any(|call| kind.starts_with(call)) {
                // The output of a built-in tool has a shape of its own, which no note has.
                for part in &mut reading.parts {
                    (part.clearing, part.text) = (Clearing::Never, false);
                }
            }
        } else if TEXT_CALLS.contains(&kind) {
            (reading.kind, reading.continues) = (Kind::Assistant, true);
            let name = get(item, intern!(py, "name"))?;
            let arguments = either(item, intern!(py, "arguments"), intern!(py, "input"))?;
            self.add_call(reading, id, name.as_ref(), arguments.as_ref())?;
        } else if ANSWERED.contains(&kind) {
            (reading.kind, reading.continues) = (Kind::Assistant, true);
            reading.add(meter.cost(item.as_any())?.tokens);
            reading.calls.extend(id);
        } else {
            (reading.kind, reading.continues) = (Kind::Assistant, true);
            // What the server has condensed stands for all that it replaced.
            reading.pinned = kind.starts_with("compaction");
            reading.add(meter.cost(item.as_any())?.tokens);
        }
        Ok(())
    }
}
