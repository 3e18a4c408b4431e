//! Gemini contents: parts, with calls answered by id where there is one, else by name in order.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use secateur_core::Kind;

use super::{Cost, MEDIA_TOKENS, Problem, Reader, Reading, cost, dict, either, get, list, string};

impl Reader {
    pub(super) fn gemini(&mut self, message: &Bound<'_, PyDict>, reading: &mut Reading) -> Result<(), Problem> {
        let py = message.py();
        let role = get(message, intern!(py, "role"))?.map(|role| string(&role)).transpose()?;
        reading.kind = match role.as_deref() {
            Some("model" | "assistant") => Kind::Assistant,
            Some("system") => Kind::System,
            None | Some("user" | "function" | "tool") => Kind::Human,
            Some(_) => Kind::Other,
        };
        for element in list(get(message, intern!(py, "parts"))?.as_ref(), "parts")? {
            if element.is_instance_of::<PyString>() {
                reading.tokens += cost(&element)?.tokens;
                continue;
            }
            let part = dict(&element, "a part")?;
            if let Some(call) = either(part, intern!(py, "functionCall"), intern!(py, "function_call"))? {
                let call = dict(&call, "functionCall")?;
                let name = get(call, intern!(py, "name"))?;
                let id = id_of(call)?;
                let arguments = get(call, intern!(py, "args"))?;
                self.add_call(reading, id, name.as_ref(), arguments.as_ref())?;
            } else if let Some(result) =
                either(part, intern!(py, "functionResponse"), intern!(py, "function_response"))?
            {
                let result = dict(&result, "functionResponse")?;
                let name = get(result, intern!(py, "name"))?.map(|name| string(&name)).transpose()?;
                let response = get(result, intern!(py, "response"))?;
                let content = response.as_ref().map_or(Ok(Cost { tokens: 0, text: false }), response_cost)?;
                self.add_result(reading, id_of(result)?, name, content);
            } else {
                reading.tokens += part_cost(part)?.tokens;
            }
        }
        if reading.parts.iter().any(|part| part.result) {
            reading.kind = Kind::Result;
        }
        Ok(())
    }
}

/// The id, or the name where there is none: calls of one name are answered in their order.
fn id_of(call: &Bound<'_, PyDict>) -> Result<Option<String>, Problem> {
    let py = call.py();
    either(call, intern!(py, "id"), intern!(py, "name"))?.map(|id| string(&id)).transpose()
}

/// A response of one string can be cut like any text; its key costs little.
fn response_cost(response: &Bound<'_, PyAny>) -> Result<Cost, Problem> {
    let Ok(response) = response.cast::<PyDict>() else { return cost(response) };
    let mut values = response.iter();
    match (values.next(), values.next()) {
        (Some((key, text)), None) if text.is_instance_of::<PyString>() => {
            Ok(Cost { tokens: cost(&key)?.tokens + 2 + cost(&text)?.tokens, text: true })
        }
        _ => cost(response.as_any()),
    }
}

fn part_cost(part: &Bound<'_, PyDict>) -> Result<Cost, Problem> {
    let py = part.py();
    if let Some(text) = get(part, intern!(py, "text"))? {
        return cost(&text);
    }
    for (key, other) in
        [(intern!(py, "inlineData"), intern!(py, "inline_data")), (intern!(py, "fileData"), intern!(py, "file_data"))]
    {
        if either(part, key, other)?.is_some() {
            return Ok(Cost { tokens: MEDIA_TOKENS, text: false });
        }
    }
    cost(part.as_any())
}
