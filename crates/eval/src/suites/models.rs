//! Several models of an accelerator in one string, for sweeps.

use crate::error::Error;

/// The models that a string such as `devices=1,2,4,depth=64` describes. A value without a key is another value of the
/// key before it, and every combination is a model. The targets define the meaning of keys and values.
///
/// # Errors
/// The first part has no key.
pub fn models(text: &str) -> Result<Vec<String>, Error> {
    let mut models = vec![String::new()];
    for (key, values) in keys(text)? {
        let with = |model: &String| {
            let before = if model.is_empty() { String::new() } else { format!("{model},") };
            values.iter().map(move |value| format!("{before}{key}={value}")).collect::<Vec<_>>()
        };
        models = models.iter().flat_map(with).collect();
    }
    models.retain(|model| !model.is_empty());
    Ok(models)
}

fn keys(text: &str) -> Result<Vec<(&str, Vec<&str>)>, Error> {
    let mut keys: Vec<(&str, Vec<&str>)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match (part.split_once('='), keys.last_mut()) {
            (Some((key, value)), _) => keys.push((key, vec![value])),
            (None, Some((_, values))) => values.push(part),
            (None, None) => {
                return Err(Error::invalid("--model", part, "give key=value, such as devices=1,2,4"));
            }
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_a_key_are_swept() {
        assert_eq!(models("devices=1,2,4").unwrap(), ["devices=1", "devices=2", "devices=4"]);
        assert_eq!(models("devices=1,2,depth=64").unwrap(), ["devices=1,depth=64", "devices=2,depth=64"]);
        assert_eq!(models("timing=off").unwrap(), ["timing=off"]);
        assert!(models("").unwrap().is_empty());
        assert!(models("4").unwrap_err().to_string().contains("key=value"));
    }
}
