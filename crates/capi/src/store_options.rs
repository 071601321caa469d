//! The options of a store by their names. They are those of `ziptier serve`, without the ones for clients.

use std::fmt::Display;
use std::str::FromStr;

use ziptier::{
    ByteSize, DeviceSource, Durability, DurableOptions, FarOptions, FarRatio, ModelOptions, Options,
    SsdOptions,
};
use ziptier_codec::block::Setting;
use ziptier_codec::format::Format;

use crate::status::Failure;

/// The names, as errors list them.
const NAMES: [&str; 14] = [
    "memory",
    "maxmemory-policy",
    "codec",
    "codec-engine",
    "path",
    "model",
    "huffman",
    "dir",
    "durability",
    "salvage",
    "ssd",
    "far",
    "far-require-dax",
    "far-ratio",
];

/// The options of a store. An option that needs another one says so.
pub(crate) fn parsed(given: &[(&str, &str)]) -> Result<Options, Failure> {
    let mut options = Options::default();
    let dir = given.iter().find(|(name, _)| *name == "dir");
    options.durable = dir.map(|(_, dir)| DurableOptions::new(*dir));
    let far = given.iter().find(|(name, _)| *name == "far");
    options.far = far.map(|&(name, value)| value_of::<FarOptions>(name, value)).transpose()?;
    for &(name, value) in given {
        set(&mut options, name, value)?;
    }
    Ok(options)
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<(), Failure> {
    match name {
        "dir" | "far" => {}
        "memory" => {
            let ByteSize(bytes) = value_of(name, value)?;
            options.memory_limit_bytes = Some(bytes).filter(|&bytes| bytes > 0);
        }
        "maxmemory-policy" => options.eviction = choice(name, value, ["noeviction", "allkeys-s3fifo"])?,
        "codec" => options.codec = value_of(name, value)?,
        "codec-engine" => options.block.engine = Some(engine(name, value)?),
        "path" => options.block.path = value_of(name, value)?,
        "model" => {
            options.block.device = DeviceSource::Modelled(value_of::<ModelOptions>(name, value)?);
        }
        "huffman" => options.block.huffman = value_of(name, value)?,
        "durability" => {
            needed(options.durable.as_mut(), name, "dir")?.durability = value_of::<Durability>(name, value)?;
        }
        "salvage" => {
            needed(options.durable.as_mut(), name, "dir")?.salvage = choice(name, value, ["no", "yes"])?;
        }
        "ssd" => options.ssd = Some(value_of::<SsdOptions>(name, value)?),
        "far-require-dax" => {
            needed(options.far.as_mut(), name, "far")?.require_dax = choice(name, value, ["no", "yes"])?;
        }
        "far-ratio" => {
            needed(options.far.as_mut(), name, "far")?;
            options.far_ratio = Some(value_of::<FarRatio>(name, value)?);
        }
        _ => {
            return Err(Failure::option(format_args!(
                "a store has no option {name:?}: choose among {}",
                NAMES.join(", ")
            )));
        }
    }
    Ok(())
}

fn value_of<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|error| Failure::option(format_args!("option {name} is {value:?}: {error}")))
}

/// Whether the value is the second of two.
fn choice(name: &str, value: &str, choices: [&str; 2]) -> Result<bool, Failure> {
    let found = choices.iter().position(|choice| *choice == value);
    found.map(|index| index == 1).ok_or_else(|| {
        Failure::option(format_args!("option {name} is {value:?}: choose {} or {}", choices[0], choices[1]))
    })
}

fn needed<'a, T>(other: Option<&'a mut T>, name: &str, other_name: &str) -> Result<&'a mut T, Failure> {
    other.ok_or_else(|| {
        Failure::option(format_args!("option {name} needs the option {other_name}: give both"))
    })
}

/// The engines of DEFLATE have names. The other formats have one engine each, which needs no option.
fn engine(name: &str, value: &str) -> Result<&'static str, Failure> {
    let engines = Setting::engine_names(Format::Deflate);
    engines.iter().find(|engine| **engine == value).copied().ok_or_else(|| {
        Failure::option(format_args!("option {name} is {value:?}: choose one of {}", engines.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ziptier::{CodecChoice, Path};

    #[test]
    fn every_name_is_an_option() {
        for (name, value) in [
            ("memory", "1GiB"),
            ("maxmemory-policy", "allkeys-s3fifo"),
            ("codec", "deflate"),
            ("codec-engine", "iaa"),
            ("path", "software"),
            ("model", "timing=off"),
            ("huffman", "fixed"),
            ("dir", "/d"),
            ("durability", "always"),
            ("salvage", "yes"),
            ("ssd", "8GiB"),
            ("far", "1GiB:node=1"),
            ("far-require-dax", "yes"),
            ("far-ratio", "1:3"),
        ] {
            let needed =
                [("dir", "/d"), ("far", "1GiB:/far")].into_iter().filter(|(other, _)| *other != name);
            let given: Vec<(&str, &str)> = needed.chain([(name, value)]).collect();
            let options = parsed(&given).unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
            let (durable, far) = (options.durable.unwrap(), options.far.unwrap());
            let is_set = match name {
                "memory" => options.memory_limit_bytes == Some(1 << 30),
                "maxmemory-policy" => options.eviction,
                "codec" => options.codec == CodecChoice::Deflate,
                "codec-engine" => options.block.engine == Some("iaa"),
                "path" => options.block.path == Path::Software,
                "model" => options.block.device != DeviceSource::Discovered,
                "huffman" => options.block.huffman == ziptier::Huffman::Fixed,
                "dir" => durable.dir.as_path() == std::path::Path::new("/d"),
                "durability" => durable.durability == Durability::Always,
                "salvage" => durable.salvage,
                "ssd" => options.ssd.unwrap().limit_bytes == 8 << 30,
                "far" => far.place == ziptier::FarPlace::Node(1),
                "far-require-dax" => far.require_dax,
                "far-ratio" => options.far_ratio.is_some(),
                _ => false,
            };
            assert!(is_set && NAMES.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_wrong_option_is_named_with_the_right_ones() {
        for (given, sentence) in [
            (("memroy", "1GiB"), "a store has no option \"memroy\": choose among memory, maxmemory-policy"),
            (("memory", "much"), "option memory is \"much\": write a whole number of bytes"),
            (("codec", "zip"), "the codecs are auto, none"),
            (("codec-engine", "abacus"), "choose one of software, iaa, qpl, zlib"),
            (("durability", "always"), "option durability needs the option dir: give both"),
            (("far-ratio", "1:3"), "option far-ratio needs the option far: give both"),
            (("maxmemory-policy", "lru"), "choose noeviction or allkeys-s3fifo"),
        ] {
            let failure = format!("{:?}", parsed(&[given]).unwrap_err());
            let sentence = format!("{sentence:?}");
            assert!(failure.contains(sentence.trim_matches('"')), "{given:?}: {failure}");
        }
    }
}
