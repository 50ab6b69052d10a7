//! Fills parameters into the steps of a skill.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{PARAMETER_BYTES_MAX, Parameter, Step, shell};
use crate::MemoryError;
use crate::shown::shown;

/// The maximum nesting of a tool call's arguments: they are walked by recursion.
const ARGUMENTS_DEPTH_MAX: usize = 64;

/// Refuses steps that name an undeclared parameter, or use one where it cannot be filled in safely.
pub(super) fn check(parameters: &[Parameter], steps: &[Step]) -> Result<(), MemoryError> {
    let placeholder = parameters.iter().map(|parameter| (parameter.name.clone(), String::new())).collect();
    for (number, step) in steps.iter().enumerate() {
        fill_step(number, step, &placeholder)?;
    }
    Ok(())
}

pub(super) fn fill(
    skill: &str,
    parameters: &[Parameter],
    steps: &[Step],
    given: &BTreeMap<String, String>,
) -> Result<Vec<Step>, MemoryError> {
    let values = values(skill, parameters, given)?;
    steps.iter().enumerate().map(|(number, step)| fill_step(number, step, &values)).collect()
}

/// Every parameter's value: as given, or its default, or empty if it is optional.
fn values(
    skill: &str,
    parameters: &[Parameter],
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, MemoryError> {
    if let Some(unknown) = given.keys().find(|name| !parameters.iter().any(|known| known.name == **name)) {
        let known = parameters.iter().map(|known| format!("`{}`", known.name)).collect::<Vec<_>>();
        let why = match known.as_slice() {
            [] => format!("skill `{skill}` takes no parameters"),
            known => format!("skill `{skill}` takes {}", known.join(", ")),
        };
        return Err(MemoryError::invalid(
            "the list of parameters",
            format!("unknown parameter `{}`: {why}", shown(unknown)),
        ));
    }
    let mut values = BTreeMap::new();
    for parameter in parameters {
        let name = &parameter.name;
        let value = match (given.get(&parameter.name), &parameter.default) {
            (Some(value), _) | (None, Some(value)) => value.clone(),
            (None, None) if parameter.required => {
                return Err(MemoryError::invalid(
                    "the list of parameters",
                    format!("skill `{skill}` requires `{name}`"),
                ));
            }
            (None, None) => String::new(),
        };
        if value.len() > PARAMETER_BYTES_MAX {
            return Err(MemoryError::too_large("the value of a parameter", value.len(), PARAMETER_BYTES_MAX));
        }
        if value.contains('\0') {
            return Err(MemoryError::invalid(
                "the value of a parameter",
                format!("`{name}` contains a NUL character, which a command cannot receive"),
            ));
        }
        values.insert(parameter.name.clone(), value);
    }
    Ok(values)
}

fn fill_step(number: usize, step: &Step, values: &BTreeMap<String, String>) -> Result<Step, MemoryError> {
    let refuse = |why: &str| MemoryError::invalid("the skill", format!("step {}: {why}", number + 1));
    match step {
        Step::Command { run, workdir, env, timeout_s } => Ok(Step::Command {
            run: shell::fill(run, values).map_err(|place| refused(number, &place))?,
            workdir: workdir.as_ref().map(|workdir| text(workdir, values, &refuse)).transpose()?,
            env: environment(env, values, &refuse)?,
            timeout_s: *timeout_s,
        }),
        Step::ToolCall { tool, arguments } => {
            Ok(Step::ToolCall { tool: tool.clone(), arguments: argument(arguments, values, &refuse, 0)? })
        }
        Step::Script { interpreter, text: script, env } => {
            check_interpreter(interpreter, &refuse)?;
            if let Some(name) = first_place(script, values) {
                let variable = variable(name);
                let why = format!(
                    "a script cannot contain `{{{{{name}}}}}`: read `{variable}` from the environment"
                );
                return Err(refuse(&why));
            }
            Ok(Step::Script {
                interpreter: interpreter.clone(),
                text: script.clone(),
                env: environment(env, values, &refuse)?,
            })
        }
    }
}

fn refused(number: usize, place: &shell::FillError) -> MemoryError {
    let shell::FillError { name, why } = place;
    let variable = variable(name);
    let why = format!("`{{{{{name}}}}}` cannot be filled in: {why} (write `\"${variable}\"` there instead)");
    MemoryError::invalid("the skill", format!("step {}: {why}", number + 1))
}

/// One program, by name or path: arguments would require quoting rules.
fn check_interpreter(interpreter: &str, refuse: &dyn Fn(&str) -> MemoryError) -> Result<(), MemoryError> {
    let fits = !interpreter.is_empty()
        && interpreter.len() <= 256
        && interpreter
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'-' | b'_' | b'+'));
    if fits {
        return Ok(());
    }
    Err(refuse("its interpreter must be the name or path of one program, without arguments"))
}

/// The environment variable that carries a parameter.
fn variable(name: &str) -> String {
    format!("PARAM_{}", name.to_ascii_uppercase())
}

/// The step's own variables, and all parameters. A variable of the author takes precedence over a parameter with its name.
fn environment(
    env: &BTreeMap<String, String>,
    values: &BTreeMap<String, String>,
    refuse: &dyn Fn(&str) -> MemoryError,
) -> Result<BTreeMap<String, String>, MemoryError> {
    let mut filled: BTreeMap<_, _> =
        values.iter().map(|(name, value)| (variable(name), value.clone())).collect();
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(refuse("a variable's name must not be empty or contain `=`"));
        }
        filled.insert(name.clone(), text(value, values, refuse)?);
    }
    Ok(filled)
}

/// Plain text that no shell reads: the value is inserted unchanged.
fn text(
    template: &str,
    values: &BTreeMap<String, String>,
    refuse: &dyn Fn(&str) -> MemoryError,
) -> Result<String, MemoryError> {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        filled.push_str(&rest[..start]);
        rest = &rest[start..];
        match shell::place_at(rest) {
            Some((name, length)) => {
                let Some(value) = values.get(name) else {
                    return Err(refuse(&format!("it has no parameter `{name}`")));
                };
                filled.push_str(value);
                rest = &rest[length..];
            }
            None => {
                filled.push_str("{{");
                rest = &rest[2..];
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The first placeholder of a declared parameter. Others belong to the script: templates use the same syntax.
fn first_place<'a>(script: &'a str, values: &BTreeMap<String, String>) -> Option<&'a str> {
    script
        .match_indices("{{")
        .filter_map(|(at, _)| shell::place_at(&script[at..]))
        .map(|(name, _)| name)
        .find(|name| values.contains_key(*name))
}

fn argument(
    value: &Value,
    values: &BTreeMap<String, String>,
    refuse: &dyn Fn(&str) -> MemoryError,
    depth: usize,
) -> Result<Value, MemoryError> {
    if depth > ARGUMENTS_DEPTH_MAX {
        return Err(refuse(&format!("its arguments are nested more than {ARGUMENTS_DEPTH_MAX} levels deep")));
    }
    match value {
        Value::String(template) => text(template, values, refuse).map(Value::String),
        Value::Array(items) => items
            .iter()
            .map(|item| argument(item, values, refuse, depth + 1))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| Ok((name.clone(), argument(field, values, refuse, depth + 1)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameter(name: &str, required: bool, default: Option<&str>) -> Parameter {
        Parameter {
            name: name.to_owned(),
            description: String::new(),
            required,
            default: default.map(str::to_owned),
        }
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn command(run: &str) -> Step {
        Step::Command { run: run.to_owned(), workdir: None, env: BTreeMap::new(), timeout_s: None }
    }

    fn error(parameters: &[Parameter], steps: &[Step], pairs: &[(&str, &str)]) -> String {
        fill("deploy", parameters, steps, &given(pairs)).unwrap_err().to_string()
    }

    #[test]
    fn each_kind_of_step_is_filled_in_its_own_way() {
        let parameters = [parameter("host", true, None), parameter("port", false, Some("22"))];
        let steps = [
            Step::Command {
                run: "ssh -p {{port}} {{host}}".to_owned(),
                workdir: Some("/srv/{{host}}".to_owned()),
                env: given(&[("TARGET", "{{host}}:{{port}}")]),
                timeout_s: Some(5),
            },
            Step::ToolCall {
                tool: "fetch".to_owned(),
                arguments: json!({"url": ["http://{{host}}/"], "n": 3}),
            },
            Step::Script {
                interpreter: "python3".to_owned(),
                text: "import os".to_owned(),
                env: BTreeMap::new(),
            },
        ];
        let filled = fill("deploy", &parameters, &steps, &given(&[("host", "a'b")])).unwrap();
        let parameters = given(&[("PARAM_HOST", "a'b"), ("PARAM_PORT", "22")]);
        let mut env = parameters.clone();
        env.insert("TARGET".to_owned(), "a'b:22".to_owned());
        assert_eq!(
            filled,
            [
                Step::Command {
                    run: r"ssh -p '22' 'a'\''b'".to_owned(),
                    workdir: Some("/srv/a'b".to_owned()),
                    env,
                    timeout_s: Some(5),
                },
                Step::ToolCall {
                    tool: "fetch".to_owned(),
                    arguments: json!({"url": ["http://a'b/"], "n": 3})
                },
                Step::Script {
                    interpreter: "python3".to_owned(),
                    text: "import os".to_owned(),
                    env: parameters
                },
            ]
        );
    }

    #[test]
    fn missing_unknown_and_misplaced_parameters_have_different_errors() {
        let parameters = [parameter("host", true, None)];
        assert!(error(&parameters, &[command("true")], &[]).contains("skill `deploy` requires `host`"));
        assert!(error(&parameters, &[command("true")], &[("hots", "x")]).contains("takes `host`"));
        assert!(
            error(&parameters, &[command("echo {{hots}}")], &[("host", "x")]).contains("no such parameter")
        );
        assert!(error(&parameters, &[command("echo '{{host}}'")], &[("host", "x")]).contains("$PARAM_HOST"));
        assert!(error(&parameters, &[command("true")], &[("host", "a\0b")]).contains("NUL"));
    }

    #[test]
    fn a_script_is_never_changed() {
        let script = |text: &str| Step::Script {
            interpreter: "ruby".to_owned(),
            text: text.to_owned(),
            env: BTreeMap::new(),
        };
        let parameters = [parameter("host", true, None)];
        assert!(error(&parameters, &[script("puts '{{host}}'")], &[("host", "x")]).contains("PARAM_HOST"));
        let own_template = fill("s", &parameters, &[script("{{other}}")], &given(&[("host", "x")])).unwrap();
        assert!(matches!(&own_template[0], Step::Script { text, .. } if text == "{{other}}"));
    }

    #[test]
    fn an_interpreter_with_arguments_is_refused() {
        let step =
            Step::Script { interpreter: "sh -c id;".to_owned(), text: String::new(), env: BTreeMap::new() };
        assert!(error(&[], &[step], &[]).contains("without arguments"));
    }

    #[test]
    fn a_value_that_looks_like_a_placeholder_is_not_filled_again() {
        let parameters = [parameter("a", true, None), parameter("b", true, None)];
        let filled =
            fill("s", &parameters, &[command("echo {{a}}")], &given(&[("a", "{{b}}"), ("b", "x")])).unwrap();
        assert!(matches!(&filled[0], Step::Command { run, .. } if run == "echo '{{b}}'"));
    }
}
