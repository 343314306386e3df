//! What is measured, and on what: the files in `scenarios/`, which are part of the program.

use std::fmt;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;
use redrive::replay::{Identity, IoChoice};
use redrive_tools::generate::{IdShape, Scenario as Writer};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// The scenarios that come with the program, by name.
const SHIPPED: [(&str, &str); 4] = [
    ("load/distinct", include_str!("../scenarios/load/distinct.toml")),
    ("load/one-partition", include_str!("../scenarios/load/one-partition.toml")),
    ("load/smoke", include_str!("../scenarios/load/smoke.toml")),
    ("load/update-heavy", include_str!("../scenarios/load/update-heavy.toml")),
];

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name: that of its file, without the ending.
    #[serde(default)]
    pub name: String,
    /// What it is for, a sentence.
    pub about: String,
    /// SHA-256 of what every loader must find, as [`answer`](crate::answer) makes it, if that is known.
    #[serde(default)]
    pub answer: Option<String>,
    /// The log directory.
    pub data: Data,
    /// What is done with it.
    pub measure: Measure,
}

/// The log directory of a scenario, as `redrive generate` makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Who writes, by the name of `redrive generate --scenario`.
    pub writer: Named<Writer>,
    /// Chooses everything that is left to chance.
    #[serde(default = "one")]
    pub seed: u64,
    /// Transactional ids.
    pub ids: u64,
    /// Transactions of each id.
    pub transactions: NonZero<u32>,
    /// Partitions of the topic.
    pub partitions: NonZero<u32>,
    /// What ids look like.
    #[serde(default = "prefix")]
    pub id_shape: Named<IdShape>,
}

/// What is measured. Every list is taken with every other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Repeats of everything, one after the other.
    pub repeats: NonZero<u32>,
    /// Threads to load with.
    #[serde(default = "one_and_two")]
    pub threads: Vec<NonZero<usize>>,
    /// What ids are compared by.
    #[serde(default = "identities")]
    pub identities: Vec<IdentityName>,
    /// State of the page cache.
    #[serde(default = "warm")]
    pub caches: Vec<Cache>,
    /// How bytes are to be reached where the cache is warm; a cold load chooses for itself.
    #[serde(default = "mapped")]
    pub io: Vec<IoName>,
    /// What else is measured in the same run.
    #[serde(default = "against")]
    pub against: Vec<Against>,
}

fn one() -> u64 {
    1
}

fn prefix() -> Named<IdShape> {
    Named(IdShape::Prefix)
}

fn one_and_two() -> Vec<NonZero<usize>> {
    [1, 2].into_iter().filter_map(NonZero::new).collect()
}

fn identities() -> Vec<IdentityName> {
    vec![IdentityName::Exact, IdentityName::Hash]
}

fn warm() -> Vec<Cache> {
    vec![Cache::Warm]
}

fn mapped() -> Vec<IoName> {
    vec![IoName::Mmap]
}

fn against() -> Vec<Against> {
    vec![Against::Read, Against::Naive]
}

/// A value that is written as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<T>(pub T);

impl<T: ValueEnum> Serialize for Named<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A variant without a name cannot come from a file or the command line.
        let value = self.0.to_possible_value();
        serializer.serialize_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl<'de, T: ValueEnum> Deserialize<'de> for Named<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        T::from_str(&name, false).map(Self).map_err(|_| {
            let variants = T::value_variants().iter().filter_map(T::to_possible_value);
            let names: Vec<String> = variants.map(|value| value.get_name().to_owned()).collect();
            serde::de::Error::custom(format!("{name:?} is none of {}", names.join(", ")))
        })
    }
}

/// What ids are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityName {
    /// Their text
    Exact,
    /// A keyed hash of it
    Hash,
}

impl From<IdentityName> for Identity {
    fn from(name: IdentityName) -> Self {
        match name {
            IdentityName::Exact => Self::Exact,
            IdentityName::Hash => Self::Hash,
        }
    }
}

/// How bytes are to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum IoName {
    /// As the load chooses
    Auto,
    /// Mapped files
    Mmap,
    /// Positioned reads
    Pread,
}

impl IoName {
    /// The name that a load reports when it did so; `None` where it may choose.
    pub(crate) fn reported(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Mmap => Some("mmap"),
            Self::Pread => Some("pread"),
        }
    }
}

impl From<IoName> for IoChoice {
    fn from(name: IoName) -> Self {
        match name {
            IoName::Auto => Self::Auto,
            IoName::Mmap => Self::Mmap,
            IoName::Pread => Self::Pread,
        }
    }
}

/// State of the page cache before a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Every page of every segment is there
    Warm,
    /// None is
    Cold,
}

/// What redrive is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// Merely reading the bytes: from the mapping where the cache is warm, past the cache where it is cold.
    Read,
    /// The naive loader.
    Naive,
    /// A real broker of this version.
    Broker(String),
}

impl FromStr for Against {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.split_once(':') {
            None if name == "read" => Ok(Self::Read),
            None if name == "naive" => Ok(Self::Naive),
            Some(("broker", version)) if !version.is_empty() => Ok(Self::Broker(version.to_owned())),
            _ => Err(format!("{name:?} is none of read, naive, broker:VERSION")),
        }
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Naive => f.write_str("naive"),
            Self::Broker(version) => write!(f, "broker:{version}"),
        }
    }
}

impl Serialize for Against {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Against {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Scenario {
    /// The scenarios that come with the program.
    ///
    /// # Errors
    /// [`BenchError::Content`].
    pub fn shipped() -> Result<Vec<Self>, BenchError> {
        SHIPPED.into_iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// A scenario by the name of a shipped one, or by the path of a file.
    ///
    /// # Errors
    /// [`BenchError::Io`], [`BenchError::Content`].
    pub fn find(name_or_path: &str) -> Result<Self, BenchError> {
        let name = name_or_path.strip_suffix(".toml").unwrap_or(name_or_path);
        let path = Path::new(name_or_path);
        if let Some((name, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name && !path.is_file()) {
            return Self::parse(name, text);
        }
        let text = fs::read_to_string(path).map_err(BenchError::io("read", path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, BenchError> {
        let scenario: Self = toml::from_str(text).map_err(BenchError::content(name))?;
        Ok(Self { name: name.to_owned(), ..scenario })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_shipped_under_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/load");
        let names = fs::read_dir(folder).expect("the folder").map(|entry| {
            let path = entry.expect("an entry").path();
            format!("load/{}", path.file_stem().expect("a name").to_string_lossy())
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        let shipped = Scenario::shipped().expect("they parse");
        assert_eq!(shipped.iter().map(|s| s.name.clone()).collect::<Vec<_>>(), names);
        let found = Scenario::find("load/smoke.toml").expect("by the name of its file");
        assert_eq!(found.name, "load/smoke");
        assert_eq!(found.data.id_shape, Named(IdShape::Prefix));
    }

    #[test]
    fn a_word_that_means_nothing_is_refused() {
        let text = include_str!("../scenarios/load/smoke.toml");
        assert!(Scenario::parse("x", text).is_ok());
        for (old, new) in [("update-heavy", "heavy"), ("repeats = 2", "repeats = 0"), ("ids", "idz")] {
            let refused = Scenario::parse("x", &text.replace(old, new));
            assert!(refused.is_err(), "{new}");
        }
        for against in ["broker", "broker:", "kafka", "read:1"] {
            assert!(against.parse::<Against>().is_err(), "{against}");
        }
    }

    #[test]
    fn a_scenario_survives_json() {
        let mut scenario = Scenario::find("load/smoke").expect("shipped");
        scenario.measure.against.push(Against::Broker("4.4.0".to_owned()));
        let json = serde_json::to_string(&scenario).expect("JSON");
        assert_eq!(serde_json::from_str::<Scenario>(&json).expect("read again"), scenario);
    }
}
