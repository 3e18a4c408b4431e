//! Telling the wire formats apart by what only one of them has.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::{Problem, get, list};

/// Name the wire format of messages, by the first that shows it; "simple" if all are plain role and text.
#[pyfunction]
pub(crate) fn detect_format(messages: &Bound<'_, PyList>) -> PyResult<&'static str> {
    for (index, message) in messages.iter().enumerate() {
        let copy;
        let message = if let Ok(dict) = message.cast::<PyDict>() {
            dict
        } else {
            copy = super::as_dict(&message, index)?;
            &copy
        };
        if let Some(format) = of_message(message).map_err(|problem| problem.at(index))? {
            return Ok(format);
        }
    }
    Ok("simple")
}

fn of_message(message: &Bound<'_, PyDict>) -> Result<Option<&'static str>, Problem> {
    let py = message.py();
    let content = message.get_item(intern!(py, "content"))?;
    // What most messages are: a role and a string. The other keys are looked at only if there are any.
    let plain = content.as_ref().is_some_and(pyo3::types::PyAnyMethods::is_instance_of::<PyString>);
    if plain && message.len() == 2 {
        return Ok(None);
    }
    if message.contains(intern!(py, "parts"))? {
        return Ok(Some("gemini"));
    }
    let kind = get(message, intern!(py, "type"))?;
    if kind.as_ref().is_some_and(pyo3::types::PyAnyMethods::is_instance_of::<PyString>) {
        return Ok(Some("openai_responses"));
    }
    for key in ["tool_calls", "tool_call_id", "function_call", "refusal"] {
        if message.contains(key)? {
            return Ok(Some("openai_chat"));
        }
    }
    let role = get(message, intern!(py, "role"))?;
    let role_is = |name: &str| role.as_ref().is_some_and(|role| role.eq(name).unwrap_or(false));
    if role_is("developer") || role_is("function") {
        return Ok(Some("openai_chat"));
    }
    if plain {
        return Ok(None);
    }
    for block in list(content.as_ref().filter(|content| !content.is_none()), "content")? {
        let Ok(block) = block.cast::<PyDict>() else { continue };
        let Some(kind) = get(block, intern!(py, "type"))? else { return Ok(Some("bedrock")) };
        let kind = super::string(&kind)?;
        match kind.as_str() {
            "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "image" | "document"
            | "server_tool_use" | "search_result" => return Ok(Some("anthropic")),
            "image_url" | "input_audio" | "refusal" => return Ok(Some("openai_chat")),
            "input_text" | "output_text" | "input_image" | "input_file" => return Ok(Some("openai_responses")),
            _ if block.contains(intern!(py, "cache_control"))? => return Ok(Some("anthropic")),
            _ => {}
        }
    }
    Ok(None)
}
