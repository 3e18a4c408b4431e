//! Gemini contents: parts, with calls answered by name, in order.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use secateur_core::Kind;

use super::{Cost, Meter, Problem, Reader, Reading, dict, either, get, list, string};

impl Reader<'_> {
    pub(super) fn gemini(&mut self, message: &Bound<'_, PyDict>, reading: &mut Reading) -> Result<(), Problem> {
        let rules = self.rules;
        let meter = &rules.meter;
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
                reading.add(meter.cost(&element)?.tokens);
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
                let (key, content) =
                    response.as_ref().map_or(Ok((0, Cost::of(0, false))), |response| response_cost(meter, response))?;
                reading.add(key);
                self.add_result(reading, id_of(result)?, name, content);
            } else {
                reading.add(part_cost(meter, part)?.tokens);
            }
        }
        if reading.parts.iter().any(|part| part.result) {
            reading.kind = Kind::Result;
        }
        Ok(())
    }
}

/// The name, or the id where there is none: ids stand on one side only with some clients, so that calls of one name
/// are answered in their order.
fn id_of(call: &Bound<'_, PyDict>) -> Result<Option<String>, Problem> {
    let py = call.py();
    either(call, intern!(py, "name"), intern!(py, "id"))?.map(|id| string(&id)).transpose()
}

/// What a response costs: of one string the key, which stays, and the string, which can be cut like any text; of
/// anything else all of it, in whose place a note stands under a key of its own.
fn response_cost(meter: &Meter, response: &Bound<'_, PyAny>) -> Result<(u32, Cost), Problem> {
    const KEY_AROUND: u32 = 2;
    if let Ok(response) = response.cast::<PyDict>() {
        let mut values = response.iter();
        if let (Some((key, text)), None) = (values.next(), values.next())
            && text.is_instance_of::<PyString>()
        {
            return Ok((meter.cost(&key)?.tokens + KEY_AROUND, meter.cost(&text)?));
        }
    }
    let key = meter.cost(PyString::new(response.py(), "result").as_any())?.tokens;
    Ok((0, Cost { around_note: key + KEY_AROUND, ..meter.cost(response)? }))
}

fn part_cost(meter: &Meter, part: &Bound<'_, PyDict>) -> Result<Cost, Problem> {
    let py = part.py();
    if let Some(text) = get(part, intern!(py, "text"))? {
        return meter.cost(&text);
    }
    for (key, other) in
        [(intern!(py, "inlineData"), intern!(py, "inline_data")), (intern!(py, "fileData"), intern!(py, "file_data"))]
    {
        if either(part, key, other)?.is_some() {
            return Ok(Cost::of(meter.media(part)?, false));
        }
    }
    meter.cost(part.as_any())
}
