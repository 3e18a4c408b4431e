//! OpenAI chat completions, and the simple shape of role and content.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use secateur_core::Kind;

use super::{Problem, Reader, Reading, dict, get, list, string, with_role};

/// Stands for the id that calls of the older form do not have.
const OLD_CALL: &str = "function_call";

impl Reader<'_> {
    pub(super) fn openai_chat(&mut self, message: &Bound<'_, PyDict>, reading: &mut Reading) -> Result<(), Problem> {
        let rules = self.rules;
        let meter = &rules.meter;
        let py = message.py();
        let old_result;
        (reading.kind, old_result) = with_role(message, |role| match role {
            "system" | "developer" => (Kind::System, false),
            "user" | "human" => (Kind::Human, false),
            "assistant" | "agent" | "model" | "ai" => (Kind::Assistant, false),
            "tool" | "function" => (Kind::Result, role == "function"),
            _ => (Kind::Other, false),
        })?;
        let content = get(message, intern!(py, "content"))?;
        let said = meter.content(content.as_ref(), |block| meter.typed_block(block))?;
        if reading.kind == Kind::Result {
            // The name of the tool matters to rules alone, where the message is not of the older kind.
            let named = old_result || !self.rules.tools.is_empty();
            let name = if named { get(message, intern!(py, "name"))? } else { None };
            let name = name.map(|name| string(&name)).transpose()?;
            let id = match get(message, intern!(py, "tool_call_id"))? {
                Some(id) => Some(string(&id)?),
                None if old_result => Some(OLD_CALL.to_owned()),
                // It names no call, and answers the first that is open.
                None => Some(String::new()),
            };
            self.add_result(reading, id, name, said);
            return Ok(());
        }
        reading.add(said.tokens);
        if message.len() > 2
            && let Some(name) = get(message, intern!(py, "name"))?
        {
            reading.add(meter.text(&name)?);
        }
        if reading.kind != Kind::Assistant {
            return Ok(());
        }
        // Beside role, content and calls there is seldom more.
        if message.len() > 3 {
            for key in [intern!(py, "reasoning_content"), intern!(py, "refusal"), intern!(py, "thinking_blocks")] {
                if let Some(more) = get(message, key)? {
                    reading.add(meter.cost(&more)?.tokens);
                }
            }
        }
        for call in list(get(message, intern!(py, "tool_calls"))?.as_ref(), "tool_calls")? {
            let call = dict(&call, "a tool call")?;
            let id = get(call, intern!(py, "id"))?.map(|id| string(&id)).transpose()?;
            let function = match get(call, intern!(py, "function"))? {
                Some(function) => Some(function),
                None => get(call, intern!(py, "custom"))?,
            };
            self.function(reading, id, function.as_ref())?;
        }
        if let Some(function) = get(message, intern!(py, "function_call"))? {
            self.function(reading, Some(OLD_CALL.to_owned()), Some(&function))?;
        }
        Ok(())
    }

    fn function(
        &mut self,
        reading: &mut Reading,
        id: Option<String>,
        function: Option<&Bound<'_, PyAny>>,
    ) -> Result<(), Problem> {
        let Some(function) = function else { return self.add_call(reading, id, None, None) };
        let function = dict(function, "a function")?;
        let py = function.py();
        let name = get(function, intern!(py, "name"))?;
        let arguments = match get(function, intern!(py, "arguments"))? {
            Some(arguments) => Some(arguments),
            None => get(function, intern!(py, "input"))?,
        };
        self.add_call(reading, id, name.as_ref(), arguments.as_ref())
    }
}
